"""Renumbered graphs: what belongs to a node goes with it, and its own id is kept."""

import numpy as np
import pytest
from graph_helpers import arrays, files_of

from mgg.errors import MachineError
from mgg.graph import sources
from mgg.graph.build import build
from mgg.graph.csr import from_arcs
from mgg.graph.sources import Arcs, ArcStream, FeatureStream, StreamedGraph
from mgg.graph.store import Graph, write_graph

NODES = 40


@pytest.fixture
def everything(tmp_path, small_parts, monkeypatch) -> Graph:
    """A graph folder with weights, types, features, labels, splits and tasks."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, NODES, (2, 300))
    values = rng.random(300, dtype=np.float32), rng.integers(0, 3, 300).astype(np.int32)
    given = arrays(NODES)
    graph = StreamedGraph(
        ArcStream(lambda: iter([Arcs(*ends, *values)]), NODES, weighted=True, relations=3),
        FeatureStream(lambda: iter([given["features"]]), 5),
        given["labels"],
        given["splits"],
        4,
        rng.choice(np.array([0, 1, 255], np.uint8), (NODES, 2)),
    )
    (tmp_path / "raw").mkdir()
    monkeypatch.setitem(sources.LOADERS.added, "given", lambda path: graph)
    build(tmp_path / "raw", tmp_path / "graph", loader="given")
    return Graph.open(tmp_path / "graph")


def dense(graph: Graph) -> np.ndarray:
    """[relations, nodes, nodes] weights."""
    csr = graph.rows(0, graph.manifest.nodes)
    out = np.zeros((max(1, graph.manifest.relations), csr.rows, csr.rows), np.float32)
    rows = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    types = 0 if csr.types is None else csr.types
    out[types, rows, csr.indices] = 1 if csr.weights is None else csr.weights
    return out


@pytest.mark.parametrize("order", ["degree", "rcm", "rabbit"])
def test_node_data_follow_their_nodes(everything, tmp_path, order):
    manifest = build(everything.path, tmp_path / "moved", order=order)
    moved = Graph.open(tmp_path / "moved")
    ids = moved.ids(0, NODES)
    assert manifest.order == order
    assert sorted(ids) == list(range(NODES))
    assert not np.array_equal(ids, np.arange(NODES))
    assert np.array_equal(dense(moved), dense(everything)[:, ids][:, :, ids])
    for what in ("features", "labels", "splits", "tasks"):
        assert np.array_equal(getattr(moved, what)(0, NODES), getattr(everything, what)(0, NODES)[ids]), what
    kept = ("arcs", "symmetric", "weighted", "relations", "tasks", "classes", "listed_arcs", "dropped_loops")
    for field in (*kept, "dropped_repeats", "source", "name"):
        assert getattr(moved.manifest, field) == getattr(everything.manifest, field), field


def test_original_ids_survive_repeated_renumbering(everything, tmp_path):
    build(everything.path, tmp_path / "a", order="degree")
    build(tmp_path / "a", tmp_path / "b", order="rcm")
    ids = Graph.open(tmp_path / "b").ids(0, NODES)
    assert np.array_equal(dense(Graph.open(tmp_path / "b")), dense(everything)[:, ids][:, :, ids])
    again = build(tmp_path / "b", tmp_path / "c")
    assert again.order == "rcm"
    assert files_of(tmp_path / "b") == files_of(tmp_path / "c")


def test_original_ids_with_gaps_are_kept(tmp_path):
    rng = np.random.default_rng(1)
    own = np.sort(rng.choice(10**9, 60, replace=False))
    ends = np.concatenate([np.stack([own, np.roll(own, 1)], 1), rng.choice(own, (200, 2))])
    np.save(tmp_path / "edges.npy", ends)
    build(tmp_path / "edges.npy", tmp_path / "moved", order="degree", symmetrize=True)
    moved = Graph.open(tmp_path / "moved")
    csr, ids = moved.rows(0, 60), moved.ids(0, 60)
    rows = np.repeat(np.arange(60), np.diff(csr.indptr))
    found = set(zip(ids[rows].tolist(), ids[csr.indices].tolist(), strict=True))
    assert found == {(int(a), int(b)) for u, v in ends for a, b in ((u, v), (v, u)) if a != b}
    assert np.all(np.diff(np.diff(csr.indptr)) <= 0)


def test_order_in_one_step_equals_two_steps(tmp_path):
    build("digits", tmp_path / "natural")
    build(tmp_path / "natural", tmp_path / "two", order="rabbit")
    build("digits", tmp_path / "one", order="rabbit")
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


def test_auto_order_needs_the_memory_of_rabbit_only_if_it_reorders(tmp_path, monkeypatch):
    needed = {"natural": 0, "rabbit": 2**60}
    monkeypatch.setattr("mgg.graph.build.needed_bytes", lambda name, *counts, symmetric: needed[name])
    path = np.arange(30_000)
    csr = from_arcs(path[1:], path[:-1], n=30_000, symmetrize=True)
    write_graph(tmp_path / "path", csr, name="path", source={})
    assert build(tmp_path / "path", tmp_path / "same", order="auto").order == "natural"
    with pytest.raises(MachineError, match="order rabbit needs about"):
        build(tmp_path / "path", tmp_path / "moved", order="rabbit")
