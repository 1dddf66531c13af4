"""PEs with GPUs as threads of one process, and memory that GPUs share, on a host without any: stand-ins for CuPy."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.graphs import awkward_graphs, make_layout, random_csr
from support.products import simulated_bytes, worst, wrong_bytes
from support.ranks import changed_environment, mpiexec
from support.spmm_program import VARIANTS

from mgg import layout
from mgg.aggregate import all_techniques, parse_options, technique
from mgg.aggregate.memory_model import Case
from mgg.record import AggregateRecord, read_lines

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[1] / "support"
FAKE = str(SUPPORT / "fake_gpu" / "run.py")
GRAPHS = awkward_graphs()


def fake(*arguments: str, **changes: str) -> subprocess.CompletedProcess:
    """One process with the stand-ins."""
    return subprocess.run(
        [sys.executable, FAKE, *arguments],
        env=changed_environment(changes),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def threads(size: int, code: str, devices: list[int] | None = None, **environment: str) -> subprocess.CompletedProcess:
    """Threads that run ``code``, lines of a program of ``world``; an error is printed with its type."""
    lines = "\n    ".join(code.splitlines())
    return fake(
        "-c",
        "import time, threading\nimport numpy as np\nfrom mgg.backend import threads\nfrom mgg.errors import MggError\n"
        f"def program(world):\n    {lines}\n"
        f"try:\n    print(threads.run({size}, program, {devices}, timeout=1))\n"
        "except MggError as error:\n    print(f'{type(error).__name__} {error.everywhere} {error};', flush=True)\n",
        **environment,
    )


@pytest.mark.parametrize(
    ("size", "devices"), [(1, None), pytest.param(3, None, marks=pytest.mark.sentinel), (5, [1]), (4, [2, 0])]
)
def test_the_world_keeps_its_promises(size, devices):
    done = threads(size, "from support.world_program import program as all_of_it\nreturn all_of_it(world)", devices)
    assert done.stdout.strip() == str(["ok"] * size), done.stdout + done.stderr


def test_handles_of_cublas_go_with_the_world():
    code = """
from mgg.kernel.cuda import cublas
x = world.upload(np.ones((3, 3), np.float32))
for _ in range(2):
    cublas.product(x, x)
world.barrier()
found = cublas._library().live
world.barrier()
return found"""
    done = threads(2, code, [0])
    assert done.stdout.strip() == "[2, 2]", done.stdout + done.stderr
    done = fake("-c", "\n".join([
        "import numpy as np", "from mgg.backend import threads", "from mgg.kernel.cuda import cublas",
        "def program(world):", "    x = world.upload(np.ones((3, 3), np.float32))", "    cublas.product(x, x)",
        "threads.run(3, program)", "print(cublas._library().live)",
    ]))  # fmt: skip
    assert done.stdout.strip() == "0", done.stdout + done.stderr


@pytest.mark.parametrize(("error", "said"), [("RuntimeError", 1), ("NotRecordedError", 0)])
def test_a_graph_that_cannot_be_made_is_said_once(error, said):
    """The library's errors are, since nobody expects them; what graphs are known to refuse is not."""
    code = f"""
from mgg.backend.gpu.graphs import NotRecordedError
from support import device
def work(given):
    if device.capturing():
        raise {error}("of its own")
    return given + 1, None
for _ in range(2):
    one = world.repeated(work, 1)
    for number in range(4):
        one.submit(np.array([float(number)]))
        assert one.result() == number + 1
return 0"""
    done = threads(1, code)
    assert done.stdout.strip() == "[0]", done.stdout + done.stderr
    line = "no CUDA graph, so work is submitted step by step: of its own"
    assert done.stderr.count(line) == said


def test_pes_take_the_gpus_in_turn():
    done = threads(5, "return world.device, world.name, world.gpu, world.shmem", [3, 1])
    assert done.stdout.strip() == str([(device, "simulated", "Fake H200", False) for device in (3, 1, 3, 1, 3)])


