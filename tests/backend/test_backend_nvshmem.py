"""The backend of GPUs on a host without any: stand-ins for CuPy and nvshmem4py, real ranks, real programs."""

import importlib.util
import json
import re
import shutil
from pathlib import Path
from textwrap import indent

import numpy as np
import pytest
from support.graphs import awkward_graphs, make_layout
from support.programs.spmm_program import products
from support.ranks import mpiexec
from support.ranks.ready import FAKE, ready

from mgg.backend import simulated

SUPPORT = Path(__file__).parents[1] / "support"

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


def on_gpus(ranks: int, arguments: list[str], forks: bool = True, **environment: str):
    """Run ``python arguments`` with the stand-ins."""
    return mpiexec(ranks, [FAKE, *arguments], under=ready() if forks else (), **environment)


def ends(code: str, ranks: int, pes: int | None = None, before: str = "", **options: str | bool):
    """Run ``code``, a program of ``world``, on ranks that print the error which it ends with."""
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
    """As many promises as with a GPU each, NCCL's among them, where PEs share GPUs."""
    done = on_gpus(pes, [str(SUPPORT / "programs" / "world_program.py"), "nvshmem"], **shared)
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
    given = [np.full(5, world.rank + 10.0 ** turn) for turn in range(4)]
    given += [np.full((3, 1), world.rank, np.float32), np.array([world.rank], np.int64)]
    sums = [world.all_reduce(world.upload(array)) for array in given]
    found = [world.download(array) for array in sums]
    right = [array.dtype == mine.dtype and array.shape == mine.shape for array, mine in zip(found, given)]
    print(all(right), [float(array.max()) for array in found], [float(array.min()) for array in found], flush=True)

nvshmem.run(lambda: 3, program)
"""


@pytest.mark.sentinel
def test_consecutive_all_reduces_do_not_mix():
    """Rank 1 reads late, when the others have given their part of the next sum."""
    done = on_gpus(3, ["-c", SUMS])
    assert done.returncode == 0, done.stderr
    sums = [6.0, 33.0, 303.0, 3003.0, 3.0, 3.0]
    assert done.stdout.count(f"True {sums} {sums}\n") == 3, done.stdout


RECORDED = """
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
    """Rank 1 reads late, when the others have begun the next launch; where one has no graph, none has."""
    done = on_gpus(3, ["-c", RECORDED])
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
    """Each GPU is noted once."""
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
    """Compare products and bytes with the simulated backend's; a case is layout, widths, options, techniques."""
    given = json.dumps([(str(folder), *rest) for folder, *rest in cases])
    done = on_gpus(pes, ["-c", PRODUCTS, str(out), given], **environment)
    assert done.returncode == 0, done.stderr
    for number, (folder, dims, options, only) in enumerate(cases):
        moved = [{} for _ in range(pes)]
        expected = simulated.run(
            pes,
            lambda world: products(world, folder, dims, options, only=only, moved=moved[world.rank]),  # noqa: B023
        )
        for pe in range(pes):
            found = dict(np.load(out / f"{number}-{pe}.npz"))
            assert found.keys() == {key for key in expected[pe] if pes == 1 or "mgg_uvm" not in key}  # of one process
            for key, array in found.items():  # between hosts and of these the kernel itself runs, in float32
                rounds = bool(environment) or key.startswith(("gnnadvisor ", "seastar "))
                bound = 2e-6 * np.abs(expected[pe][key]).max(initial=0) * rounds
                assert np.abs(array - expected[pe][key]).max(initial=0) <= bound, key
            assert json.loads((out / f"{number}-{pe}.json").read_text()) == {key: moved[pe][key] for key in found}


@pytest.mark.parametrize("pes", [1, 3])
def test_products_and_bytes_equal_simulated_backend(tmp_path, pes):
    """Of every technique."""
    cases = [
        (make_layout(tmp_path / name, awkward_graphs()[name], pes), dims, None, None)
        for name, dims in (
            ("weighted", [1, 16, 41, 128, 602]), ("empty rows", [3]), ("no arcs", [3]), ("more PEs than nodes", [3]),
        )
    ]  # fmt: skip
    check_products(tmp_path, pes, cases)


def test_replicated_products_and_bytes_equal_simulated_backend(tmp_path):
    """Four PEs, two teams of two each way: the technique that takes all of NCCL's collectives; sums that cross, too."""
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 4)
    only = ["broadcast:2", "ring", "broadcast_pipelined", "halo:cover"]
    check_products(tmp_path, 4, [(folder, [3, 41], None, only)])


