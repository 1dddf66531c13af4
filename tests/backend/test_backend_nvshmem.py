"""The backend of GPUs on a host without any: stand-ins for CuPy and nvshmem4py, real ranks, real programs."""

import importlib.util
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.graphs import awkward_graphs, make_layout
from support.ranks import mpiexec, watched
from support.spmm_program import DIMS, products

from mgg.backend import simulated

SUPPORT = Path(__file__).parents[1] / "support"
FAKE = str(SUPPORT / "fake_gpu" / "run.py")

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


def fails(code: str, ranks: int = 1, pes: int | None = None, **environment: str):
    """Standard output of ranks that print the error which ``code``, a program of ``world``, ends with."""
    return mpiexec(ranks, [FAKE, "-c", program_of(code, pes or ranks)], **environment)


def program_of(code: str, pes: int) -> str:
    return (
        "import time\nfrom mgg.backend import nvshmem\nfrom mgg.errors import MggError\n"
        f"def program(world):\n    {code}\n"
        f"try:\n    nvshmem.run(lambda: {pes}, program, timeout=0.5)\n"
        "except MggError as error:\n    print(f'{type(error).__name__} {error.everywhere} {error};', flush=True)\n"
    )


@pytest.mark.parametrize("pes", [1, 3])
def test_the_world_keeps_its_promises(pes):
    done = mpiexec(pes, [FAKE, str(SUPPORT / "world_program.py"), "nvshmem"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ok") == pes
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
def test_sums_that_follow_each_other_meet_in_turns():
    """Rank 1 reads late, when the others have given their part of the next sum."""
    done = mpiexec(3, [FAKE, "-c", SUMS])
    assert done.returncode == 0, done.stderr
    sums = [6.0, 33.0, 303.0, 3003.0, 3.0, 3.0]
    assert done.stdout.count(f"True {sums} {sums}\n") == 3, done.stdout


RECORDED = """
import time
import numpy as np
from mgg.backend import nvshmem
from mgg.backend.gpu.graphs import NotRecordedError
from support import device

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


def test_sums_of_launched_graphs_meet_in_turns():
    """Rank 1 reads late, when the others have begun the next launch; where one has no graph, none has."""
    done = mpiexec(3, [FAKE, "-c", RECORDED])
    assert done.returncode == 0, done.stderr
    assert (done.stdout.count("True True"), done.stdout.count("False True")) == (9, 3), done.stdout


def test_auto_takes_the_gpus():
    code = "from mgg.backend import launch\nprint(launch('auto', lambda: 2, lambda world: world.name)[0], flush=True)"
    assert mpiexec(2, [FAKE, "-c", code]).stdout.count("nvshmem") == 2
    assert mpiexec(2, [FAKE, "-c", code], FAKE_GPUS="1").stdout.count("mpi") == 2
    assert mpiexec(2, [FAKE, "-c", code], FAKE_GPUS="0").stdout.count("mpi") == 2
    assert mpiexec(2, [FAKE, "-c", code], SLURM_GPUS_ON_NODE="2").stdout.count("nvshmem") == 2
    idle = mpiexec(2, [FAKE, "-c", code], FAKE_GPUS="0", SLURM_GPUS_ON_NODE="2")
    assert "Slurm has given this job 2 GPUs, and it can use none of them: no GPU to use (" in idle.stderr


@pytest.mark.parametrize(("pes", "gpus"), [(3, "1"), (4, "2")])
def test_pes_may_share_gpus(pes, gpus):
    """As many promises as with a GPU each, NCCL's among them; each GPU is noted once."""
    shared = {"FAKE_GPUS": gpus, "MGG_SHARED_GPUS": "1", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "33"}
    done = mpiexec(pes, [FAKE, str(SUPPORT / "world_program.py"), "nvshmem"], **shared)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ok") == pes
    assert done.stderr.count("PEs share GPUs (MGG_SHARED_GPUS)") == 1
    code = (
        "from mgg.backend import job_machine, launch\n"
        f"found = launch('auto', lambda: {pes}, lambda world: (world.name, len(job_machine(world).gpus)))[0]\n"
        "print(found, flush=True)"
    )
    assert mpiexec(pes, [FAKE, "-c", code], **shared).stdout.count(f"('nvshmem', {gpus})") == pes


def test_gpus_are_shared_evenly_and_by_all_ranks_or_none():
    uneven = fails("pass", 3, FAKE_GPUS="2", MGG_SHARED_GPUS="1").stdout
    assert uneven.count("MachineError True 1 PEs on one GPU and 2 on another: NVSHMEM wants as many on each") == 3
    alone = "import os; os.environ['MGG_SHARED_GPUS'] = os.environ['PMI_RANK']\n"
    some = mpiexec(2, [FAKE, "-c", alone + program_of("pass", 2)], FAKE_GPUS="1").stdout
    assert some.count("2 PEs and 1 GPUs: a PE needs a GPU of its own") == 2


@pytest.mark.parametrize("share", ["", "51", "half"])
def test_signals_between_pes_of_one_gpu_need_mps(share):
    shared = {"FAKE_GPUS": "1", "MGG_SHARED_GPUS": "1", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": share}
    done = fails("world.signal(1 - world.rank); world.wait_signal(1 - world.rank)", 2, **shared)
    assert done.stdout.count("start nvidia-cuda-mps-control -d, and set CUDA_MPS_ACTIVE_THREAD_PERCENTAGE to 50") == 2


def test_who_shares_a_gpu_has_a_share_of_its_memory():
    shared = {"FAKE_GPUS": "1", "MGG_SHARED_GPUS": "1", "FAKE_FREE": "7000000"}
    done = fails("print(world.free_memory(), flush=True); world.symmetric(1_000_000)", 2, **shared)
    assert done.stdout.count("3500000\n") == 2
    assert "PE 1 needs 4000000 bytes of GPU memory and has 3500000 free" in done.stdout


@pytest.mark.parametrize("pes", [1, 3])
def test_products_and_bytes_are_those_of_the_simulated_backend(tmp_path, pes):
    graphs = [awkward_graphs()[name] for name in ("weighted", "empty rows", "no arcs", "more PEs than nodes")]
    folders = [make_layout(tmp_path / str(number), csr, pes) for number, csr in enumerate(graphs)]
    done = mpiexec(pes, [FAKE, str(SUPPORT / "spmm_program.py"), "nvshmem", str(tmp_path), *map(str, folders)])
    assert done.returncode == 0, done.stderr
    for number, folder in enumerate(folders):
        moved = [{} for _ in range(pes)]
        expected = simulated.run(pes, lambda world: products(world, folder, DIMS, moved=moved[world.rank]))  # noqa: B023
        for pe in range(pes):
            found = dict(np.load(tmp_path / f"{number}-{pe}.npz"))
            assert found.keys() == {key for key in expected[pe] if pes == 1 or "mgg_uvm" not in key}  # of one process
            for key, array in found.items():  # of these the kernel itself runs, whose sums are of float32
                bound = 2e-6 * np.abs(expected[pe][key]).max(initial=0) * key.startswith(("gnnadvisor ", "seastar "))
                assert np.abs(array - expected[pe][key]).max(initial=0) <= bound, key
            assert json.loads((tmp_path / f"{number}-{pe}.json").read_text()) == {key: moved[pe][key] for key in found}


def test_replicas_and_bytes_are_those_of_the_simulated_backend(tmp_path):
    """Four PEs, two teams of two each way: the technique that takes all of NCCL's collectives; sums that cross, too."""
    only = ["broadcast:2", "ring", "broadcast_pipelined", "halo:cover"]
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 4)
    code = (
        "import json, sys\nimport numpy as np\nfrom pathlib import Path\nfrom mgg.backend import nvshmem\n"
        "from support.spmm_program import products\n"
        f"out, folder = Path({str(tmp_path)!r}), Path({str(folder)!r})\n"
        "def program(world):\n"
        "    moved = {}\n"
        f"    found = products(world, folder, [3, 41], only={only}, moved=moved)\n"
        "    np.savez(out / f'{world.rank}.npz', **found)\n"
        "    (out / f'{world.rank}.json').write_text(json.dumps(moved))\n"
        "nvshmem.run(lambda: 4, program)\n"
    )
    done = mpiexec(4, [FAKE, "-c", code])
    assert done.returncode == 0, done.stderr
    moved = [{} for _ in range(4)]
    expected = simulated.run(4, lambda world: products(world, folder, [3, 41], only=only, moved=moved[world.rank]))
    for pe in range(4):
        found = dict(np.load(tmp_path / f"{pe}.npz"))
        assert len(found) == 4 * len(only) and found.keys() == expected[pe].keys()
        assert all(np.array_equal(found[key], expected[pe][key]) for key in found)
        assert json.loads((tmp_path / f"{pe}.json").read_text()) == moved[pe]


HOSTS = (
    "import json, sys\nimport numpy as np\nfrom pathlib import Path\nfrom mgg.backend import nvshmem\n"
    "from support.spmm_program import products\n"
    "out, folder, chosen = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])\n"
    "def program(world):\n"
    "    moved = {}\n"
    "    found = products(world, folder, DIMS, chosen, only=chosen, moved=moved)\n"
    "    np.savez(out / f'{world.rank}.npz', **found)\n"
    "    (out / f'{world.rank}.json').write_text(json.dumps(moved))\n"
    "nvshmem.run(lambda: 4, program)\n"
)
#: Rows aligned to as many bytes as there are kinds of loads, in fp32 and in bf16.
HOST_DIMS = (3, 8, 12, 130)


@pytest.mark.parametrize("members", [1, 2])
def test_between_hosts_products_and_bytes_are_those_of_the_simulated_backend(tmp_path, members):
    """Two hosts of two PEs; addresses of the other host's memory are not to be had."""
    chosen = {name: {"workgroup": members} for name in ("halo", "cola")} | {"ring": {}, "broadcast": {}}
    chosen |= {f"halo:{members}-bf16": {}} | ({"halo:2-cover": {}} if members == 2 else {})
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], 4)
    program = tmp_path / "program.py"
    program.write_text(HOSTS.replace("DIMS", str(HOST_DIMS)))
    arguments = [FAKE, str(program), str(tmp_path), str(folder), json.dumps(chosen)]
    done = mpiexec(4, arguments, FAKE_PES_A_HOST="2", FAKE_GPUS="2")
    assert done.returncode == 0, done.stderr
    moved = [{} for _ in range(4)]
    expected = simulated.run(
        4, lambda world: products(world, folder, HOST_DIMS, chosen, only=chosen, moved=moved[world.rank])
    )
    for pe in range(4):
        found = dict(np.load(tmp_path / f"{pe}.npz"))
        assert len(found) == 8 * len(chosen) and found.keys() == expected[pe].keys()
        assert all(np.allclose(found[key], expected[pe][key], rtol=1e-6, atol=1e-6) for key in found)
        assert json.loads((tmp_path / f"{pe}.json").read_text()) == moved[pe]