@pytest.mark.parametrize("kind", ["managed", "host_symmetric"])
def test_copies_are_parts_of_one_piece_of_memory(kind):
    code = f"""
array = world.{kind}(6)
assert not world.download(array.whole).any()
world.barrier()
array.local.fill(world.rank + 1)
world.barrier()
assert world.download(array.whole).tolist() == [1.0] * 6 + [2.0] * 6 + [3.0] * 6
assert all((world.download(array.peers[pe]) == pe + 1).all() for pe in range(3))
world.barrier()
world.free(array)
from cupy.cuda import memory
world.barrier()
return len(memory.registered)"""
    done = threads(3, code)
    assert done.stdout.strip() == "[0, 0, 0]", done.stdout + done.stderr


@pytest.mark.mpi
def test_ranks_share_host_memory_and_leave_nothing_behind():
    code = (
        "from mgg.backend import nvshmem\nfrom cupy.cuda import memory\n"
        "def mapped():\n"
        "    return [line.split()[5:] for line in open('/proc/self/maps') if '/dev/shm/mgg-' in line]\n"
        "def program(world):\n"
        "    array, kept = world.host_symmetric(6), world.host_symmetric(0)\n"
        "    assert mapped() and all(words[1:] == ['(deleted)'] for words in mapped()), mapped()\n"
        "    array.local.fill(world.rank + 1)\n    world.barrier()\n"
        "    assert world.download(array.whole).tolist() == [1.0] * 6 + [2.0] * 6 + [3.0] * 6\n"
        "    world.free(array)\n    assert len(memory.registered) == 1\n"
        "nvshmem.run(lambda: 3, program)\nprint(f'closed {len(memory.registered)} {len(mapped())};', flush=True)\n"
    )
    done = mpiexec(3, [FAKE, "-c", code])
    assert done.stdout.count("closed 0 0;") == 3, done.stdout + done.stderr


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        # PE 1 alone cannot lock its pages: what the others have locked and mapped they give back.
        (
            "cuda.runtime.hostRegister = refuse if world.rank == 1 else cuda.runtime.hostRegister",
            "240 bytes of host memory cannot be page-locked",
        ),
        ("pinned.SHARED_MEMORY = pathlib.Path('/none')", "/none: PEs cannot share memory there: No such file"),
        ("os.posix_fallocate = refuse", "/dev/shm has "),
    ],
)
def test_host_memory_that_ranks_cannot_share_is_one_line_and_stays_with_nobody(harm, said):
    code = (
        "import os, pathlib\nfrom cupy import cuda\nfrom cupy.cuda import memory\n"
        "from mgg.backend import nvshmem\nfrom mgg.backend.gpu import pinned\nfrom mgg.errors import MachineError\n"
        "class Refused(cuda.runtime.CUDARuntimeError, OSError):\n    pass\n"
        "def refuse(*_):\n    raise Refused('no')\n"
        "def program(world):\n"
        f"    {harm}\n"
        "    try:\n        world.host_symmetric(20)\n"
        "    except MachineError as error:\n"
        "        left = [line for line in open('/proc/self/maps') if '/dev/shm/mgg-' in line]\n"
        "        print(f'{error.everywhere} {len(memory.registered)} {len(left)} {error};', flush=True)\n"
        "nvshmem.run(lambda: 3, program)\n"
    )
    before = set(Path("/dev/shm").glob("mgg-*"))
    done = mpiexec(3, [FAKE, "-c", code])
    assert done.stdout.count(f"True 0 0 {said}") == 3, done.stdout + done.stderr
    assert done.stdout.count("which it refuses: no: enlarge it") == 3 * ("fallocate" in harm)
    assert set(Path("/dev/shm").glob("mgg-*")) <= before


