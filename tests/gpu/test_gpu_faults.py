"""Faults on GPUs end with one line, the right exit code, and no rank left behind."""

import re
import signal
import time
from pathlib import Path

import psutil
import pytest
from support.devices.gpus import GPUS, memory
from support.graphs import make_layout, random_csr
from support.graphs.train_graphs import layouts_below
from support.ranks import TimedOutput, mpiexec, run_timed

from mgg.config import MAX_DIM

SECONDS_TO_END = 10

pytestmark = pytest.mark.gpu
#: Without CUDA MPS: after a client was killed, the next job may get cudaErrorDevicesUnavailable.
WITHOUT_MPS = pytest.mark.gpu(2, share="in turns")


def run(ranks: int, code: str, **environment: str) -> TimedOutput:
    """Run ``code``, a program that uses ``world`` with waits of at most 3 s, on ranks that end as ``mgg`` does."""
    program = (
        "import os, signal, sys, time\nimport numpy as np\nfrom mgg.backend import nvshmem\n"
        "from mgg.backend.mpi import abort\n"
        "from mgg.errors import MggError\n"
        f"def program(world):\n    {code}\n"
        f"try:\n    nvshmem.run(lambda: {ranks}, program, timeout=3)\n"
        "except MggError as error:\n"
        "    print(f'{type(error).__name__} {error};', flush=True)\n"
        "    error.everywhere or abort(error.exit_code)\n"
        "    sys.exit(error.exit_code)\n"
    )
    return run_timed(ranks, ["-c", program], **environment)


def aggregate(ranks: int, folder: Path, *options: str) -> TimedOutput:
    """``mgg aggregate`` on ``ranks`` ranks."""
    arguments = ["aggregate", str(folder), "--technique", "mgg", "--backend", "nvshmem", "--no-check"]
    arguments += options or ["--dim", "16"]
    return run_timed(ranks, ["-m", "mgg.cli", *arguments, "--out", str(folder / "records.jsonl")])


def assert_ends(ended: TimedOutput, pattern: str, code: int) -> str:
    """Check the exit code, and that all ranks end within 10 s of the first line with ``pattern``; returns the line."""
    line, seconds = ended.find(pattern)
    assert ended.code == code, ended.output
    assert seconds <= SECONDS_TO_END, ended.output
    return line


def test_more_ranks_than_gpus_are_refused():
    ended = run(GPUS + 1, "pass")
    assert_ends(ended, f"MachineError {GPUS + 1} PEs and {GPUS} GPUs", 3)
    assert ended.output.count(f"{GPUS + 1} PEs and {GPUS} GPUs") == GPUS + 1


def test_oversized_array_is_refused_before_allocation():
    pattern = r"MachineError a symmetric array of \d+ bytes on each PE does not fit: PE 0 needs \d+ bytes of GPU memory"
    assert_ends(run(1, "world.symmetric(2**40)"), pattern, 3)


def test_small_heap_error_names_its_variable():
    # Without CUDA's virtual memory management the heap has a fixed size, which NVSHMEM rounds up.
    ended = run(1, "world.symmetric(2**30)", NVSHMEM_DISABLE_CUDA_VMM="1", NVSHMEM_SYMMETRIC_SIZE="64M")
    pattern = r"MachineError PE 0: the symmetric heap is too small.*set NVSHMEM_SYMMETRIC_SIZE to \d+ or more"
    assert_ends(ended, pattern, 3)