PUTS = """
import sys
from pathlib import Path
from unittest import mock
from mgg.backend import job_size, nvshmem
from support.spmm_program import products

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
def test_only_messages_that_go_together_are_put_beside_the_stream(tmp_path, pes, halo):
    """``cola`` sends a message a phase, ``halo`` one to each other workgroup."""
    folder = make_layout(tmp_path, awkward_graphs()["weighted"], pes)
    done = mpiexec(pes, [FAKE, "-c", PUTS, str(folder)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{{'halo': ['{halo}'], 'cola': ['put']}}\n") == pes, done.stdout


PROMISES = (
    "from mgg.backend import nvshmem\nfrom mgg.errors import MachineError\nfrom support import world_program as w\n"
    "def program(world):\n"
    "    w._sends(world, (world.rank + 1) % 4, (world.rank - 1) % 4)\n"
    "    for promise in (w._shift, w._team, w._exchange, w._reduce):\n"
    "        promise(world)\n"
    "    print(f'kept {list(world.addressable)}', flush=True)\n"
    "    world.symmetric(8)\n"
    "try:\n    nvshmem.run(lambda: 4, program)\n"
    "except MachineError as error:\n    print(f'{error.everywhere} {error}', flush=True)\n"
)


def test_the_world_keeps_its_promises_between_hosts():
    """All but those of arrays that everybody addresses, which are refused."""
    done = mpiexec(4, [FAKE, "-c", PROMISES], FAKE_PES_A_HOST="2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("kept [0, 1]") == done.stdout.count("kept [2, 3]") == 2, done.stdout
    said = "True the GPU of PE 0 cannot address that of PE 2: P2P is off, or it is another host's"
    assert done.stdout.count(said) == 4, done.stdout


def test_an_inner_phase_does_not_count_for_the_outer_one():
    """By a clock that goes on by 1 with every event."""
    code = (
        "t = world.timeline(); t.enter('aggregate'); t.enter('communication'); t.leave(); t.leave();"
        " print(sorted(t.collect().items()), t.collect())"
    )
    done = fails(code, FAKE_CLOCK="1")
    assert done.stdout == "[('aggregate', 2.0), ('communication', 1.0), ('other', 2.0)] {'other': 1.0}\n", done.stderr


def test_rows_leave_a_host_from_symmetric_memory_alone():
    code = (
        "import numpy as np; array = world.symmetric(8, [world.rank]).view(4, 2);"
        " world.put_rows(array, 1 - world.rank, 0, world.upload(np.ones((1, 2), 'float32')))"
    )
    assert "cannot send from" in fails(code, 2).stderr


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"FAKE_GPUS": "0"}, "no GPU to use (cudaErrorNoDevice"),
        ({"FAKE_DRIVER": "0"}, "no GPU here: no NVIDIA driver"),
        ({"FAKE_DRIVER": "12040"}, "the NVIDIA driver supports CUDA 12.4 and CuPy needs 13.0"),
        ({"FAKE_GPUS": "1"}, "2 PEs and 1 GPUs: a PE needs a GPU of its own"),
        ({"FAKE_PES_A_HOST": "1", "FAKE_HEAP": "3", "NVSHMEM_DISABLE_CUDA_VMM": "1"}, "heap is too small for 8 bytes"),
        ({"FAKE_P2P": "0"}, "cannot address GPU"),
        ({"FAKE_FREE": "3000000"}, "PE 1 needs 4000000 bytes of GPU memory and has 3000000 free: "),
        (
            {"FAKE_HEAP": "3000000", "NVSHMEM_DISABLE_CUDA_VMM": "1"},
            "set NVSHMEM_SYMMETRIC_SIZE to 20971520 or more, 16 MiB of it for NVSHMEM itself (now the default)",
        ),
        (
            {"NVSHMEM_MAX_MEMORY_PER_GPU": "3M"},
            "set NVSHMEM_MAX_MEMORY_PER_GPU to 20971520 or more, 16 MiB of it for NVSHMEM itself (now 3M)",
        ),
    ],
)
def test_what_is_missing_is_one_line_on_every_pe(environment, said):
    done = fails("world.symmetric(1_000_000)", 2, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("MachineError True ") == 2 and done.stdout.count(said) == 2, done.stdout


def test_a_heap_that_is_smaller_on_one_pe_is_one_line_on_every_pe():
    """Nobody is in NVSHMEM's call by then, which waits for all."""
    smaller = (
        "import os\nfrom mpi4py import MPI\n"
        "if MPI.COMM_WORLD.rank == 1:\n    os.environ['NVSHMEM_MAX_MEMORY_PER_GPU'] = '3M'\n"
    )
    done = mpiexec(2, [FAKE, "-c", smaller + program_of("world.symmetric(1_000_000)", 2)])
    said = "MachineError True PE 1: the symmetric heap is too small for 4000000 bytes beside the 16 in use:"
    advice = "set NVSHMEM_MAX_MEMORY_PER_GPU to 20971520 or more, 16 MiB of it for NVSHMEM itself (now 3M)"
    assert done.stdout.count(f"{said} {advice}") == 2, done.stdout


