"""What is measured and how: records, checks, launches on plans prepared anew, their statistics by hand."""

from collections import Counter
from threading import get_ident
from types import SimpleNamespace

import numpy as np
import pytest
from support.devices.strict import StrictWorld
from support.graphs import make_layout, random_csr
from support.records.measured import record, swept

from mgg import layout
from mgg.aggregate import all_techniques, measure, oracle, technique
from mgg.aggregate.measure import TimingProtocol, timed
from mgg.backend import simulated
from mgg.errors import CheckError, MachineError
from mgg.kernel import cpu

CSR = random_csr(60, 500, weighted=True)


@pytest.fixture
def folder(tmp_path):
    return make_layout(tmp_path, random_csr(200, 2_000, weighted=True), 3)


def test_records_describe_the_measurement(folder):
    every = swept(folder, 3, ["halo"], [3, 16], iterations=4)
    assert all(found == every[0] for found in every)
    [(first, second), _] = every[0]
    assert (first.dim, second.dim) == (3, 16) and first.pes == 3 and first.backend == "simulated"
    assert len(first.seconds) == 4 and min(first.seconds) > 0
    assert first.q1 <= first.median <= first.q3 and first.median == pytest.approx(np.median(first.seconds))
    assert first.bytes_wire == first.v_fc == sum(first.bytes_per_pe) > 0
    assert first.v_fc <= first.v_fr and first.tolerance == 1e-6 and 0 < first.error <= 1e-6
    assert second.bytes_wire * 3 == first.bytes_wire * 16
    unchecked = record(folder, 3, "halo", 3, check=False)
    assert unchecked.error is None and unchecked.tolerance is None


def test_bf16_halves_the_bytes_and_widens_the_tolerance(tmp_path):
    assert [name for name, plan in all_techniques().items() if "bf16" in plan.dtypes] == ["halo", "local"]
    folder = make_layout(tmp_path, random_csr(300, 4_000), 3)
    wide, narrow = swept(folder, 3, ["halo"], [5], dtypes=["fp32", "bf16"])[0][0]
    assert narrow.bytes_wire * 2 == wide.bytes_wire == narrow.v_fc * 2 == wide.v_fc
    assert narrow.dtype == "bf16" and narrow.tolerance == 1e-2
    assert wide.error < 1e-6 < narrow.error < 1e-2


@pytest.mark.parametrize("name", [name for name, plan in all_techniques().items() if not plan.single_pe])
def test_host_and_device_arrays_are_not_mixed(folder, name):
    [(first, second), _] = swept(folder, 3, [name], [3, 16], world_of=StrictWorld, direction="transpose", warmup=1)[0]
    assert first.error <= 1e-6 and second.error <= 1e-6
    assert first.machine.gpus == ["strict"] * 3


def test_records_name_the_workgroup(folder):
    """The partition's is 8, more than there are PEs."""
    asked = [("halo", {}), ("halo", {"workgroup": 1}), ("mgg", {})]
    assert [each.workgroup for each in swept(folder, 3, asked, [3])[0][0]] == [3, 1, None]