def test_products_and_bytes_between_hosts_equal_simulated_backend(tmp_path):
    """Two hosts of two PEs; addresses of the other host's memory are not to be had.

    Rows are aligned to as many bytes as there are kinds of loads, in fp32 and in bf16.
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
    """``cola`` sends a message a phase, ``halo`` one to each other workgroup."""
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], pes)
    done = on_gpus(pes, ["-c", PUTS, str(folder)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{{'halo': ['{halo}'], 'cola': ['put']}}\n") == pes, done.stdout


BETWEEN_HOSTS = """
from support.programs import world_program as w
w._sends(world, (world.rank + 1) % 4, (world.rank - 1) % 4)
for promise in (w._shift, w._team, w._exchange, w._reduce):
    promise(world)
print(f'kept {list(world.addressable)}', flush=True)
world.symmetric(8)
"""


def test_world_methods_between_hosts_do_as_documented():
    """All but those of arrays that everybody addresses, which are refused."""
    done = ends(BETWEEN_HOSTS, 4, FAKE_PES_A_HOST="2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("kept [0, 1]") == done.stdout.count("kept [2, 3]") == 2, done.stdout
    said = "True the GPU of PE 0 cannot address that of PE 2: P2P is off, or it is another host's"
    assert done.stdout.count(said) == 4, done.stdout


ONE_GPU = {"FAKE_GPUS": "1", "MGG_SHARED_GPUS": "1"}
FIXED = {"NVSHMEM_DISABLE_CUDA_VMM": "1"}
LARGE, SIGNALS = "world.symmetric(1_000_000)", "world.signal(1 - world.rank); world.wait_signal(1 - world.rank)"
MPS = "start nvidia-cuda-mps-control -d, and set CUDA_MPS_ACTIVE_THREAD_PERCENTAGE to 50"
#: By name: ranks, code, environment, what of an error of every rank is said.
LINES = {
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


@pytest.mark.parametrize("case", LINES)
def test_missing_resource_is_one_line_on_every_pe(case):
    ranks, code, environment, said = LINES[case]
    done = ends(code, ranks, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Error True ") == ranks and done.stdout.count(said) == ranks, done.stdout


@pytest.mark.parametrize("fixed", [{}, FIXED])
def test_advised_heap_size_is_enough(fixed):
    """Where it is smaller on one PE, nobody is in NVSHMEM's call by then, which waits for all."""
    variable = "NVSHMEM_SYMMETRIC_SIZE" if fixed else "NVSHMEM_MAX_MEMORY_PER_GPU"
    before = "" if fixed else f"if MPI.COMM_WORLD.rank == 1:\n    os.environ['{variable}'] = '3M'"
    said = ends(LARGE, 2, before=before, **fixed, **({"FAKE_HEAP": "3000000"} if fixed else {})).stdout
    line = (
        f"PE {0 if fixed else 1}: the symmetric heap is too small for 4000000 bytes beside the 16 in use:"
        f" set {variable} to 20971520 or more, 16 MiB of it for NVSHMEM itself (now {'the default' if fixed else '3M'})"
    )
    assert said.count(f"MachineError True {line}") == 2, said
    large = {"FAKE_HEAP": "20971520"} if fixed else {variable: "20971520"}
    assert ends(LARGE, 2, **fixed, **large).stdout == ""


#: By name: ranks, code, environment, what is said, and by how many ranks.
SAID = {
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
    # The other thread drops marks meanwhile.
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


@pytest.mark.parametrize("case", SAID)
def test_message_of_each_case_is_printed(case):
    ranks, code, environment, said, by = SAID[case]
    done = ends(code, ranks, **({"FAKE_PATIENCE": "0.3"} | environment))
    assert done.stdout.count(said) == by, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("world.broadcast(full(), 2)", "PE 1 did not reach the broadcast of PE 2 within 0.5 s"),
        ("world.shift(full(), full(), 1)", "PE 1 did not reach a shift within 0.5 s"),
        ("pair.broadcast(full(), 0)", "PE 0: waited 0.5 s for the broadcast of PE 0 in the team of PEs 0, 1"),
    ],
)
def test_pe_absent_from_nccl_call_is_named(call, said):
    code = (
        "pair = world.team([2] if world.rank == 2 else [0, 1]); world.broadcast(full(), 0)\n"
        f"time.sleep(1.5 * (world.rank == 1)); {call}; world.download(full())"
    )
    done = ends(code, 3, FAKE_PATIENCE="0.3")
    assert f"PeError False {said};" in done.stdout, done.stdout + done.stderr