@pytest.mark.parametrize("variable", ["NVSHMEM_MAX_MEMORY_PER_GPU", "NVSHMEM_SYMMETRIC_SIZE"])
def test_a_heap_as_large_as_advised_is_large_enough_and_more_than_the_arrays_take(variable):
    fixed = {"NVSHMEM_DISABLE_CUDA_VMM": "1"} if variable == "NVSHMEM_SYMMETRIC_SIZE" else {}
    small = {"FAKE_HEAP": "3000000"} if fixed else {variable: "3M"}
    said = fails("world.symmetric(1_000_000)", 1, **fixed, **small).stdout
    advised = int(re.search(rf"set {variable} to (\d+) or more", said)[1])
    assert advised % 2**20 == 0 and advised >= 4_000_000 + 16 * 2**20
    large = {"FAKE_HEAP": str(advised)} if fixed else {variable: str(advised)}
    assert fails("world.symmetric(1_000_000)", 1, **fixed, **large).stdout == ""


def test_other_ranks_than_pes_and_other_sizes_are_refused():
    assert fails("pass", 2, pes=3).stdout.count("InputError True this layout is for 3 PEs but the job has 2") == 2
    said = "the PEs ask for symmetric arrays of 40 to 80 bytes"
    assert fails("world.symmetric(10 + 10 * world.rank)", 2).stdout.count(said) == 2