@pytest.mark.parametrize("direction", ["forward", "transpose"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_records_count_bytes_between_workgroups(tmp_path, direction, dtype):
    """Each row once a workgroup that needs it, without fusion once a PE of another one."""
    csr, dim = random_csr(200, 2_000, weighted=True), 6
    folder = make_layout(tmp_path, csr, 4)
    rows = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    ends = [rows, csr.indices] if direction == "forward" else [csr.indices, rows]
    target, source = (np.minimum(each // 50, 3) for each in ends)
    crossing, row = target // 2 != source // 2, dim * (2 if dtype == "bf16" else 4)
    fused, single = (
        len(np.unique(np.stack([who, ends[1]])[:, crossing], axis=1).T) * row for who in (target // 2, target)
    )
    assert fused < single

    def fields(name, **options):
        found = record(folder, 4, name, dim, options=options, direction=direction, dtypes=[dtype], iterations=2)
        assert found.bytes_between is None or 0 < found.bytes_between <= found.bytes_wire
        return found.workgroup, found.bytes_between, found.vi_fc, found.vi_cola

    assert fields("halo", workgroup=2) == (2, fused, single, fused)
    assert fields("halo", workgroup=4) == (4, None, None, None)
    if dtype == "fp32":
        assert fields("cola", workgroup=2) == fields("cola", workgroup=2, coalesced=False) == (2, fused, single, fused)
        assert fields("cola", workgroup=2, fusion=False) == (2, single, single, fused)
        assert fields("mgg") == (None, None, None, None)


class ScriptedWorld:
    """A World whose clock tells ``seconds`` one after the other; ``calls`` are what it and a product were asked for."""

    def __init__(self, world, seconds):
        self._world, self._left, self.calls = world, iter(seconds), []

    def __getattr__(self, name):
        return getattr(self._world, name)

    def barrier(self):
        self.calls.append("barrier")
        self._world.barrier()

    def clock(self):
        return SimpleNamespace(start=lambda: self.calls.append("start"), stop=self._stop)

    def _stop(self):
        self.calls.append("stop")
        return next(self._left)


def test_product_seconds_are_those_of_the_slowest_pe():
    """In each product another PE is the slowest; what is done untimed asks for nothing."""
    seconds = [[1.0, 5.0, 2.0], [4.0, 2.0, 2.5], [3.0, 3.0, 6.0]]

    def program(world):
        scripted = ScriptedWorld(world, seconds[world.rank])

        def plan(dim, out):
            scripted.calls.append((dim, out.shape))

        plan.layout = SimpleNamespace(rows=7)
        return timed(scripted, plan, 4, TimingProtocol("forward", warmup=2, iterations=3, check=False)), scripted.calls

    product = (4, (7, 4))
    for found, calls in simulated.run(3, program):
        assert found == ([4.0, 5.0, 6.0], [0, 0, 0])
        assert calls == [product] * 2 + ["barrier", "start", product, "stop"] * 3


@pytest.mark.parametrize("built", [True, False])
def test_gpu_out_of_memory_skips_one_width(tmp_path, monkeypatch, built):
    """CuPy's error is a MemoryError; while a plan is built, or in a product."""
    full = type("OutOfMemoryError", (MemoryError,), {"__module__": "cupy.cuda.memory"})

    def short(of):
        def made(*arguments):
            if (arguments[0].max_dim if built else arguments[4].shape[1]) == 16:
                raise full("512 bytes")
            return of(*arguments)

        return made

    place, name = (technique("local"), "_build") if built else (cpu, "spmm_rows")
    monkeypatch.setattr(place, name, short(getattr(place, name)))
    folder = make_layout(tmp_path, random_csr(200, 2_000), 1)
    [(records, refused)] = swept(folder, 1, ["local", "zero_copy"], [3, 16])
    able = [("local", 3), ("zero_copy", 3)] + ([("zero_copy", 16)] if built else [])
    assert [(each.technique, each.dim) for each in records] == able
    assert str(refused[0]).startswith("local, D = 16: not enough GPU memory: 512 bytes")
    assert all(error.exit_code == 3 for error in refused)


def test_wrong_result_is_not_timed(folder, monkeypatch):
    right = cpu.spmm_rows

    def wrong(indptr, indices, weights, b, c, accumulate):
        right(indptr, indices, weights, b, c, accumulate)
        if not accumulate:
            c[0] += 1e-3

    monkeypatch.setattr(cpu, "spmm_rows", wrong)
    with pytest.raises(CheckError, match="technique halo, forward, D = 3") as caught:
        record(folder, 3, "halo", 3)
    assert caught.value.everywhere and caught.value.exit_code == 4


def test_oracle_detects_wrong_results(folder):
    part = layout.load(folder, 1)
    nodes = part.node_ids, oracle.halo_nodes(part, part.forward)
    local, remote = (
        csr.to_scipy(np.float64) @ oracle.embeddings(of, 4).astype(np.float64)
        for csr, of in zip((part.forward.local, part.forward.remote), nodes, strict=True)
    )
    expected = oracle.reference(part, "forward", 4)
    for harm in (0, np.nan, np.inf, 1e-3):
        result = (local + remote).astype(np.float32)
        result[5, 2] += harm
        assert expected.error(result) < 1e-7 if harm == 0 else expected.error(result) > 1e-5


def launched(tmp_path, pes, techniques=("halo", "cola"), dims=(3, 16), seconds=None, **more):
    """Records and refusals of every PE in three launches; ``seconds`` are what the clock of each tells."""

    def world_of(world):
        return ScriptedWorld(world, seconds[world.rank]) if seconds else world

    how = {"world_of": world_of, "warmup": 1, "iterations": 2, "launches": 3} | more
    return swept(make_layout(tmp_path, CSR, pes), pes, techniques, dims, **how)


@pytest.mark.parametrize("pes", [1, 2])
def test_every_launch_prepares_its_plan_again(tmp_path, monkeypatch, pes):
    """So that the launches of a technique lie apart in time: another one's plan is between them."""
    events, plans, real = [], [], measure.prepare

    def prepare(name, world, *arguments):
        plan = real(name, world, *arguments)
        if world.rank == 0:
            assert all(plan is not earlier for earlier in plans)
            plans.append(plan)
            events.append(("prepared", name))
            closing = plan.close
            plan.close = lambda: (events.append(("closed", name)), closing())
        return plan

    monkeypatch.setattr(measure, "prepare", prepare)
    parts = launched(tmp_path, pes)
    assert events == [(what, name) for name in ("halo", "cola") for what in ("prepared", "closed")] * 3
    for records, refused in parts:
        assert not refused and records == parts[0][0]
        assert [(r.technique, r.dim) for r in records] == [("halo", 3), ("halo", 16), ("cola", 3), ("cola", 16)]
        assert all(len(r.launches) == 3 and len(r.seconds) == 6 and r.warmup == 1 for r in records)


def test_spread_is_between_launches_and_quartiles_over_products(tmp_path):
    """Two PEs; launches of 2 products whose slower PE takes 1 and 3, 2 and 6, 10 and 20 seconds."""
    seconds = [[1, 2, 2, 1, 10, 20], [0.5, 3, 1, 6, 9, 5]]
    for [found], _ in launched(tmp_path, 2, ["halo"], [3], seconds):
        assert found.seconds == [1, 3, 2, 6, 10, 20]
        assert found.launches == [2, 4, 15]
        assert (found.low, found.median, found.high) == (2, 4, 15)
        # Of 1, 2, 3, 6, 10, 20: a quarter and three quarters of the way from the first to the last.
        assert (found.q1, found.q3) == (2.25, 9)


def test_one_launch_has_no_spread(tmp_path):
    [([r], _)] = launched(tmp_path, 1, ["halo"], [3], [[4, 1, 3]], iterations=3, launches=1)
    assert (r.launches, r.low, r.median, r.high, r.seconds) == ([3], 3, 3, 3, [4, 1, 3])


@pytest.mark.parametrize("pes", [1, 2])
def test_only_the_first_launch_is_checked(tmp_path, monkeypatch, pes):
    made, checked, apart = [], [], []

    def counted(place, name, calls, key):
        of = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *given: (calls.append(key(*given)), of(*given))[1])

    counted(oracle, "reference", made, lambda part, way, dim: (part.rank, dim))
    counted(measure, "_checked", checked, lambda *given: (given[0].rank, given[2].name, given[3]))
    counted(measure, "parts_alone", apart, lambda *given: (given[0].rank, given[1].name, given[2]))
    records, _ = launched(tmp_path, pes, breakdown=True)[0]
    each = [(pe, name, dim) for pe in range(pes) for name in ("cola", "halo") for dim in (3, 16)]
    assert sorted(made) == [(pe, dim) for pe in range(pes) for dim in (3, 16)]
    assert sorted(checked) == each
    assert sorted(apart) == sorted(each * 3 if pes > 1 else [])  # one PE moves nothing
    assert all(r.error is not None and r.error <= r.tolerance for r in records)
    assert [r.compute is not None for r in records] == [pes > 1] * 4


def test_breakdown_parts_are_medians_over_launches(tmp_path, monkeypatch):
    """Those of the first launch beside the median of all would differ by what that launch was slower."""
    seen = Counter()

    def parts_alone(world, plan, dim, protocol):
        seen[world.rank, plan.name, dim] += 1
        return {"compute": (5.0, 1.0, 2.0)[seen[world.rank, plan.name, dim] - 1]}

    monkeypatch.setattr(measure, "parts_alone", parts_alone)
    records, _ = launched(tmp_path, 2, breakdown=True)[0]
    assert [(r.compute, r.transfer) for r in records] == [(2.0, None)] * 4


def test_preparation_is_timed_on_the_slowest_pe(tmp_path, monkeypatch):
    """By a clock of each thread, which stands still but for plans."""
    clocks, launches, plans = Counter(), Counter(), measure.prepare

    def prepare(name, world, *arguments):
        launches[world.rank, name] += 1
        took = {0: (4.0, 1.0, 2.0), 1: (3.0, 5.0, 1.0)}[world.rank]
        clocks[get_ident()] += took[launches[world.rank, name] - 1]
        return plans(name, world, *arguments)

    monkeypatch.setattr(measure, "prepare", prepare)
    monkeypatch.setattr(measure, "perf_counter", lambda: clocks[get_ident()])
    records, _ = launched(tmp_path, 2)[0]
    assert [r.prepare for r in records] == [4.0] * 4  # the median of 4, 5 and 2


def test_refused_product_is_reported_once_and_not_retried(tmp_path, monkeypatch):
    tried, real = [], measure.accepted
    monkeypatch.setattr(measure, "accepted", lambda *given: (tried.append((given[0], given[1].rank)), real(*given))[1])
    for records, refused in launched(tmp_path, 2, ["local", "halo"], [3]):
        assert [(r.technique, len(r.launches)) for r in records] == [("halo", 3)]
        assert [str(error).split(":")[0] for error in refused] == ["local, D = 3"]
    assert sorted(tried) == sorted([("local", pe) for pe in (0, 1)] + [("halo", pe) for pe in (0, 1)] * 3)


def test_failure_in_a_later_launch_keeps_earlier_launches(tmp_path, monkeypatch):
    prepared, real = [], measure.prepare

    def prepare(name, world, part, direction, max_dim, *arguments):
        if world.rank == 0:
            prepared.append(max_dim)
        if max_dim == 16 and world.gather(len(prepared))[0] > 1:
            raise MachineError("not enough memory: of the second launch").on_every_pe()
        return real(name, world, part, direction, max_dim, *arguments)

    monkeypatch.setattr(measure, "prepare", prepare)
    for records, refused in launched(tmp_path, 2, ["halo"]):
        assert [(r.dim, len(r.launches), len(r.seconds)) for r in records] == [(3, 3, 6), (16, 1, 2)]
        assert [str(error) for error in refused] == ["not enough memory: halo, D = 16, launch 2: of the second launch"]
    assert prepared == [16, 16, 3, 3]


def test_auto_picks_once_for_all_launches(tmp_path, monkeypatch):
    asked, real = [], measure.forecast
    monkeypatch.setattr(measure, "forecast", lambda world, *given: (asked.append(world.rank), real(world, *given))[1])
    records, _ = launched(tmp_path, 2, ["halo", "cola", "mgg", "broadcast"], [3], auto=True)[0]
    assert sorted(asked) == [0, 1]
    assert sum(r.chosen for r in records) == 1
    assert all(len(r.launches) == 3 for r in records) and any(r.predicted for r in records)
