"""Weights that float32 does not hold: whole numbers are told, whatever the format that lists them."""

from fractions import Fraction

import networkx
import numpy as np
import pandas
import pytest
import scipy.io
from scipy import sparse

from mgg.graph.build import build, gather, scatter, shard
from mgg.graph.store import Graph

#: Ids that were taken for weights, and other whole numbers and decimals beside them.
WHOLE = [2**24, 2**24 + 1, -(2**24) - 1, 123456789, 3, 2**30, 2**60 + 12345, 7]
DECIMALS = [0.1, 20000000.25, 16777217.5, 1.5e-3, 2.0**40, 1.0, 33554433.125, 1e6]


def lost(values):
    """How many whole numbers float32 changes, and by how much at most: in exact arithmetic."""
    errors = [abs(Fraction(float(np.float32(v))) - Fraction(v)) / abs(Fraction(v)) for v in values if v == int(v)]
    return sum(error > 0 for error in errors), float(max(errors))


def written(folder, form, values):
    """A file in which arc k -> k + 1 weighs ``values[k]``."""
    n = len(values) + 1
    rows, columns = np.arange(n - 1) + 1, np.arange(n - 1)
    matrix = sparse.coo_array((np.array(values), (rows, columns)), shape=(n, n))
    path = folder / f"a.{form}"
    if form in ("csv", "parquet"):
        frame = pandas.DataFrame({"source": columns, "target": rows, "weight": values})
        frame.to_csv(path, index=False) if form == "csv" else frame.to_parquet(path)
    elif form == "npz":
        sparse.save_npz(path, matrix)
    elif form == "mtx":
        scipy.io.mmwrite(path, matrix, symmetry="general", precision=17)
    elif form == "mat":
        scipy.io.savemat(path, {"A": matrix.astype(np.float64).tocsc()})
    else:
        graph = networkx.DiGraph()
        graph.add_weighted_edges_from(zip(columns.tolist(), rows.tolist(), values, strict=True))
        networkx.write_graphml(graph, path)
    return path


@pytest.mark.parametrize(
    ("form", "values"),
    [
        *((form, WHOLE) for form in ("csv", "parquet", "npz", "mtx", "mat", "graphml")),
        *(("npz", values) for values in (DECIMALS, WHOLE[2:5], [1, 2, 3], [16777216, 2, 2**40])),
    ],
)
def test_integer_weights_that_float32_rounds_are_reported(tmp_path, caplog, form, values):
    count, error = lost(values)
    manifest = build(written(tmp_path, form, values), tmp_path / "graph", loops="keep")
    warnings = [record.getMessage() for record in caplog.records if "does not hold" in record.getMessage()]
    found = Graph.open(tmp_path / "graph").rows(0, manifest.nodes).weights
    np.testing.assert_array_equal(found, np.array(values, np.float32))
    if not count:
        assert not warnings and "rounded_weights" not in manifest.source
        return
    assert len(warnings) == 1 and f": {count} weights are whole numbers that float32 does not hold" in warnings[0]
    assert manifest.source["rounded_weights"]["count"] == count
    assert manifest.source["rounded_weights"]["largest_relative_error"] == pytest.approx(error, rel=1e-6)


def test_rounded_weights_stay_recorded(tmp_path):
    """In steps, and where the graph folder becomes another one, whose weights are exact."""
    path = written(tmp_path, "csv", WHOLE)
    scatter(path, tmp_path / "buckets")
    shard(tmp_path / "buckets", tmp_path / "shards", number=1, of=1)
    stepwise = gather(tmp_path / "buckets", [tmp_path / "shards"], tmp_path / "graph")
    assert stepwise == build(path, tmp_path / "whole") and stepwise.source["rounded_weights"]["count"] == lost(WHOLE)[0]
    again = build(tmp_path / "graph", tmp_path / "again", order="degree", symmetrize=True)
    assert again.source == stepwise.source