def test_a_pe_that_stays_away_is_named():
    code = (
        "time.sleep(3 * (world.rank == 1)); world.barrier(); world.download(world.upload(__import__('numpy').ones(1)))"
    )
    done = fails(code, 3, FAKE_PATIENCE="0.3")
    assert done.stdout.count("PeError False PE 1 did not reach a barrier within 0.5 s") == 2, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("init", "NVSHMEM to start"),
        ("interop.cupy.array", "the others to allocate symmetric memory: a native call does not return"),
        ("interop.cupy.free_array", "the others to free symmetric memory: a native call does not return"),
        ("finalize", "NVSHMEM to end: a native call does not return"),
    ],
)
def test_a_pe_that_stops_in_a_call_of_nvshmem_does_not_keep_the_others(call, said):
    stops = (
        "import os, signal\nfrom mpi4py import MPI\nimport nvshmem.core\n"
        "from mgg.backend import nvshmem as n\nfrom mgg.backend.gpu import stream_watch as s\n"
        "s._GRACE, n._LEAST, s.LAST_WORD = 0.1, 0.5, 1.0\n"
        "def stop(*_, **__):\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
        f"if MPI.COMM_WORLD.rank == 1:\n    nvshmem.core.{call} = stop\n"
    )
    ended = watched(2, [FAKE, "-c", stops + program_of("world.free(world.symmetric(8))", 2)])
    assert ended.code == 6, ended.output
    assert f"mgg: PE 0: waited 0.5 s for {said}\n" in ended.output, ended.output