@pytest.mark.parametrize("pes", [1, pytest.param(2, marks=pytest.mark.sentinel), 4])
def test_products_and_bytes(tmp_path, pes):
    """Every technique that runs without NVSHMEM, on one GPU and on several."""
    names = ("weighted", "empty rows", "no arcs", "more PEs than nodes", "directed")
    folders = [make_layout(tmp_path / str(number), GRAPHS[name], pes) for number, name in enumerate(names)]
    for gpus in ("1", "4"):
        done = fake(
            str(SUPPORT / "spmm_program.py"), f"threads:{pes}", str(tmp_path), *map(str, folders), FAKE_GPUS=gpus
        )
        assert done.returncode == 0, done.stderr
        for number, name in enumerate(names):
            parts = [dict(np.load(tmp_path / f"{number}-{pe}.npz")) for pe in range(pes)]
            assert {"mgg_uvm", "zero_copy", "halo"} <= {key.split(" ")[0] for key in parts[0]}
            assert worst(GRAPHS[name], parts) <= (1e-6,), name
            found = [json.loads((tmp_path / f"{number}-{pe}.json").read_text()) for pe in range(pes)]
            assert not wrong_bytes(simulated_bytes(folders[number], pes), found), name


@pytest.mark.parametrize("pes", [1, 4])
def test_products_and_bytes_of_every_variant(tmp_path, pes):
    """On one PE of those in bf16, which the others run on several; each is run with one number of PEs at least."""
    folder, bf16 = make_layout(tmp_path, GRAPHS["weighted"], pes), {"local:bf16", "halo:bf16", "halo:1-bf16"}
    done = fake(str(SUPPORT / "spmm_program.py"), f"threads:{pes}", str(tmp_path), "--variants", str(folder))
    assert done.returncode == 0, done.stderr
    parts = [dict(np.load(tmp_path / f"0-{pe}.npz")) for pe in range(pes)]
    labels = {key.split(" ")[0] for key in parts[0]}
    every = {label for label, (_, options, _) in VARIANTS.items() if "primitive" not in options}
    alone = {label for label in every if all_techniques()[VARIANTS[label].technique].single_pe}
    assert labels >= (bf16 | alone if pes == 1 else every - alone)
    assert worst(GRAPHS["weighted"], parts) <= (1e-6,) and worst(GRAPHS["weighted"], parts, "bf16") <= (1e-5,)
    found = [json.loads((tmp_path / f"0-{pe}.json").read_text()) for pe in range(pes)]
    assert not wrong_bytes(simulated_bytes(folder, pes, labels), found)


@pytest.mark.parametrize(
    ("code", "environment", "said"),
    [
        ("world.symmetric(1000)", {"FAKE_FREE": "7000"}, "on each PE does not fit: PE 0 needs 4000 bytes"),
        ("world.symmetric(10 + world.rank)", {}, "the PEs ask for symmetric arrays of 40 to 44 bytes"),
        ("world.managed(1000)", {"FAKE_FREE": "7000"}, "PE 0: 8000 bytes of unified memory are needed"),
        ("world.host_symmetric(1000)", {"FAKE_LOCKABLE": "100"}, "8000 bytes of host memory cannot be page-locked"),
        ("world.host_symmetric(2**44)", {}, "not enough memory: 140737488355328 bytes of host memory are needed and"),
        ("pass", {"FAKE_P2P": "0"}, "GPU 0 cannot address GPU 1: P2P is off"),
        ("pass", {"FAKE_GPUS": "0"}, "no GPU to use"),
    ],
)
def test_what_is_missing_is_one_line(code, environment, said):
    # The two PEs share GPU 0, but where GPUs have to address each other.
    done = threads(2, code, None if "P2P" in said or "no GPU" in said else [0], **environment)
    assert "Error True " in done.stdout and said in done.stdout, done.stdout + done.stderr


def test_each_pe_whose_gpu_is_full_is_said_with_its_own_numbers():
    """GPUs that three PEs, two and one share."""
    done = threads(6, "world.symmetric(2_000)", [0, 0, 0, 1, 1, 2], FAKE_FREE="12000")
    said = "Error True a symmetric array of 8000 bytes on each PE does not fit: "
    said += "".join(f"PE {pe} needs 8000 bytes of GPU memory and has 4000 free, " for pe in range(3))
    said += "PE 3 needs 8000 bytes of GPU memory and has 6000 free, and 1 more PE: use more PEs or fewer columns;"
    assert said in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(("has", "told"), [(10_000, True), (100_000, False)])