@pytest.mark.parametrize("pes", [1, 2])
def test_too_many_columns_are_refused_with_their_bytes(tmp_path, pes):
    nodes = memory() * pes // (4 * MAX_DIM) + 10_000
    folder = make_layout(tmp_path, random_csr(nodes, 1_000), pes)
    line = assert_ends(aggregate(pes, folder, "--dim", str(MAX_DIM)), "mgg: mgg, D = .*bytes", 3)
    assert max(int(number) for number in re.findall(r"\d+", line)) >= 4 * MAX_DIM * (nodes // pes)


@pytest.mark.gpu(2)
def test_layout_for_another_number_of_pes_is_refused(tmp_path):
    folder = make_layout(tmp_path, random_csr(100, 1_000), 2)
    assert_ends(aggregate(1, folder), "mgg: ", 2)
    folder = make_layout(tmp_path, random_csr(100, 1_000), 3)
    ended = aggregate(2, folder)
    assert_ends(ended, "mgg: ", 2)
    assert ended.output.count("mgg: ") == 1


@pytest.mark.gpu(2)
def test_different_sizes_of_symmetric_arrays_are_refused(tmp_path):
    ended = run(2, "world.symmetric(10 + world.rank)")
    assert_ends(ended, "InputError the PEs ask for symmetric arrays of 40 to 44 bytes", 2)


@pytest.mark.gpu(2)
def test_absent_pe_is_named():
    code = "time.sleep(20 * (world.rank == 1)); world.barrier(); world.download(world.upload(np.ones(1)))"
    assert_ends(run(2, code), r"PeError PE 1 did not reach a barrier within 3 s", 6)


@pytest.mark.gpu(2)
def test_blocked_host_does_not_hang_the_job():
    code = "world.rank or world.wait_signal(1); world.stream.synchronize(); time.sleep(60)"
    assert_ends(run(2, code), "PE 0: waited 3 s for a signal from PE 1", 6)


@pytest.mark.gpu(2)
@pytest.mark.parametrize(("technique", "members"), [("halo", 1), ("halo", 2), ("cola", 1)])
def test_pe_absent_from_product_in_workgroups_is_named(tmp_path, technique, members):
    """Between workgroups the host waits for signals; within a workgroup the kernel of halo waits for flags."""
    folder = make_layout(tmp_path, random_csr(20_000, 400_000), 2)
    code = (
        "from mgg import layout, aggregate\n"
        f"    part = layout.load({str(folder)!r}, world.rank)\n"
        f"    plan = aggregate.prepare({technique!r}, world, part, 'forward', 64, {{'workgroup': {members}}})\n"
        "    world.download(plan(64))\n"
        "    time.sleep(20 * (world.rank == 1))\n"
        "    world.download(plan(64))\n"
    )
    assert_ends(run(2, code), r"PE 1 did not reach .* within 3 s|PE 0: waited 3 s for a signal from PE 1", 6)


@WITHOUT_MPS
@pytest.mark.parametrize(
    "technique",
    ["mgg", "direct", "ring", "broadcast", "broadcast_pipelined", "halo", "cola", "zero_copy", "features", "dgcl"],
)
def test_killed_rank_ends_a_product(tmp_path, technique):
    folder = make_layout(tmp_path, random_csr(20_000, 400_000), 2)
    killed = tmp_path / "killed"
    code = (
        "from mgg import layout, aggregate\n"
        f"    plan = aggregate.prepare({technique!r}, world, layout.load({str(folder)!r}, world.rank), 'forward', 64)\n"
        "    for number in range(10**6):\n"
        "        plan(64)\n"
        "        if world.rank == 1 and number == 50:\n"
        f"            open({str(killed)!r}, 'w').close()\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert_gone(run(2, code), killed)


SIGNAL_IN_EPOCH_50 = """
import os, pathlib, signal, sys
from mgg.backend import job_rank
from mgg.cli import main
from mgg.train import Trainer

_, number, marker, *arguments = sys.argv
sys.argv = ["mgg", *arguments]
original = Trainer.epoch


def epoch(trainer, epoch):
    if epoch == 50 and job_rank() == 1:
        pathlib.Path(marker).touch()
        os.kill(os.getpid(), int(number))
    return original(trainer, epoch)


Trainer.epoch = epoch
main()
"""


@WITHOUT_MPS
@pytest.mark.parametrize("technique", ["halo", "mgg"])
def test_killed_rank_ends_a_training(tmp_path, technique):
    killed = tmp_path / "killed"
    assert_gone(train(tmp_path, signal.SIGKILL, killed, "gcn", technique), killed)


@pytest.mark.gpu(2)
@pytest.mark.parametrize(("model", "technique", "seconds"), [("gcn", "halo", None), ("gin", "mgg", 5)])
def test_stalled_rank_of_a_training_is_named(tmp_path, model, technique, seconds):
    """Within 60 s of its last epoch, although the others wait for it within a CUDA graph."""
    stopped = tmp_path / "stopped"
    ended = train(tmp_path, signal.SIGSTOP, stopped, model, technique, seconds)
    assert time.time() - stopped.stat().st_mtime < 60, ended.output
    assert ended.code == 6, ended.output
    assert re.search(r"^mgg: (PE 0: )?PE 1 \(epoch (49|50), [a-z -]+\) (did|has) not ", ended.output, re.MULTILINE), (
        ended.output
    )


def train(
    tmp_path: Path, number: signal.Signals, marker: Path, model: str, technique: str, seconds: int | None = None
) -> TimedOutput:
    """Train on two ranks; in epoch 50 rank 1 writes ``marker`` and sends itself a signal; no run may be left."""
    folder = layouts_below(lambda name: tmp_path / name)("planted", 2)
    program, out = tmp_path / "program.py", tmp_path / "run"
    program.write_text(SIGNAL_IN_EPOCH_50)
    options = ["--model", model, "--technique", technique, "--epochs", "100000", "--backend", "nvshmem"]
    options += ["--stall-after", str(seconds)] if seconds else []
    arguments = [str(program), str(int(number)), str(marker), "train", str(folder), *options, "--out", str(out)]
    ended = run_timed(2, arguments)
    assert not out.exists()
    return ended


def assert_gone(ended: TimedOutput, killed: Path) -> None:
    """The job ends within 30 s after a rank wrote ``killed``, and leaves no rank behind."""
    assert killed.exists() and ended.code != 0, ended.output
    assert time.time() - killed.stat().st_mtime < 30, ended.output
    tmp_path = killed.parent
    deadline = time.monotonic() + 5
    while running(str(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not running(str(tmp_path))


def running(text: str) -> list[int]:
    """Ids of processes with ``text`` on their command line."""
    processes = psutil.process_iter(["cmdline"])
    return [process.pid for process in processes if text in " ".join(process.info["cmdline"] or ())]


def test_machine_without_gpus_is_reported(tmp_path):
    folder = make_layout(tmp_path, random_csr(100, 1_000), 1)
    arguments = ["aggregate", str(folder), "--technique", "mgg", "--dim", "16", "--backend", "nvshmem"]
    done = mpiexec(1, ["-m", "mgg.cli", *arguments, "--out", str(tmp_path / "out")], CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 3 and done.stderr.startswith("mgg: no GPU"), done.stderr
