"""What a technique takes is predicted; PEs with too little memory, or with different layouts, are told at once."""

import threading
import tracemalloc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from support.devices.strict import StrictArray, StrictOperators, StrictWorld, empty
from support.graphs import make_layout, random_csr
from support.records.measured import swept

from mgg import layout
from mgg.aggregate import all_techniques, memory, parse_options, prepare, technique
from mgg.backend import simulated
from mgg.backend.machine import host_memory
from mgg.errors import NOT_ENOUGH_MEMORY, InputError, MachineError
from mgg.graph.csr import from_arcs
from mgg.layout.halo_matrix import selection


class CountingOperators(StrictOperators):
    """Accumulators as GPUs have them: float32."""

    def __init__(self, count):
        self._count = count

    def accumulator(self, rows, columns):
        return self._count(StrictArray(np.empty((rows, columns), np.float32)))

    def halo_kernel(self, schedule, sources, *others):
        for array in (schedule.indices, schedule.weights, sources):
            if array is not None:
                self._count(array)
        return super().halo_kernel(schedule, sources, *others)

    def cola_kernel(self, schedule, holders):
        for array in (schedule.begin, schedule.rows, schedule.weights, schedule.sources):
            if array is not None:
                self._count(array)
        return super().cola_kernel(schedule, holders)


class CountingWorld(StrictWorld):
    """Adds up the bytes of every device array that it hands out; input in host memory is none."""

    def __init__(self, world, free=None):
        super().__init__(world)
        self.held, self._free = 0, free
        self.xp = SimpleNamespace(empty=lambda *args: self._count(empty(*args)))
        self.operators = CountingOperators(self._count)

    def _count(self, array):
        self.held += array.nbytes
        return array

    def free_memory(self):
        return self._free

    def upload(self, array):
        return self._count(super().upload(array))

    def symmetric(self, elements, reach=None):
        array = super().symmetric(elements, reach)
        self.held += array.local.nbytes
        return array

    def managed(self, elements):
        array = super().managed(elements)
        self.held += (self.size - 1) * array.local.nbytes  # all of it may come to this GPU
        return array


def counted(world, folder, name, options, direction, dim):
    """Bytes that a plan and a product of it took on this PE, and the prediction of a PE that asks no other."""
    counting, part = CountingWorld(world), layout.load(folder, world.rank)
    plan = prepare(name, counting, part, direction, dim, options)
    plan(dim)
    case = memory.MemoryCase(part, direction, dim, parse_options(name, options), padded=technique(name).pitched)
    need = technique(name).need(case)
    return counting.held, need.total - need.schedules


#: Every technique on one PE and on several, and options that change which matrices there are.
PRODUCTS = [
    *((name, {}, pes) for name, plan in all_techniques().items() for pes in (1, 3) if pes == 1 or not plan.single_pe),
    ("broadcast", {"replication": 2}, 4),
    ("broadcast", {"grid": True}, 4),
    ("halo", {"workgroup": 1}, 3),
    ("halo", {"workgroup": 2}, 4),
    ("cola", {"workgroup": 2}, 4),
    ("dgcl", {"workgroup": 2}, 4),
]


@pytest.mark.parametrize(
    ("name", "options", "pes"),
    [
        *PRODUCTS,
        ("halo", {}, 2),
        ("cola", {"workgroup": 2, "coalesced": False}, 4),
        ("halo", {"boundary": 0.5}, 3),
        ("mgg", {"ps": 1}, 3),
        ("mgg", {"merge": True, "ps_remote": 8}, 3),
        ("mgg", {"neighbor_partition": False}, 3),
        ("seastar", {"arcs": "parallel", "rows": "sorted"}, 1),
    ],
)
def test_predicted_memory_equals_the_allocated(tmp_path, name, options, pes):
    folder = make_layout(tmp_path, random_csr(1_500, 30_000, weighted=bool(pes % 2)), pes)
    for direction, dim in (("forward", 1), ("transpose", 64), ("transpose", 5), ("forward", 65)):
        found = simulated.run(pes, lambda world: counted(world, folder, name, options, direction, dim))  # noqa: B023
        for held, predicted in found:
            assert abs(predicted - held) <= 0.2 * held, (f"{name}: Plan.need", direction, dim, predicted, held)


