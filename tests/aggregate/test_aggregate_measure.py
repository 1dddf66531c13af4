from types import SimpleNamespace

import numpy as np
import pytest
from support.graphs import make_layout, random_csr
from support.measured import measure

from mgg import layout
from mgg.aggregate import oracle, parse_options, technique
from mgg.aggregate.measure import Protocol, sweep, timed
from mgg.backend import simulated
from mgg.errors import CheckError
from mgg.kernel import cpu


@pytest.fixture
def folder(tmp_path):
    return make_layout(tmp_path, random_csr(200, 2_000, weighted=True), 3)


def run(folder, technique="halo", **changes):
    arguments = {"dims": [3, 16], "direction": "forward", "options": {}, "warmup": 1, "iterations": 4, "check": True}
    return simulated.run(
        3, lambda world: measure(world, layout.load(folder, world.rank), technique, **arguments | changes)
    )


def test_records_say_what_was_measured(folder):
    records = run(folder)
    assert all(part == records[0] for part in records)
    first, second = records[0]
    assert (first.dim, second.dim) == (3, 16) and first.pes == 3 and first.backend == "simulated"
    assert len(first.seconds) == 4 and min(first.seconds) > 0
    assert first.q1 <= first.median <= first.q3 and first.median == pytest.approx(np.median(first.seconds))
    assert first.bytes_wire == first.v_fc == sum(first.bytes_per_pe) > 0
    assert first.v_fc <= first.v_fr and first.tolerance == 1e-6 and 0 < first.error <= 1e-6
    assert second.bytes_wire * 3 == first.bytes_wire * 16


def test_records_name_the_workgroup(folder):
    """The partition's is 8, more than there are PEs."""
    asked = (("halo", {}), ("halo", {"workgroup": 1}), ("mgg", {}))
    assert [run(folder, name, dims=[3], options=options)[0][0].workgroup for name, options in asked] == [3, 1, None]


@pytest.mark.parametrize("direction", ["forward", "transpose"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_records_tell_what_crossed_between_workgroups(tmp_path, direction, dtype):
    """Each row once a workgroup that needs it, without fusion once a PE of another one."""
    csr = random_csr(200, 2_000, weighted=True)
    folder, pes, dim = make_layout(tmp_path, csr, 4), 4, 6
    rows = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    ends = [rows, csr.indices] if direction == "forward" else [csr.indices, rows]
    target, source = (np.minimum(each // 50, 3) for each in ends)
    crossing, row = target // 2 != source // 2, dim * (2 if dtype == "bf16" else 4)
    fused, single = (
        len(np.unique(np.stack([who, ends[1]])[:, crossing], axis=1).T) * row for who in (target // 2, target)
    )
    assert fused < single

    def told(name, **options):
        record = simulated.run(
            pes,
            lambda world: measure(
                world, layout.load(folder, world.rank), name, dims=[dim], direction=direction, dtype=dtype,
                options=options, warmup=1, iterations=3, check=False,
            ),
        )[0][0]  # fmt: skip
        assert record.bytes_between is None or 0 < record.bytes_between <= record.bytes_wire
        return record.workgroup, record.bytes_between, record.vi_fc, record.vi_cola

    assert told("halo", workgroup=2) == (2, fused, single, fused)
    assert told("halo", workgroup=4) == (4, None, None, None)
    if dtype == "fp32":
        assert told("cola", workgroup=2) == told("cola", workgroup=2, coalesced=False) == (2, fused, single, fused)
        assert told("cola", workgroup=2, fusion=False) == (2, single, single, fused)
        assert told("mgg") == (None, None, None, None)


class Told:
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


def test_a_product_takes_as_long_as_on_its_slowest_pe_and_starts_on_all_at_once():
    """In each product another PE is the slowest; what is done untimed asks for nothing."""
    seconds = [[1.0, 5.0, 2.0], [4.0, 2.0, 2.5], [3.0, 3.0, 6.0]]

    def program(world):
        told = Told(world, seconds[world.rank])

        def plan(dim, out):
            told.calls.append((dim, out.shape))

        plan.layout = SimpleNamespace(rows=7)
        return timed(told, plan, 4, Protocol("forward", warmup=2, iterations=3, check=False)), told.calls

    product = (4, (7, 4))
    for found, calls in simulated.run(3, program):
        assert found == ([4.0, 5.0, 6.0], [0, 0, 0])
        assert calls == [product] * 2 + ["barrier", "start", product, "stop"] * 3


def test_unchecked_records_say_so(folder):
    assert all(record.error is None and record.tolerance is None for record in run(folder, check=False)[0])


@pytest.mark.parametrize("built", [True, False])
def test_gpu_memory_that_runs_out_costs_one_width(tmp_path, monkeypatch, built):
    """CuPy's error is a MemoryError; while a plan is built, or in a product."""
    full = type("OutOfMemoryError", (MemoryError,), {"__module__": "cupy.cuda.memory"})

    def short(of):
        def made(*arguments):
            if (arguments[0].max_dim if built else arguments[4].shape[1]) == 16:
                raise full("512 bytes")
            return of(*arguments)

        return made

    plan = technique("local")
    place, name = (plan, "_build") if built else (cpu, "spmm_rows")
    monkeypatch.setattr(place, name, short(getattr(place, name)))
    part = layout.load(make_layout(tmp_path, random_csr(200, 2_000), 1), 0)
    chosen = [(each, parse_options(each, {})) for each in ("local", "zero_copy")]
    protocol = Protocol("forward", 0, 1, True)
    [(records, refused)] = simulated.run(1, lambda world: sweep(world, part, chosen, dims=[3, 16], protocol=protocol))
    able = [("local", 3), ("zero_copy", 3)] + ([("zero_copy", 16)] if built else [])
    assert [(record.technique, record.dim) for record in records] == able
    assert str(refused[0]).startswith("local, D = 16: not enough GPU memory: 512 bytes")
    assert all(error.exit_code == 3 for error in refused)


def test_a_wrong_result_is_not_timed(folder, monkeypatch):
    right = cpu.spmm_rows

    def wrong(indptr, indices, weights, b, c, accumulate):
        right(indptr, indices, weights, b, c, accumulate)
        if not accumulate:
            c[0] += 1e-3

    monkeypatch.setattr(cpu, "spmm_rows", wrong)
    with pytest.raises(CheckError, match="technique halo, forward, D = 3") as caught:
        run(folder)
    assert caught.value.everywhere and caught.value.exit_code == 4


@pytest.mark.parametrize("harm", [np.nan, np.inf, 1e-3])
def test_the_oracle_sees_harm(folder, harm):
    def program(world):
        part = layout.load(folder, world.rank)
        exact = part.forward.local.to_scipy(np.float64) @ oracle.embeddings(part.node_ids, 4).astype(np.float64)
        exact += part.forward.remote.to_scipy(np.float64) @ oracle.embeddings(
            oracle.halo_nodes(part, part.forward), 4
        ).astype(np.float64)
        result = exact.astype(np.float32)
        assert oracle.reference(part, "forward", result.shape[1]).error(result) < 1e-7
        result[5, 2] += harm
        assert oracle.reference(part, "forward", result.shape[1]).error(result) > 1e-5

    simulated.run(3, program)