def test_too_little_shared_memory_is_said_on_pes_without_arcs_too(has, told):
    """PE 0 has arcs, PE 1 rows alone, PE 2 not even these, and so no padding that tells how its rows are aligned."""
    code = f"""
from types import SimpleNamespace
from mgg.errors import InputError
from mgg.kernel.cuda import CudaOperators
from mgg.layout.neighbors import NeighborPartitions
launched = []
operators = SimpleNamespace(shared_memory={has}, kernel=lambda *_: lambda *_, **__: launched.append(1))
count = 3 if world.rank == 0 else 0
parts = NeighborPartitions(*(world.upload(np.arange(count)) for _ in range(3)))
own = world.xp.empty((4, 44), np.float32)[:, :41]
rows = world.xp.empty((0 if world.rank == 2 else 4, 44), np.float32)[:, :41]
ids, peers = world.upload(np.zeros(count, np.int32)), world.upload(np.zeros(3, np.uint64))
try:
    CudaOperators.mgg(operators, parts, ids, None, parts, peers, None, own, peers, rows, ps=32, dist=16, wpb=4)
except InputError as error:
    return error.everywhere, str(error)
return len(launched)
"""
    done = threads(3, code)
    said = "MGG's kernel: ps = 32, wpb = 4, D = 41 take 18432 bytes of shared memory a block (equation 1), this GPU has"
    expected = [(True, f"{said} 10000: lower wpb")] * 3 if told else [1, 0, 0]
    assert done.stdout.strip() == str(expected), done.stdout + done.stderr


def test_a_pe_that_stays_away_is_named():
    done = threads(3, "time.sleep(3 * (world.rank == 1))\nworld.barrier()")
    assert "PeError False PE 1 did not reach a barrier within 1 s;" in done.stdout


def test_a_gpu_that_does_not_finish_is_said():
    done = threads(1, "from cupy.cuda import state\nstate.stuck = True\nworld.download(world.upload(np.ones(1)))")
    assert "PeError False PE 0: its GPU did not finish within 1 s;" in done.stdout


def test_a_failing_pe_ends_those_that_wait_for_their_gpu():
    code = """
from cupy.cuda import state
from mgg.errors import InputError
state.stuck = True
if world.rank:
    raise InputError("broken")
world._timeout = 60
world.download(world.upload(np.ones(1)))"""
    assert "InputError False broken;" in threads(2, code).stdout


# --- mgg aggregate


def aggregate(folder: Path, out: Path, ranks: int, *arguments: str, **environment: str):
    given = ["aggregate", str(folder), "--iterations", "2", "--out", str(out), *arguments]
    given += [] if "--dim" in arguments else ["--dim", "3,8"]
    code = f"import sys\nfrom mgg.cli import main\nsys.argv = ['mgg', *{given!r}]\nmain()"
    return mpiexec(ranks, [FAKE, "-c", code], **environment) if ranks else fake("-c", code, **environment)


@pytest.fixture
def folder(tmp_path):
    return make_layout(tmp_path, random_csr(200, 2_000, weighted=True), 2)


@pytest.mark.mpi
def test_one_job_measures_ranks_and_threads(folder, tmp_path):
    done = aggregate(folder, tmp_path / "out.jsonl", 2, "--technique", "mgg_uvm,halo,zero_copy")
    assert done.returncode == 0, done.stderr
    records = read_lines(tmp_path / "out.jsonl", AggregateRecord)
    ran = [(record.technique, record.backend) for record in records[::2]]
    assert ran == [("halo", "nvshmem"), ("zero_copy", "nvshmem"), ("mgg_uvm", "simulated")]
    for record in records:
        assert record.pes == 2 and record.machine.gpus == ["Fake H200"] * 2 and record.error <= 1e-6
        assert record.bytes_wire == (record.v_fc if record.technique == "halo" else record.v_fr)
    assert done.stdout.count("mgg_uvm forward: D=8") == 1


def test_without_a_launcher_unified_memory_takes_the_gpus(folder, tmp_path):
    out = tmp_path / "out.jsonl"
    for asked, environment, gpus in (
        ("mgg_uvm", {}, 2),
        ("mgg_uvm", {"FAKE_GPUS": "1"}, 0),
        ("mgg_uvm,halo", {}, 0),
    ):
        done = aggregate(folder, out, 0, "--technique", asked, "--replace", **environment)
        assert done.returncode == 0, done.stderr
        for record in read_lines(out, AggregateRecord):
            assert record.backend == "simulated" and len(record.machine.gpus) == gpus