def uneven_csr(kind):
    """``rows``: one PE of 4 has nearly all arcs. ``columns``: one owns nearly all that is needed. ``sparse``: uniform,
    and no PE needs most of another's rows."""
    rng, nodes, arcs = np.random.default_rng(0), 2_000, 31_000
    anywhere = rng.integers(0, nodes, arcs)
    if kind == "sparse":
        return from_arcs(anywhere[:nodes], rng.integers(0, nodes, nodes), n=nodes)
    if kind == "columns":
        return from_arcs(anywhere, np.minimum((rng.pareto(1, arcs) * 20).astype(int), nodes - 1), n=nodes)
    return from_arcs(np.where(np.arange(arcs) < 30_000, anywhere // 4, anywhere), rng.integers(0, nodes, arcs), n=nodes)


KINDS = ["rows", "columns", "sparse"]


@pytest.mark.parametrize(
    ("name", "options", "pes", "kind"),
    [
        *(("halo", {"workgroup": members}, pes, kind) for members, pes in ((1, 4), (2, 4), (2, 8)) for kind in KINDS),
        *(("cola", {"workgroup": members}, pes, kind) for members, pes in ((1, 4), (4, 8)) for kind in KINDS),
        *(("halo", {"split": "cover"}, 4, kind) for kind in KINDS),
        ("halo", {"split": "cover", "workgroup": 1}, 4, "columns"),
        ("halo", {"split": "columns", "workgroup": 2}, 8, "rows"),
        ("halo", {"wire": "int8", "workgroup": 2}, 4, "rows"),
        ("halo", {"boundary": 0.5, "workgroup": 2}, 4, "columns"),
        ("cola", {"workgroup": 2, "fusion": False}, 4, "rows"),
    ],
)
def test_symmetric_memory_of_uneven_graphs_is_the_fullest_pes(tmp_path, name, options, pes, kind):
    """It is as large as the fullest PE's. PEs that ask each other know it; one that does not never says too little."""
    folder = make_layout(tmp_path, uneven_csr(kind), pes)

    def program(world, direction):
        part, plan, parsed = layout.load(folder, world.rank), technique(name), parse_options(name, options)
        predicted = plan.need(memory.case_of(StrictWorld(world), plan, part, direction, 65, parsed))
        return *counted(world, folder, name, options, direction, 65), predicted.total - predicted.schedules

    for direction in ("forward", "transpose"):
        for held, alone, predicted in simulated.run(pes, lambda world: program(world, direction)):  # noqa: B023
            assert abs(predicted - held) <= 0.05 * held, (direction, predicted, held)
            assert 0.95 * held <= alone <= 2 * held or {"split", "boundary"} & {*options}, (direction, alone, held)


def test_replicated_product_is_padded_to_the_largest_of_its_group(tmp_path):
    """The products that bring halos have as many rows as these: many on PE 0, few on its mate."""
    folder, plan = make_layout(tmp_path, uneven_csr("rows"), 4, scheme="equal_nodes"), technique("broadcast")
    parsed = parse_options("broadcast", {"replication": 2})

    def program(world):
        part = selection(layout.load(folder, world.rank))
        case = memory.case_of(StrictWorld(world), plan, part, "forward", 64, parsed)
        return part.forward.rows, plan.need(case).columns

    (most, _), (few, columns), *_ = simulated.run(4, program)
    assert most > 2 * few and columns >= 4 * 64 * (2 + 1) * most


def test_pes_exchange_sizes_before_refusing(tmp_path):
    """One that asks no other would refuse what fits."""
    folder, options = make_layout(tmp_path, uneven_csr("sparse"), 8), {"workgroup": 2}

    def program(world):
        held, alone = counted(world, folder, "halo", options, "forward", 64)
        free = (5 * held + alone) // 6
        prepare("halo", CountingWorld(world, free), layout.load(folder, world.rank), "forward", 64, options)
        with pytest.raises(MachineError, match="technique halo"):
            prepare("halo", CountingWorld(world, held // 2), layout.load(folder, world.rank), "forward", 64, options)
        return held < free < alone

    assert all(simulated.run(8, program))


class PeakWorld(StrictWorld):
    """Knows how many bytes of its uploads were alive at a time."""

    def __init__(self, world):
        super().__init__(world)
        self.alive = self.peak = 0

    def upload(self, array):
        made = super().upload(array)
        self._change(made.nbytes)
        weakref.finalize(made, self._change, -made.nbytes)
        return made

    def _change(self, size):
        self.alive += size
        self.peak = max(self.peak, self.alive)


def test_sweep_takes_the_memory_of_its_widest_product(tmp_path):
    folder, worlds = make_layout(tmp_path, random_csr(3_000, 60_000), 1), []
    for dims in ([64], [16, 32, 64]):
        swept(folder, 1, ["zero_copy"], dims, world_of=lambda world: worlds.append(PeakWorld(world)) or worlds[-1])
    assert worlds[0].peak == worlds[1].peak > 0


def test_alternating_widths_are_counted(tmp_path):
    """As in training, which has several of each plan."""
    part = layout.load(make_layout(tmp_path, random_csr(3_000, 60_000), 1), 0)

    def held(world):
        counting = PeakWorld(world)
        plan = prepare("zero_copy", counting, part, "forward", 64)
        found = []
        for dim in (64, 16, 32, 64, 16):
            plan(dim)
            found.append(counting.alive)
        return found

    found = simulated.run(1, held)[0]
    options = parse_options("zero_copy", {})
    needs = [
        technique("zero_copy").need(memory.MemoryCase(part, "forward", 64, options, "fp32", n)).arcs for n in (1, 2, 3)
    ]
    assert np.diff(found).tolist() == [*np.diff(needs), 0, 0] and needs[1] > needs[0]


def test_memory_of_cut_rows_is_predicted():
    from mgg.kernel.schedule import row_schedule

    lengths = np.random.default_rng(0).pareto(1.1, 300_000).astype(np.int64) * 40
    cut = row_schedule(np.concatenate(([0], np.cumsum(lengths))))
    arrays = (cut.begin, cut.target, cut.tasks, cut.split_rows, cut.split_first)
    taken = sum(array.nbytes for array in arrays) + 4 * 8 * cut.slots
    assert abs(memory.MemoryCase.cut(SimpleNamespace(dim=5), lengths) - taken) <= 0.2 * taken


@pytest.mark.parametrize(
    ("left", "named", "end"),
    [
        ({1: 54_321}, [1], ": use more PEs"),
        ({1: 54_321, 4: 1_000}, [1, 4], ": use more PEs"),
        ({pe: 3_000 * pe for pe in range(5)}, [0, 1, 2, 3], ", and 1 more PE: use more PEs"),
        ({0: 5_000, 1: 10**6, 2: 10, 3: 20, 4: 30, 5: 999_999}, [0, 2, 3, 4], ", and 2 more PEs: use more PEs"),
    ],
)
def test_refusal_names_each_pe_that_lacks_memory(tmp_path, left, named, end):
    """Of many those that lack the most; each PE needs something else."""
    graph = random_csr(200, 2_000)
    folder, options = make_layout(tmp_path, graph, 6), parse_options("halo", {})
    cases = [memory.MemoryCase(layout.load(folder, pe), "forward", 16_384, options, "fp32") for pe in range(6)]
    needs = [technique("halo").need(case).total for case in cases]
    assert len(set(needs)) == 6 and min(needs) > 10**6

    def act(world):
        counting = CountingWorld(world, left.get(world.rank, max(needs)))
        with pytest.raises(MachineError) as caught:
            prepare("halo", counting, layout.load(folder, world.rank), "forward", 16_384)
        prepare("halo", CountingWorld(world, max(needs)), layout.load(folder, world.rank), "forward", 16)
        assert caught.value.everywhere
        return str(caught.value)

    numbers = ", ".join(f"PE {pe} needs {needs[pe]} bytes of GPU memory and has {left[pe]} free" for pe in named)
    said = simulated.run(6, act)
    assert said == [said[0]] * 6 and "\n" not in said[0]
    assert said[0].startswith(f"technique halo at D = 16384 does not fit: {numbers}{end}"), said[0]


def least_of(folder, pes, name, dim, dtype="fp32", options=None):
    """What ``check_host`` says that the PEs of a job need together: of a host that has nothing left."""
    parsed, found = parse_options(name, options or {}), []

    def program(world):
        with pytest.raises(MachineError) as caught:
            part = layout.load(folder, world.rank)
            memory.check_host(world, technique(name), part, "forward", dim, parsed, dtype)
        found.append(str(caught.value))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_memory, "available", lambda: 0)
        simulated.run(pes, program)
    assert found == [found[0]] * pes
    return int(found[0].split(" bytes of memory")[0].rpartition(" ")[2])


@pytest.mark.parametrize(("name", "options", "pes"), PRODUCTS)
def test_cpu_pes_allocate_at_least_the_required_minimum(tmp_path, name, options, pes):
    """Else something would be refused that fits."""
    folder = make_layout(tmp_path, uneven_csr("sparse"), pes)
    for dtype in technique(name).dtypes:

        def program(world):
            plan = prepare(name, world, layout.load(folder, world.rank), "forward", 64, options, dtype)  # noqa: B023
            world.barrier()
            return plan(64)

        simulated.run(pes, program)  # what is compiled at the first use does not count
        tracemalloc.start()
        simulated.run(pes, program)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak >= least_of(folder, pes, name, 64, dtype, options) >= peak / 5


def test_host_without_enough_memory_is_refused_before_planning(tmp_path, monkeypatch):
    """Input, result, float64 sums and halo, of all PEs together."""
    csr = random_csr(200, 2_000)
    folder, made = make_layout(tmp_path, csr, 3), []
    halo = sum(layout.load(folder, pe).forward.halo for pe in range(3))
    needed = 16 * (200 * (4 + 4 + 8) + halo * 4)
    monkeypatch.setattr("mgg.aggregate.measure.prepare", lambda *given: made.append(given) or prepare(*given))
    monkeypatch.setattr(host_memory, "available", lambda: needed - 1)
    # The first words have the workflow ask for more.
    said = rf"^{NOT_ENOUGH_MEMORY}: halo, D = 16: technique halo at D = 16 does not fit: PEs 0, 1, 2 need at least"
    said += rf" {needed} bytes of memory and their host has {needed - 1} free: use more hosts, fewer columns or another"
    with pytest.raises(MachineError, match=said) as caught:
        swept(folder, 3, ["halo"], [16])
    assert caught.value.everywhere and caught.value.exit_code == 3 and not made
    monkeypatch.setattr(host_memory, "available", lambda: needed)
    assert len(swept(folder, 3, ["halo"], [16])[0][0]) == 1


def test_each_host_is_compared_with_its_own_pes(tmp_path, monkeypatch):
    """PE 2 has a host of its own, which is short."""
    folder = make_layout(tmp_path, random_csr(200, 2_000), 3)
    here = threading.local()

    def program(world):
        here.rank = world.rank
        with pytest.raises(MachineError) as caught:
            part = layout.load(folder, world.rank)
            memory.check_host(world, technique("ring"), part, "forward", 16, parse_options("ring", {}))
        return str(caught.value)

    monkeypatch.setattr(host_memory.platform, "node", lambda: f"host{here.rank // 2}")
    monkeypatch.setattr(host_memory, "available", lambda: 10**9 if here.rank < 2 else 5)
    said = simulated.run(3, program)
    assert said == [said[0]] * 3 and ": PE 2 needs at least " in said[0] and " and its host has 5 free: " in said[0]


class HeldWorld(StrictWorld):
    """Knows the symmetric arrays that are not free yet; refuses teams, and arrays after the first ``most``."""

    def __init__(self, world, most=9):
        super().__init__(world)
        self.made, self.held, self._most = 0, [], most

    def symmetric(self, elements, reach=None):
        if self.made == self._most:
            raise MachineError("no room").on_every_pe()
        self.made += 1
        self.held.append(super().symmetric(elements, reach))
        return self.held[-1]

    def free(self, array):
        self.held = [other for other in self.held if other is not array]
        super().free(array)

    def team(self, pes):
        raise MachineError("no teams").on_every_pe()


@pytest.mark.parametrize(
    ("name", "options", "said", "most", "made"),
    [
        ("mgg", {"primitive": "warp"}, "needs --backend nvshmem", 1, 0),
        ("broadcast", {"replication": 3}, "the square of 3 must divide", 1, 0),
        ("broadcast", {"replication": 2}, "no teams", 1, 1),
        ("cola", {"workgroup": 2}, "no room", 1, 1),
        *(("halo", {"workgroup": 2}, "no room", most, most) for most in range(5)),
    ],
)
def test_refused_plan_leaves_no_symmetric_array(tmp_path, name, options, said, most, made):
    """Refused before there are any, or when room ran out."""
    folder = make_layout(tmp_path, random_csr(200, 2_000), 4)

    def program(world):
        held = HeldWorld(world, most)
        held.shmem = name == "halo"
        with pytest.raises((InputError, MachineError), match=said):
            prepare(name, held, layout.load(folder, world.rank), "forward", 4, options)
        return held.made, len(held.held)

    assert simulated.run(4, program) == [(made, 0)] * 4


@pytest.mark.parametrize(("members", "arrays"), [(4, 2), (2, 5), (1, 5)])
def test_closed_plan_leaves_no_symmetric_array(tmp_path, members, arrays):
    """The input and flags; with workgroups mailboxes, an outbox and flags for these, too."""
    folder = make_layout(tmp_path, random_csr(200, 2_000), 4)

    def program(world):
        held = HeldWorld(world)
        plan = prepare("halo", held, layout.load(folder, world.rank), "forward", 4, {"workgroup": members})
        before = len(held.held)
        plan.close()
        return before, len(held.held)

    assert simulated.run(4, program) == [(arrays, 0)] * 4


def refused(pes, load):
    def act(world):
        with pytest.raises(InputError) as caught:
            prepare("halo", world, load(world), "forward", 4)
        assert caught.value.everywhere
        return str(caught.value)

    said = simulated.run(pes, act)
    assert said == [said[0]] * pes
    return said[0]


def test_pes_with_different_layouts_are_refused(tmp_path):
    one = make_layout(tmp_path / "one", random_csr(200, 2_000), 2)
    other = make_layout(tmp_path / "other", random_csr(200, 2_000, seed=1), 2)
    wider = make_layout(tmp_path / "one", random_csr(200, 2_000), 3)
    said = refused(2, lambda world: layout.load(other if world.rank else one, world.rank))
    assert said.startswith("PE 1 got another layout than PE 0: test (graph ")
    assert layout.read_manifest(one).graph_hash[:12] in said and layout.read_manifest(other).graph_hash[:12] in said
    said = refused(2, lambda world: layout.load(wider if world.rank else one, world.rank))
    assert "3 PEs" in said and "2 PEs" in said
    assert refused(2, lambda world: layout.load(wider, world.rank)) == "the layout is for 3 PEs and the job has 2"
    assert refused(2, lambda world: layout.load(one, 0)) == "PE 1 got the part of PE 0"
