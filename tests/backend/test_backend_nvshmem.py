"""The nvshmem backend without GPUs: stand-ins for CuPy and nvshmem4py on real MPI ranks."""

import importlib.util
import json
import re
import shutil
from pathlib import Path
from textwrap import indent

import numpy as np
import pytest
from support.graphs import awkward_graphs, make_layout
from support.programs import world_program
from support.programs.spmm_program import products
from support.ranks import mpiexec
from support.ranks.ready import FAKE, FAKE_GPU, ready

from mgg.backend import simulated

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


def on_gpus(ranks: int, arguments: list[str], forks: bool = True, **environment: str):
    """Run ``python arguments`` on ranks that import the stand-ins."""
    return mpiexec(ranks, [FAKE, *arguments], under=ready() if forks else (), **environment)


def run_code(code: str, ranks: int, pes: int | None = None, before: str = "", **options: str | bool):
    """Run ``code``, a program that uses ``world``; each rank prints the MggError that it raises."""
    return on_gpus(
        ranks,
        ["-c", f"""
import os, signal, time
import numpy as np
from mpi4py import MPI
from mgg.backend import nvshmem
from mgg.backend.gpu import stream_watch
from mgg.errors import MggError
{before}
def full():
    return world.upload(np.ones((4, 2), "float32"))
def program(given):
    global world
    world = given
{indent(code, "    ")}
try:
    nvshmem.run(lambda: {pes or ranks}, program, timeout=0.5)
except MggError as error:
    print(f"{{type(error).__name__}} {{error.everywhere}} {{error}};", flush=True)
"""],
        **options,
    )  # fmt: skip


#: PEs that share GPUs under CUDA MPS.
SHARED = {"MGG_SHARED_GPUS": "1", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "33"}


@pytest.mark.parametrize(("pes", "shared"), [(1, {}), (3, {}), (4, SHARED | {"FAKE_GPUS": "2"})])
def test_world_methods_do_as_documented(pes, shared):
    """PEs that share GPUs get the same results as PEs with a GPU each, including NCCL's."""
    done = on_gpus(pes, [world_program.__file__, "nvshmem"], **shared)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ok") == pes
    assert done.stderr.count("PEs share GPUs (MGG_SHARED_GPUS)") == bool(shared)
    assert "MPI4Py" not in done.stderr


SUMS = """
import time
import numpy as np
from mgg.backend import nvshmem

summed = nvshmem.in_rank_order

def program(world):
    def late(copies):
        time.sleep(0.2 * (world.rank == 1))
        return summed(copies)

    nvshmem.in_rank_order = late
    arrays = [np.full(5, world.rank + 10.0 ** turn) for turn in range(4)]
    arrays += [np.full((3, 1), world.rank, np.float32), np.array([world.rank], np.int64)]
    uploaded = [world.all_reduce(world.upload(array)) for array in arrays]
    sums = [world.download(array) for array in uploaded]
    same = [total.dtype == array.dtype and total.shape == array.shape for total, array in zip(sums, arrays)]
    print(all(same), [float(total.max()) for total in sums], [float(total.min()) for total in sums], flush=True)

nvshmem.run(lambda: 3, program)
"""


@pytest.mark.sentinel
def test_consecutive_all_reduces_do_not_mix():
    """Rank 1 reads late, after the others have written their part of the next sum."""
    done = on_gpus(3, ["-c", SUMS])
    assert done.returncode == 0, done.stderr
    sums = [6.0, 33.0, 303.0, 3003.0, 3.0, 3.0]
    assert done.stdout.count(f"True {sums} {sums}\n") == 3, done.stdout


GRAPH_SUMS = """
import time
import numpy as np
from mgg.backend import nvshmem
from mgg.backend.gpu.graphs import NotRecordedError
from support.devices import device

summed = nvshmem.in_rank_order

def program(world):
    def late(copies):
        device.submit(lambda: time.sleep(0.05 * (world.rank == 1)))
        return summed(copies)

    nvshmem.in_rank_order = late
    for sums, failing in ((1, None), (2, None), (3, None), (1, 2)):
        def work(given):
            total = given * (world.rank + 1.0)
            for _ in range(sums):
                total = world.all_reduce(total)
            if world.rank == failing and device.capturing():
                raise NotRecordedError("of its own")
            return total, None

        one, found = world.repeated(work, 2), []
        for number in range(6):
            one.submit(np.array([number, 1.0]))
            found.append(one.result().tolist())
        right = [[6.0 * 3 ** (sums - 1) * each for each in (number, 1.0)] for number in range(6)]
        print(one._graph is not None, found == right, flush=True)

nvshmem.run(lambda: 3, program)
"""