RACE = """
    import collections, types
    from mgg.backend.gpu import stream_watch
    watch = world._watch
    class Marks(collections.deque):
        def __len__(self):
            found = super().__len__()
            if not watch._lock.locked():
                self.clear()  # as the other thread does
            return found
    watch._marks = Marks([stream_watch._Mark(types.SimpleNamespace(done=False), 'a test', None)])
    print(watch._blame(), flush=True)
    watch._marks = collections.deque()
"""


def test_marks_that_another_thread_drops_meanwhile_are_no_error():
    done = fails(RACE)
    assert done.returncode == 0 and "PE 0: waited 0.5 s for a test" in done.stdout, done.stderr


AWAY = (
    "import sys, time\nfrom mgg import layout\nfrom mgg.aggregate import prepare\nfrom mgg.backend import nvshmem\n"
    "from mgg.backend.mpi import abort\nfrom mgg.errors import MggError\n"
    "def program(world):\n"
    "    part, options = layout.load(sys.argv[1], world.rank), {'workgroup': int(sys.argv[3])}\n"
    "    plan = prepare(sys.argv[2], world, part, 'forward', 4, options)\n"
    "    plan(4)\n"
    "    time.sleep(60 * (world.rank == 3))\n"
    "    world.download(plan(4))\n"
    "try:\n    nvshmem.run(lambda: 4, program, timeout=5)\n"
    "except MggError as error:\n    print(error, flush=True)\n    abort(error.exit_code)\n"
)


