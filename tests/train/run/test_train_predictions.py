"""predictions.parquet: the best weights' classes, under the source's ids whatever the order and partition."""

import numpy as np
import pyarrow.parquet
import pytest
from support.graphs import make_layout, planted
from support.graphs.train_graphs import typed
from support.models import cases, needs_types
from support.programs.train_program import SMALL, assert_close, gradients, run

from mgg import layout
from mgg.graph import manifest as manifests
from mgg.graph.csr import Csr, from_arcs, row_ids
from mgg.graph.store import Graph
from mgg.graph.store.nodes import write_column
from mgg.model import models
from mgg.train.run import predictions

OPTIONS = {"model": "gcn", "technique": "halo", "epochs": 20}
SPLITS = {"train": 1, "validation": 2, "test": 3}


def reordered(csr, data, order):
    """The same graph with node v numbered ``order[v]``."""
    moved = {name: np.empty_like(values) for name, values in data.items()}
    for name, values in data.items():
        moved[name][order] = values
    rows, columns = order[row_ids(csr)], order[csr.indices]
    if csr.types is None:
        return from_arcs(rows, columns, n=csr.rows), moved
    found = np.lexsort((csr.types, columns, rows))
    indptr = np.searchsorted(rows[found], np.arange(csr.rows + 1)).astype(np.int64)
    return Csr(indptr, columns[found].astype(np.int32), None, csr.rows, csr.types[found]), moved


def give_ids(folder, ids):
    """Add to a graph folder what its source calls each node."""
    facts = Graph.open(folder).manifest
    parts = dict(write_column(folder, "ids", [ids]))
    manifests.save(folder, facts.model_copy(update={"shards": {**facts.shards, **parts}}))


def laid_out(new_folder, csr, data):
    """Layouts of one graph: split where it is, permuted by METIS, renumbered before, and both."""
    order = np.random.default_rng(5).permutation(csr.rows)
    here = {name: new_folder(name) for name in ("natural", "renumbered")}
    found = {"natural": make_layout(here["natural"], csr, 1, **data)}
    found["metis"] = make_layout(here["natural"], csr, 4, scheme="metis", **data)
    moved, moved_data = reordered(csr, data, order)
    make_layout(here["renumbered"], moved, 2, **moved_data)
    ids = np.empty(csr.rows, np.int64)
    ids[order] = np.arange(csr.rows)
    give_ids(here["renumbered"] / "graph", ids)
    found["renumbered"] = make_layout(here["renumbered"], moved, 2, scheme="edge_balanced")
    found["both"] = make_layout(here["renumbered"], moved, 3, scheme="metis")
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Layouts of the planted graph."""
    return laid_out(tmp_path_factory.mktemp, *planted())


@pytest.fixture(scope="module")
def typed_folders(tmp_path_factory):
    """The same of one with types of arcs."""
    return laid_out(tmp_path_factory.mktemp, *typed())


PES = {"natural": 1, "metis": 4, "renumbered": 2, "both": 3}


def table(folder):
    return pyarrow.parquet.read_table(folder / "predictions.parquet")


def test_predictions_do_not_depend_on_order_and_partition(folders, tmp_path, monkeypatch):
    """In small blocks, too."""
    _, data = planted()
    monkeypatch.setattr(predictions, "BLOCK_BYTES", 7 * 20)
    found = {}
    for name, pes in PES.items():
        record = run("simulated", folders[name], pes, out=tmp_path / name, **OPTIONS)[0].record
        found[name] = table(tmp_path / name)
        assert found[name].equals(found["natural"])
        right = found[name]["prediction"].to_numpy() == data["labels"]
        for split, code in SPLITS.items():
            share = right[data["splits"] == code].mean()
            assert share == pytest.approx(getattr(record, f"{split}_accuracy"), abs=1e-12)
        assert record.test_accuracy > 0.3  # ten classes: an order mixed up would give 0.1
    assert found["both"].schema.equals(predictions.SCHEMA)
    # By the source's ids, against the source's own labels and splits.
    assert found["both"]["node"].to_pylist() == list(range(len(data["labels"])))
    assert np.array_equal(found["both"]["label"], data["labels"])
    assert np.array_equal(found["both"]["split"], data["splits"])
    for name in PES:
        assert (layout.load(folders[name], 0).graph_nodes is not None) == (name in ("metis", "both"))


@pytest.mark.parametrize("model", cases(models()))
def test_loss_and_gradients_do_not_depend_on_order_and_partition(model, folders, typed_folders):
    """Dropout included: its random numbers belong to the source's nodes and arcs."""
    here, drops = (typed_folders, {"dropout": 0.4}) if needs_types(model) else (folders, {})
    options = {"model": model, "technique": "halo", "settings": SMALL[model] | drops, "epoch": 5}
    expected = gradients("simulated", here["natural"], 1, **options)[0]
    for found in gradients("simulated", here["both"], PES["both"], **options):
        assert_close(found, expected)


def test_node_ids_beyond_32_bits_are_predicted(tmp_path):
    csr, data = planted()
    make_layout(tmp_path, csr, 2, **data)
    ids = (np.arange(csr.rows, dtype=np.int64)[::-1] << 40) + 5
    give_ids(tmp_path / "graph", ids)
    run("simulated", make_layout(tmp_path, csr, 2), 2, out=tmp_path / "run", **OPTIONS)
    found = table(tmp_path / "run")
    assert np.array_equal(found["node"], ids[::-1])
    assert np.array_equal(found["label"], data["labels"][::-1])