def test_all_reduces_in_cuda_graphs_do_not_mix():
    """Rank 1 reads late, after the others have begun the next launch. If one rank has no graph, none has."""
    done = on_gpus(3, ["-c", GRAPH_SUMS])
    assert done.returncode == 0, done.stderr
    assert (done.stdout.count("True True"), done.stdout.count("False True")) == (9, 3), done.stdout


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, "('nvshmem', 2)"),
        ({"FAKE_GPUS": "1"}, "('mpi', 0)"),
        ({"FAKE_GPUS": "0"}, "('mpi', 0)"),
        ({"SLURM_GPUS_ON_NODE": "2"}, "('nvshmem', 2)"),
        (SHARED | {"FAKE_GPUS": "1"}, "('nvshmem', 1)"),
    ],
)
def test_auto_picks_nvshmem_if_every_rank_has_a_gpu(environment, found):
    """A GPU that several ranks see is recorded once."""
    code = (
        "from mgg.backend import job_machine, launch\n"
        "print(launch('auto', lambda: 2, lambda world: (world.name, len(job_machine(world).gpus)))[0], flush=True)"
    )
    assert on_gpus(2, ["-c", code], **environment).stdout.count(found) == 2


PRODUCTS = """
import json, sys
from pathlib import Path
import numpy as np
from mgg.backend import job_size, nvshmem
from support.programs.spmm_program import products

out, cases = Path(sys.argv[-2]), json.loads(sys.argv[-1])

def program(world):
    for number, (folder, dims, options, only) in enumerate(cases):
        moved = {}
        found = products(world, Path(folder), dims, options, only=only, moved=moved)
        np.savez(out / f"{number}-{world.rank}.npz", **found)
        (out / f"{number}-{world.rank}.json").write_text(json.dumps(moved))

nvshmem.run(job_size, program)
"""


def check_products(out: Path, pes: int, cases: list, **environment: str):
    """Compare products and bytes with the simulated backend's.

    Args:
        out: the folder for what the ranks write.
        pes: number of PEs.
        cases: tuples of layout, widths, options by technique (or None), techniques (None: all).
        environment: variables of the stand-ins.
    """
    arguments = json.dumps([(str(folder), *rest) for folder, *rest in cases])
    done = on_gpus(pes, ["-c", PRODUCTS, str(out), arguments], **environment)
    assert done.returncode == 0, done.stderr
    for number, (folder, dims, options, only) in enumerate(cases):
        moved = [{} for _ in range(pes)]
        expected = simulated.run(
            pes,
            lambda world: products(world, folder, dims, options, only=only, moved=moved[world.rank]),  # noqa: B023
        )
        for pe in range(pes):
            found = dict(np.load(out / f"{number}-{pe}.npz"))
            # Unified memory belongs to one process.
            assert found.keys() == {key for key in expected[pe] if pes == 1 or "mgg_uvm" not in key}
            for key, array in found.items():
                # Between hosts, and for these techniques, the kernels themselves run, with float32 sums.
                rounds = bool(environment) or key.startswith(("gnnadvisor ", "seastar "))
                bound = 2e-6 * np.abs(expected[pe][key]).max(initial=0) * rounds
                assert np.abs(array - expected[pe][key]).max(initial=0) <= bound, key
            assert json.loads((out / f"{number}-{pe}.json").read_text()) == {key: moved[pe][key] for key in found}


@pytest.mark.parametrize("pes", [1, 3])
def test_products_and_bytes_equal_simulated_backend(tmp_path, pes):
    """All techniques."""
    cases = [
        (make_layout(tmp_path / name, awkward_graphs()[name], pes), dims, None, None)
        for name, dims in (
            ("weighted", [1, 16, 41, 128, 602]), ("empty rows", [3]), ("no arcs", [3]), ("more PEs than nodes", [3]),
        )
    ]  # fmt: skip
    check_products(tmp_path, pes, cases)


def test_replicated_products_and_bytes_equal_simulated_backend(tmp_path):
    """Four PEs in two by two teams: ``broadcast:2`` calls all of NCCL's collectives; ``halo:cover`` sends sums."""
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 4)
    only = ["broadcast:2", "ring", "broadcast_pipelined", "halo:cover"]
    check_products(tmp_path, 4, [(folder, [3, 41], None, only)])