@pytest.mark.parametrize(("technique", "members"), [("halo", 1), ("cola", 2)])
def test_a_pe_that_stays_away_from_a_product_between_hosts_is_named(tmp_path, technique, members):
    program = tmp_path / "program.py"
    program.write_text(AWAY)
    folder = make_layout(tmp_path, awkward_graphs()["directed"], 4)
    arguments = [FAKE, str(program), str(folder), technique, str(members)]
    ended = watched(4, arguments, FAKE_PES_A_HOST="2", FAKE_PATIENCE="1")
    assert ended.code == 6, ended.output
    ended.find(r"PE 3 did not reach|PE \d: waited 5 s for a signal from PE 3")


def test_a_signal_that_does_not_come_is_named():
    code = "world.rank or world.wait_signal(1); world.rank or world.download(world.upload(__import__('numpy').ones(1)))"
    done = fails(code, 2, FAKE_PATIENCE="0.3")
    assert "PeError False PE 0: waited 0.5 s for a signal from PE 1" in done.stdout


def test_a_blocked_host_does_not_keep_the_job():
    """The host waits where it cannot look at the clock, as in a call of CUDA that blocks."""
    waits = "world.rank or world.wait_signal(1); world.stream.synchronize(); time.sleep(60)"
    code = f"from mgg.backend.gpu import stream_watch as s; s._GRACE = 0.1; {waits}"
    done = fails(code, 2, FAKE_PATIENCE="0.3")
    assert done.returncode == 6
    assert "mgg: PE 0: waited 0.5 s for a signal from PE 1" in done.stderr


FULL = "full = lambda: world.upload(__import__('numpy').ones((4, 2), 'float32'))"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("world.broadcast(full(), 2)", "PE 1 did not reach the broadcast of PE 2 within 0.5 s"),
        ("world.shift(full(), full(), 1)", "PE 1 did not reach a shift within 0.5 s"),
        ("pair.broadcast(full(), 0)", "PE 0: waited 0.5 s for the broadcast of PE 0 in the team of PEs 0, 1"),
    ],
)
def test_a_pe_that_stays_away_from_nccl_is_named(call, said):
    code = (
        f"{FULL}; pair = world.team([2] if world.rank == 2 else [0, 1]); world.broadcast(full(), 0);"
        f" time.sleep(3 * (world.rank == 1)); {call}; world.download(full())"
    )
    done = fails(code, 3, FAKE_PATIENCE="0.3")
    assert f"PeError False {said};" in done.stdout, done.stdout + done.stderr


def test_a_pe_that_stays_away_from_the_start_of_nccl_is_named():
    done = fails(f"{FULL}; time.sleep(3 * (world.rank == 1)); world.broadcast(full(), 0)", 3)
    assert done.stdout.count("PeError False PE 1 did not reach a barrier within 0.5 s;") == 2, done.stdout


def test_a_host_that_nccl_blocks_does_not_keep_the_job():
    code = (
        "from mgg.backend.gpu import stream_watch as s; s._GRACE = 0.1; from cupy.cuda import nccl;"
        f" nccl.NcclCommunicator = lambda *_: time.sleep(60); {FULL}; world.broadcast(full(), 0)"
    )
    done = fails(code, 2)
    assert done.returncode == 6
    assert "waited 0.5 s for NCCL to start on PEs 0, 1" in done.stderr


