import numpy as np
import pytest
from support.graphs import make_layout, random_csr

from mgg import layout
from mgg.aggregate import oracle
from mgg.aggregate.measure import measure
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


def test_unchecked_records_say_so(folder):
    assert all(record.error is None and record.tolerance is None for record in run(folder, check=False)[0])


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
        assert oracle.relative_error(part, "forward", result) < 1e-7
        result[5, 2] += harm
        assert oracle.relative_error(part, "forward", result) > 1e-5

    simulated.run(3, program)