def test_products_and_bytes_between_hosts_equal_simulated_backend(tmp_path):
    """Two hosts of two PEs, which cannot address each other's memory.

    The widths align rows to each size of load, in fp32 and in bf16.
    """
    folder, cases = make_layout(tmp_path, awkward_graphs()["weighted"], 4), []
    for members in (1, 2):
        chosen = {name: {"workgroup": members} for name in ("halo", "cola")} | {f"halo:{members}-bf16": {}}
        chosen |= {"ring": {}, "broadcast": {}, "halo:2-cover": {}} if members == 2 else {}
        cases.append((folder, [3, 8, 12, 130], chosen, list(chosen)))
    check_products(tmp_path, 4, cases, FAKE_PES_A_HOST="2", FAKE_GPUS="2")


PUTS = """
import sys
from pathlib import Path
from unittest import mock
from mgg.backend import job_size, nvshmem
from support.programs.spmm_program import products

def program(world):
    counts = {}
    for technique in ("halo", "cola"):
        calls = {name: mock.Mock(wraps=getattr(world._core, name)) for name in ("put", "put_nbi")}
        with mock.patch.multiple(world._core, **calls):
            products(world, Path(sys.argv[-1]), [3], {technique: {"workgroup": 1}}, only=[technique])
        counts[technique] = [name for name, call in calls.items() if call.called]
    print(counts, flush=True)

nvshmem.run(job_size, program)
"""