def test_ranks_with_different_settings_are_refused():
    """In their number from the PEs, or in whether GPUs may be shared."""
    assert ends("pass", 2, pes=3).stdout.count("InputError True this layout is for 3 PEs but the job has 2") == 2
    some = ends("pass", 2, before="os.environ['MGG_SHARED_GPUS'] = os.environ['PMI_RANK']", FAKE_GPUS="1").stdout
    assert some.count("2 PEs and 1 GPUs: a PE needs a GPU of its own") == 2


STOPS = """
import nvshmem.core
nvshmem_ = nvshmem
from mgg.backend import nvshmem
nvshmem._LEAST, stream_watch.LAST_WORD = 0.5, 1.0
if MPI.COMM_WORLD.rank == 1:
    nvshmem_.core.CALL = lambda *_, **__: os.kill(os.getpid(), signal.SIGSTOP)
"""
BLOCKS = "from cupy.cuda import nccl; nccl.NcclCommunicator = lambda *_: time.sleep(60); world.broadcast(full(), 0)"


@pytest.mark.parametrize(
    ("code", "call", "said"),
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
        # The host waits where it cannot look at the clock, as in a call of CUDA that blocks.
        ("world.rank or world.wait_signal(1); world.stream.synchronize(); time.sleep(60)", "", "a signal from PE 1"),
        (BLOCKS, "", "NCCL to start on PEs 0, 1"),
    ],
)  # fmt: skip
def test_stopped_or_blocked_pe_does_not_hang_the_job(code, call, said):
    before = "stream_watch._GRACE = 0.1" + (STOPS.replace("CALL", call) if call else "")
    done = ends(code, 2, before=before, forks=not call, FAKE_PATIENCE="0.3")
    assert done.returncode == 6, done.stderr
    assert f"mgg: PE 0: waited 0.5 s for {said}" in done.stderr, done.stderr


AWAY = """
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
    arguments = ["-c", AWAY, str(folder), technique, str(members)]
    done = on_gpus(4, arguments, FAKE_PES_A_HOST="2", FAKE_PATIENCE="1")
    assert done.returncode == 6, done.stderr
    assert re.search(r"PE 3 did not reach|PE \d: waited 1.5 s for a signal from PE 3", done.stdout + done.stderr)


def aggregated(folder, technique, *program, **environment):
    """What two ranks of ``mgg aggregate`` end with, and what they say."""
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
    said = "mgg: CuPy is not installed: pip install 'mgg[gpu]', or take --backend mpi\n"
    assert aggregated(folder, technique) == (3, said)


def other_nvshmem(home):
    """One of another version than the stand-in of nvshmem4py."""
    shutil.copytree(SUPPORT / "fake_gpu" / "nvshmem" / "include", home / "include")
    header = home / "include" / "non_abi" / "nvshmem_version.h"
    header.write_text(
        header.read_text().replace("MINOR_VERSION 4", "MINOR_VERSION 5").replace("PATCH_VERSION 5", "PATCH_VERSION 19")
    )


@pytest.mark.parametrize(
    ("technique", "environment", "said"),
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
def test_missing_compiler_or_library_is_reported_once(tmp_path, technique, environment, said):
    """Before anything is allocated or uploaded; each PE would come to its first kernel alone."""
    folder = make_layout(tmp_path, awkward_graphs()["directed"], 2)
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "nvshmem.h").touch()
    other_nvshmem(tmp_path / "other")
    environment = {name: value.format(home=tmp_path) for name, value in environment.items()}
    code, output = aggregated(folder, technique, FAKE, **environment)
    assert code == 3 and output.startswith(f"mgg: {said.format(home=tmp_path)}") and output.count("\n") == 1, output


def test_rank_without_cupy_is_named_on_every_pe():
    code = (
        "from mpi4py import MPI\nimport mgg.backend as b\nfrom mgg.errors import MachineError\n"
        "b.not_installed = lambda module: 'no CuPy' if MPI.COMM_WORLD.rank == 1 else None\n"
        "try:\n    b.launch('nvshmem', lambda: 2, print)\n"
        "except MachineError as error:\n    print(f'{error.everywhere} {error};', flush=True)\n"
    )
    assert mpiexec(2, ["-c", code], under=ready(gpus=False)).stdout.count("True PE 1: no CuPy;") == 2