def test_errors_of_nccl_are_one_line():
    done = fails(f"{FULL}; world.broadcast(full(), 1)", 2, FAKE_NCCL_ERROR="1")
    for pe in (0, 1):
        assert f"PeError False PE {pe}: the broadcast of PE 1 failed: NCCL_ERROR_REMOTE_ERROR" in done.stdout
    assert "found float64 of shape (4,)" in mpiexec(2, [FAKE, "-c", WRONG]).stdout


WRONG = (
    "import numpy as np\nfrom mgg.backend import nvshmem\n"
    "def program(world):\n    try:\n        world.broadcast(world.upload(np.ones(4)), 0)\n"
    "    except ValueError as error:\n        print(error, flush=True)\n"
    "nvshmem.run(lambda: 2, program)\n"
)


def test_without_nccl_one_pe_needs_none_and_two_are_told():
    code = f"{FULL}; world.broadcast(full(), 0); world.shift(full(), full(), 1); print('done', flush=True)"
    assert "done" in fails(code, 1, FAKE_NCCL="0").stdout
    said = "MachineError True NCCL is missing: pip install nvidia-nccl-cu13;"
    assert fails(code, 2, FAKE_NCCL="0").stdout.count(said) == 2


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_without_cupy_the_error_says_what_to_install():
    code = (
        "from mgg.backend import launch\nfrom mgg.errors import MachineError\n"
        "try:\n    launch('nvshmem', lambda: 1, print)\nexcept MachineError as error:\n    print(error)\n"
    )
    assert "pip install 'mgg[gpu]'" in mpiexec(1, ["-c", code]).stdout


def aggregated(folder, technique, *program, **environment):
    """What two ranks of ``mgg aggregate`` end with, and what they say."""
    arguments = ["aggregate", str(folder), "--technique", technique, "--dim", "4", "--backend", "nvshmem"]
    out = folder.parent / "records.jsonl"
    ended = watched(2, [*program, "-m", "mgg.cli", *arguments, "--out", str(out)], **environment)
    assert not out.exists()
    return ended.code, ended.output


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
@pytest.mark.parametrize("technique", ["mgg", "mgg_uvm"])
def test_without_cupy_a_job_says_so_once(tmp_path, technique):
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
def test_what_compiling_lacks_is_said_once(tmp_path, technique, environment, said):
    """Before anything is allocated or uploaded; each PE would come to its first kernel alone."""
    folder = make_layout(tmp_path, awkward_graphs()["directed"], 2)
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "nvshmem.h").touch()
    other_nvshmem(tmp_path / "other")
    environment = {name: value.format(home=tmp_path) for name, value in environment.items()}
    code, output = aggregated(folder, technique, FAKE, **environment)
    assert code == 3 and output.startswith(f"mgg: {said.format(home=tmp_path)}") and output.count("\n") == 1, output


def test_doctor_names_an_nvshmem_of_another_version(tmp_path):
    other_nvshmem(tmp_path)
    for home, said in (("", "3.4.5"), (tmp_path, "unusable: NVSHMEM's device library in")):
        environment = {"FAKE_NVSHMEM_HOME": str(home)} if home else {}
        done = mpiexec(1, [FAKE, "-m", "mgg.cli", "doctor", "--json"], **environment)
        told = json.loads(done.stdout)["NVSHMEM for kernels"]
        assert said in told and told.startswith("unusable") == bool(home), told


def test_what_one_rank_alone_lacks_names_it():
    code = (
        "from mpi4py import MPI\nimport mgg.backend as b\nfrom mgg.errors import MachineError\n"
        "b.not_installed = lambda module: 'no CuPy' if MPI.COMM_WORLD.rank == 1 else None\n"
        "try:\n    b.launch('nvshmem', lambda: 2, print)\n"
        "except MachineError as error:\n    print(f'{error.everywhere} {error};', flush=True)\n"
    )
    assert mpiexec(2, ["-c", code]).stdout.count("True PE 1: no CuPy;") == 2
