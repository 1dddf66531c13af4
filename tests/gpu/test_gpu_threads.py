"""PEs as threads of one process on GPUs: several PEs on one GPU, unified memory, and the prediction of memory."""

import json

import pytest
from support.devices.gpus import taken
from support.graphs import awkward_graphs, make_layout, random_csr
from support.graphs.checked_products import check, check_same_bits
from support.programs import spmm_program
from support.ranks import succeeded

from mgg.aggregate import all_techniques
from mgg.records import AggregateRecord, read_lines

GRAPHS = awkward_graphs()

pytestmark = pytest.mark.gpu


def on_one_gpu(threads: int, code: str) -> str:
    """The output of PEs as threads on GPU 0 that run ``code``, a program that uses ``world``."""
    program = (
        "import cupy\nimport numpy as np\nfrom mgg.backend import threads\nfrom mgg.errors import MggError\n"
        f"def program(world):\n    {code}\n"
        f"try:\n    print(threads.run({threads}, program, [0], timeout=60))\n"
        "except MggError as error:\n    print(f'{type(error).__name__} {error};', flush=True)\n"
    )
    done = succeeded(1, ["-c", program])
    return done.stdout.splitlines()[0]  # Open MPI adds an escape sequence to the end


@pytest.mark.parametrize("threads", [1, 3])
def test_world_methods_do_as_documented(threads):
    code = "from support.programs import world_program; return world_program.program(world)"
    assert on_one_gpu(threads, code) == str(["ok"] * threads)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_products_and_bytes_of_threads_on_one_gpu(tmp_path, threads):
    folders = [make_layout(tmp_path / str(number), csr, threads) for number, csr in enumerate(GRAPHS.values())]
    arguments = [spmm_program.__file__, f"threads:{threads}", str(tmp_path), *map(str, folders)]
    succeeded(1, arguments, CUDA_VISIBLE_DEVICES="0")
    wanted = {name for name, plan in all_techniques().items() if threads == 1 or not plan.single_pe}
    for number, (csr, folder) in enumerate(zip(GRAPHS.values(), folders, strict=True)):
        check(tmp_path, number, csr, folder, threads, wanted)


def test_deterministic_techniques_give_the_same_bits(tmp_path):
    folder = make_layout(tmp_path, random_csr(500, 10_000, weighted=True), 4)
    succeeded(1, [spmm_program.__file__, "threads:4", str(tmp_path), str(folder), str(folder)])
    check_same_bits(tmp_path, 4)


@pytest.mark.parametrize("technique", [name for name, plan in all_techniques().items() if not plan.single_pe])
def test_predicted_memory_is_within_a_fifth_of_actual(tmp_path, technique):
    """Two PEs on one GPU; memory that the first run keeps (kernels, contexts) does not count."""
    folder = make_layout(tmp_path, random_csr(400_000, 8_000_000, weighted=True), 2)
    code = f"""from mgg import layout
    from mgg.aggregate import parse_options, prepare, technique
    from mgg.aggregate.memory_model import MemoryCase
    part, options = layout.load({str(folder)!r}, world.rank), parse_options({technique!r}, {{}})
    need = technique({technique!r}).need(MemoryCase(part, "forward", 64, options, "fp32"))
    taken = []
    for _ in range(2):
        world.gather(None)
        cupy.get_default_memory_pool().free_all_blocks()
        world.gather(None)
        before = cupy.cuda.runtime.memGetInfo()[0]
        world.gather(None)
        plan = prepare({technique!r}, world, part, "forward", 64)
        plan.input(64).fill(1)
        result = plan(64)
        world.download(result[:1])
        world.gather(None)
        taken.append(before - cupy.cuda.runtime.memGetInfo()[0])
        world.gather(None)
        plan.close()
        del plan, result
    return need.total - need.guests, taken[-1]"""  # who shares a GPU has no guests
    found = json.loads(on_one_gpu(2, code).replace("(", "[").replace(")", "]"))
    predicted, taken = sum(need for need, _ in found), found[0][1]
    assert abs(predicted - taken) <= 0.2 * taken, (predicted, taken)


def test_unified_memory_beyond_the_gpu_is_refused():
    output = on_one_gpu(2, "world.managed(2**37)")
    assert output.startswith("MachineError PE 0: 1099511627776 bytes of unified memory are needed, ")


@pytest.mark.gpu(2)
def test_one_job_measures_ranks_and_threads(tmp_path):
    folder, out = make_layout(tmp_path, random_csr(2_000, 30_000), 2), tmp_path / "records.jsonl"
    arguments = ["aggregate", str(folder), "--technique", "mgg_uvm,mgg,zero_copy", "--dim", "16,41"]
    succeeded(2, ["-m", "mgg.cli", *arguments, "--iterations", "3", "--out", str(out)])
    records = read_lines(out, AggregateRecord)
    ran = [(record.technique, record.backend) for record in records[::2]]
    assert ran == [("mgg", "nvshmem"), ("zero_copy", "nvshmem"), ("mgg_uvm", "simulated")]
    for record in records:
        assert len(record.machine.gpus) == taken(2) and 0 < record.error <= 1e-6 and min(record.seconds) > 0
        assert record.bytes_wire == record.v_fr