@pytest.mark.mpi
def test_what_unified_memory_cannot_hold_is_left_out_or_one_line(folder, tmp_path):
    out = tmp_path / "out.jsonl"
    needs = {
        name: [
            technique(name).need(Case(layout.load(folder, pe), "forward", 64, parse_options(name, {}), "fp32")).total
            for pe in range(2)
        ]
        for name in ("zero_copy", "mgg_uvm")
    }
    # Between what the one takes on either PE and the other on both.
    assert max(needs["zero_copy"]) < min(needs["mgg_uvm"])
    between = {"FAKE_FREE": str((max(needs["zero_copy"]) + min(needs["mgg_uvm"])) // 2)}
    both = aggregate(folder, out, 2, "--technique", "mgg_uvm,zero_copy", "--dim", "64", **between)
    assert both.returncode == 0 and both.stderr.count("not measured: mgg_uvm, D = 64") == 1, both.stderr
    assert [record.technique for record in read_lines(out, AggregateRecord)] == ["zero_copy"]
    out.unlink()
    alone = aggregate(folder, out, 2, "--technique", "mgg_uvm", "--dim", "64", **between)
    assert alone.returncode == 3 and alone.stderr.count("mgg: ") == 1 and not out.exists()
    for pe, needed in enumerate(needs["mgg_uvm"]):
        assert f"PE {pe} needs {needed} bytes of GPU memory and has {between['FAKE_FREE']} free" in alone.stderr


def test_unified_memory_of_all_pes_fits_a_gpu_beside_what_its_pe_has(folder, tmp_path):
    """All pages may come to one GPU, which has its layout and result already."""
    part = layout.load(folder, 0)
    need = technique("mgg_uvm").need(Case(part, "forward", 64, parse_options("mgg_uvm", {}), "fp32"))
    rows = int(np.diff(part.bounds).max())
    assert need.columns + need.guests == 4 * 64 * (2 * rows + part.rows)
    out, free = tmp_path / "out.jsonl", need.total - need.guests // 2
    assert free > 4 * 64 * 2 * rows, "unified memory alone would fit"
    done = aggregate(folder, out, 0, "--technique", "mgg_uvm", "--dim", "64", FAKE_FREE=str(free))
    assert done.returncode == 3 and f"needs {need.total} bytes of GPU memory and has {free} free" in done.stderr
    assert not out.exists()
    done = aggregate(folder, out, 0, "--technique", "mgg_uvm", "--dim", "64", FAKE_FREE=str(2 * need.total))
    assert done.returncode == 0, done.stderr


@pytest.mark.mpi
def test_other_ranks_than_pes_and_hidden_gpus_are_one_line(folder, tmp_path):
    out = tmp_path / "out.jsonl"
    other = aggregate(folder, out, 3, "--technique", "mgg_uvm")
    assert other.returncode == 2 and other.stderr.count("this layout is for 2 PEs but the job has 3") == 1
    hidden = aggregate(folder, out, 2, "--technique", "mgg_uvm", "--backend", "nvshmem", FAKE_GPUS="1")
    assert hidden.returncode == 3 and hidden.stderr.count("2 PEs in one process need 2 GPUs and it sees 1") == 1
    assert not out.exists()


@pytest.mark.mpi
def test_training_over_unified_memory_of_several_ranks_is_refused(folder):
    code = (
        "from mgg import layout\nfrom mgg.aggregate import prepare\nfrom mgg.backend import nvshmem\n"
        "from mgg.errors import InputError\n"
        "def program(world):\n"
        f"    prepare('mgg_uvm', world, layout.load({str(folder)!r}, world.rank), 'forward', 4)\n"
        "try:\n    nvshmem.run(lambda: 2, program)\n"
        "except InputError as error:\n    print(f'{error.everywhere} {error};\\n', end='', flush=True)\n"
    )
    done = mpiexec(2, [FAKE, "-c", code])
    assert done.stdout.count("True unified memory belongs to one process, and this job has 2") == 2, done.stderr