@pytest.mark.parametrize(("pes", "halo"), [(2, "put"), (3, "put_nbi")])
def test_put_nbi_is_used_only_for_several_messages_at_once(tmp_path, pes, halo):
    """``cola`` sends one message per phase, ``halo`` one to each other workgroup."""
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], pes)
    done = on_gpus(pes, ["-c", PUTS, str(folder)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{{'halo': ['{halo}'], 'cola': ['put']}}\n") == pes, done.stdout


BETWEEN_HOSTS = """
from support.programs import world_program as w
w._sends(world, (world.rank + 1) % 4, (world.rank - 1) % 4)
for check in (w._shift, w._team, w._exchange, w._reduce):
    check(world)
print(f'kept {list(world.addressable)}', flush=True)
world.symmetric(8)
"""


def test_world_methods_between_hosts_do_as_documented():
    """All but symmetric arrays that every PE addresses, which are refused."""
    done = run_code(BETWEEN_HOSTS, 4, FAKE_PES_A_HOST="2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("kept [0, 1]") == done.stdout.count("kept [2, 3]") == 2, done.stdout
    message = "True the GPU of PE 0 cannot address that of PE 2: P2P is off, or it is another host's"
    assert done.stdout.count(message) == 4, done.stdout


ONE_GPU = {"FAKE_GPUS": "1", "MGG_SHARED_GPUS": "1"}
FIXED = {"NVSHMEM_DISABLE_CUDA_VMM": "1"}
LARGE, SIGNALS = "world.symmetric(1_000_000)", "world.signal(1 - world.rank); world.wait_signal(1 - world.rank)"
MPS = "start nvidia-cuda-mps-control -d, and set CUDA_MPS_ACTIVE_THREAD_PERCENTAGE to 50"
#: Name -> ranks, code, environment, part of the error that every rank raises.
ERRORS = {
    "no GPU": (2, LARGE, {"FAKE_GPUS": "0"}, "no GPU to use (cudaErrorNoDevice"),
    "no driver": (2, LARGE, {"FAKE_DRIVER": "0"}, "no GPU here: no NVIDIA driver"),
    "driver": (2, LARGE, {"FAKE_DRIVER": "12040"}, "the NVIDIA driver supports CUDA 12.4 and CuPy needs 13.0"),
    "fewer GPUs": (2, LARGE, {"FAKE_GPUS": "1"}, "2 PEs and 1 GPUs: a PE needs a GPU of its own"),
    "heap": (2, LARGE, FIXED | {"FAKE_PES_A_HOST": "1", "FAKE_HEAP": "3"}, "heap is too small for 8 bytes"),
    "P2P": (2, LARGE, {"FAKE_P2P": "0"}, "cannot address GPU"),
    "memory": (2, LARGE, {"FAKE_FREE": "3000000"}, "PE 1 needs 4000000 bytes of GPU memory and has 3000000 free: "),
    "shared memory": (
        2, LARGE, ONE_GPU | {"FAKE_FREE": "7000000"}, "PE 1 needs 4000000 bytes of GPU memory and has 3500000 free",
    ),
    "uneven": (
        3, "pass", {"FAKE_GPUS": "2", "MGG_SHARED_GPUS": "1"},
        "1 PEs on one GPU and 2 on another: NVSHMEM wants as many on each",
    ),
    "sizes": (2, "world.symmetric(10 + 10 * world.rank)", {}, "the PEs ask for symmetric arrays of 40 to 80 bytes"),
    "no NCCL": (2, "world.broadcast(full(), 0)", {"FAKE_NCCL": "0"}, "NCCL is missing: pip install nvidia-nccl-cu13;"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_missing_resource_is_one_line_on_every_pe(case):
    ranks, code, environment, message = ERRORS[case]
    done = run_code(code, ranks, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Error True ") == ranks and done.stdout.count(message) == ranks, done.stdout


@pytest.mark.parametrize("fixed", [{}, FIXED])
def test_advised_heap_size_is_enough(fixed):
    """The heap that the error advises holds the arrays; a smaller one is refused on every PE.

    If it is too small on one PE alone, no PE enters NVSHMEM's collective call, which would wait for all.
    """
    variable = "NVSHMEM_SYMMETRIC_SIZE" if fixed else "NVSHMEM_MAX_MEMORY_PER_GPU"
    before = "" if fixed else f"if MPI.COMM_WORLD.rank == 1:\n    os.environ['{variable}'] = '3M'"
    output = run_code(LARGE, 2, before=before, **fixed, **({"FAKE_HEAP": "3000000"} if fixed else {})).stdout
    line = (
        f"PE {0 if fixed else 1}: the symmetric heap is too small for 4000000 bytes beside the 16 in use:"
        f" set {variable} to 20971520 or more, 16 MiB of it for NVSHMEM itself (now {'the default' if fixed else '3M'})"
    )
    assert output.count(f"MachineError True {line}") == 2, output
    large = {"FAKE_HEAP": "20971520"} if fixed else {variable: "20971520"}
    assert run_code(LARGE, 2, **fixed, **large).stdout == ""


#: Name -> ranks, code, environment, part of the output, and how many ranks print it.
OUTPUTS = {
    "timeline": (
        1,
        "t = world.timeline(); t.enter('aggregate'); t.enter('communication'); t.leave(); t.leave()\n"
        "print(sorted(t.collect().items()), t.collect())",
        {"FAKE_CLOCK": "1"},
        "[('aggregate', 2.0), ('communication', 1.0), ('other', 2.0)] {'other': 1.0}\n", 1,
    ),
    "free share": (2, "print(world.free_memory(), flush=True)", ONE_GPU | {"FAKE_FREE": "7000000"}, "3500000\n", 2),
    "MPS 51": (2, SIGNALS, ONE_GPU | {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "51"}, MPS, 2),
    "MPS half": (2, SIGNALS, ONE_GPU | {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "half"}, MPS, 2),
    "other memory": (
        2,
        "array = world.symmetric(8, [world.rank]).view(4, 2)\n"
        "try: world.put_rows(array, 1 - world.rank, 0, world.upload(np.ones((1, 2), 'float32')))\n"
        "except AssertionError as error: print(error, flush=True)",
        {}, "cannot send from", 2,
    ),
    "barrier": (
        3, "time.sleep(1.5 * (world.rank == 1)); world.barrier(); world.download(world.upload(np.ones(1)))", {},
        "PeError False PE 1 did not reach a barrier within 0.5 s", 2,
    ),
    "signal": (
        2, "world.rank or world.wait_signal(1); world.rank or world.download(world.upload(np.ones(1)))", {},
        "PeError False PE 0: waited 0.5 s for a signal from PE 1", 1,
    ),
    "start of NCCL": (
        3, "time.sleep(1.5 * (world.rank == 1)); world.broadcast(full(), 0)", {},
        "PeError False PE 1 did not reach a barrier within 0.5 s;", 2,
    ),
    "NCCL's error": (
        2, "world.broadcast(full(), 1)", {"FAKE_NCCL_ERROR": "1"},
        ": the broadcast of PE 1 failed: NCCL_ERROR_REMOTE_ERROR", 2,
    ),
    "NCCL's type": (
        2,
        "try: world.broadcast(world.upload(np.ones(4)), 0)\nexcept ValueError as error: print(error, flush=True)",
        {}, "found float64 of shape (4,)", 2,
    ),
    "no NCCL, one PE": (
        1, "world.broadcast(full(), 0); world.shift(full(), full(), 1); print('done', flush=True)", {"FAKE_NCCL": "0"},
        "done", 1,
    ),
    # The other thread drops marks while this one reads them.
    "marks": (
        1, """
import collections, types
watch = world._watch
class Marks(collections.deque):
    def __len__(self):
        found = super().__len__()
        if not watch._lock.locked():
            self.clear()
        return found
watch._marks = Marks([stream_watch._Mark(types.SimpleNamespace(done=False), 'a test', None)])
print(watch._blame(), flush=True)
watch._marks = collections.deque()
""", {}, "PE 0: waited 0.5 s for a test", 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OUTPUTS)
def test_message_of_each_case_is_printed(case):
    ranks, code, environment, message, times = OUTPUTS[case]
    done = run_code(code, ranks, **({"FAKE_PATIENCE": "0.3"} | environment))
    assert done.stdout.count(message) == times, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("world.broadcast(full(), 2)", "PE 1 did not reach the broadcast of PE 2 within 0.5 s"),
        ("world.shift(full(), full(), 1)", "PE 1 did not reach a shift within 0.5 s"),
        ("pair.broadcast(full(), 0)", "PE 0: waited 0.5 s for the broadcast of PE 0 in the team of PEs 0, 1"),
    ],
)
def test_pe_absent_from_nccl_call_is_named(call, message):
    code = (
        "pair = world.team([2] if world.rank == 2 else [0, 1]); world.broadcast(full(), 0)\n"
        f"time.sleep(1.5 * (world.rank == 1)); {call}; world.download(full())"
    )
    done = run_code(code, 3, FAKE_PATIENCE="0.3")
    assert f"PeError False {message};" in done.stdout, done.stdout + done.stderr


def test_ranks_with_different_settings_are_refused():
    """Another number of ranks than PEs, or MGG_SHARED_GPUS on some ranks alone."""
    assert run_code("pass", 2, pes=3).stdout.count("InputError True this layout is for 3 PEs but the job has 2") == 2
    output = run_code("pass", 2, before="os.environ['MGG_SHARED_GPUS'] = os.environ['PMI_RANK']", FAKE_GPUS="1").stdout
    assert output.count("2 PEs and 1 GPUs: a PE needs a GPU of its own") == 2


STOPPED_IN_CALL = """
import nvshmem.core
nvshmem_ = nvshmem
from mgg.backend import nvshmem
nvshmem._LEAST, stream_watch.LAST_WORD = 0.5, 1.0
if MPI.COMM_WORLD.rank == 1:
    nvshmem_.core.CALL = lambda *_, **__: os.kill(os.getpid(), signal.SIGSTOP)
"""
BLOCKED = "from cupy.cuda import nccl; nccl.NcclCommunicator = lambda *_: time.sleep(60); world.broadcast(full(), 0)"


@pytest.mark.parametrize(
    ("code", "call", "message"),
    [
        ("world.free(world.symmetric(8))", "init", "NVSHMEM to start\n"),
        (
            "world.free(world.symmetric(8))", "interop.cupy.array",
            "the others to allocate symmetric memory: a native call does not return\n",
        ),
        (
            "world.free(world.symmetric(8))", "interop.cupy.free_array",
            "the others to free symmetric memory: a native call does not return\n",
        ),
        ("world.free(world.symmetric(8))", "finalize", "NVSHMEM to end: a native call does not return\n"),
        # The host is in a call that blocks, as of CUDA, and cannot check the time.
        ("world.rank or world.wait_signal(1); world.stream.synchronize(); time.sleep(60)", "", "a signal from PE 1"),
        (BLOCKED, "", "NCCL to start on PEs 0, 1"),
    ],
)  # fmt: skip
def test_stopped_or_blocked_pe_does_not_hang_the_job(code, call, message):
    before = "stream_watch._GRACE = 0.1" + (STOPPED_IN_CALL.replace("CALL", call) if call else "")
    done = run_code(code, 2, before=before, forks=not call, FAKE_PATIENCE="0.3")
    assert done.returncode == 6, done.stderr
    assert f"mgg: PE 0: waited 0.5 s for {message}" in done.stderr, done.stderr


ABSENT_FROM_PRODUCT = """
import sys, time
from mgg import layout
from mgg.aggregate import prepare
from mgg.backend import nvshmem
from mgg.backend.mpi import abort
from mgg.errors import MggError

def program(world):
    folder, technique, members = sys.argv[-3:]
    part, options = layout.load(folder, world.rank), {"workgroup": int(members)}
    plan = prepare(technique, world, part, "forward", 4, options)
    world.download(plan(4))
    world.barrier()
    world.limit_waits(1.5)
    time.sleep(60 * (world.rank == 3))
    world.download(plan(4))

try:
    nvshmem.run(lambda: 4, program)
except MggError as error:
    print(error, flush=True)
    abort(error.exit_code)
"""


@pytest.mark.parametrize(("technique", "members"), [("halo", 1), ("cola", 2)])
def test_pe_absent_from_product_between_hosts_is_named(tmp_path, technique, members):
    folder = make_layout(tmp_path, awkward_graphs()["directed"], 4)
    arguments = ["-c", ABSENT_FROM_PRODUCT, str(folder), technique, str(members)]
    done = on_gpus(4, arguments, FAKE_PES_A_HOST="2", FAKE_PATIENCE="1")
    assert done.returncode == 6, done.stderr
    assert re.search(r"PE 3 did not reach|PE \d: waited 1.5 s for a signal from PE 3", done.stdout + done.stderr)


def run_aggregate(folder, technique, *program, **environment):
    """Exit code and output of ``mgg aggregate`` on two ranks; ``program`` comes before ``-m``."""
    out = folder.parent / "records.jsonl"
    arguments = ["aggregate", str(folder), "--technique", technique, "--dim", "4", "--backend", "nvshmem"]
    arguments = [*program, "-m", "mgg.cli", *arguments, "--out", str(out)]
    done = mpiexec(2, arguments, under=ready(gpus=bool(program)), **environment)
    assert not out.exists()
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
@pytest.mark.parametrize("technique", ["mgg", "mgg_uvm"])
def test_missing_cupy_is_reported_once(tmp_path, technique):
    folder = make_layout(tmp_path, awkward_graphs()["directed"], 2)
    message = "mgg: CuPy is not installed: pip install 'mgg[gpu]', or take --backend mpi\n"
    assert run_aggregate(folder, technique) == (3, message)


def write_newer_nvshmem(home):
    """Headers of NVSHMEM in a later version than the stand-in for nvshmem4py."""
    shutil.copytree(FAKE_GPU / "nvshmem" / "include", home / "include")
    header = home / "include" / "non_abi" / "nvshmem_version.h"
    header.write_text(
        header.read_text().replace("MINOR_VERSION 4", "MINOR_VERSION 5").replace("PATCH_VERSION 5", "PATCH_VERSION 19")
    )


@pytest.mark.parametrize(
    ("technique", "environment", "message"),
    [
        ("halo", {"FAKE_NVCC": "0"}, "nvcc is missing: pip install"),
        (
            "direct",
            {"FAKE_NVSHMEM_HOME": "{home}"},
            "direct, D = 4: {home}/include/non_abi/nvshmem_version.h: cannot be",
        ),
        (
            "direct",
            {"FAKE_NVSHMEM_HOME": "{home}/other"},
            "direct, D = 4: NVSHMEM's device library in {home}/other is of version 3.5.19 and the host library that"
            " nvshmem4py loads of 3.4.5: set NVSHMEM_HOME",
        ),
    ],
)
def test_missing_compiler_or_library_is_reported_once(tmp_path, technique, environment, message):
    """Before anything is allocated: otherwise each PE would fail at its first kernel by itself."""
    folder = make_layout(tmp_path, awkward_graphs()["directed"], 2)
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "nvshmem.h").touch()
    write_newer_nvshmem(tmp_path / "other")
    environment = {name: value.format(home=tmp_path) for name, value in environment.items()}
    code, output = run_aggregate(folder, technique, FAKE, **environment)
    assert code == 3 and output.startswith(f"mgg: {message.format(home=tmp_path)}") and output.count("\n") == 1, output


def test_rank_without_cupy_is_named_on_every_pe():
    code = (
        "from mpi4py import MPI\nimport mgg.backend as b\nfrom mgg.errors import MachineError\n"
        "b.not_installed = lambda module: 'no CuPy' if MPI.COMM_WORLD.rank == 1 else None\n"
        "try:\n    b.launch('nvshmem', lambda: 2, print)\n"
        "except MachineError as error:\n    print(f'{error.everywhere} {error};', flush=True)\n"
    )
    assert mpiexec(2, ["-c", code], under=ready(gpus=False)).stdout.count("True PE 1: no CuPy;") == 2
