"""Shards made out of core against the same graph made in memory, whatever the steps, threads and memory."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from graph_helpers import peak
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mgg.errors import InputError, MachineError
from mgg.graph.budget import resident
from mgg.graph.csr import from_arcs
from mgg.graph.external import Memory, gather, scatter, scattering, shard, sharding, spool
from mgg.graph.sources import Arcs, ArcStream, FeatureStream, StreamedGraph
from mgg.graph.store import Graph, shards, write_graph

NODES, ARCS = 500, 6000


def stream(targets, sources, *, chunk=700, weights=None, types=None, **facts) -> ArcStream:
    def read():
        for lo in range(0, len(targets), chunk):
            at = slice(lo, lo + chunk)
            yield Arcs(targets[at], sources[at], *(None if v is None else v[at] for v in (weights, types)))

    facts = {"nodes": NODES} | facts
    return ArcStream(read, weighted=weights is not None, **facts)


def budget(workers=1) -> Memory:
    """2 GiB beside all that this process holds already, what other tests have loaded (PyTorch) as well."""
    return Memory(resident() + 2**31, workers)


def make(folder, graph, *, of=1, workers=1, symmetrize=False) -> Graph:
    """All three steps; the graph is in ``folder / "graph"``."""
    if isinstance(graph, ArcStream):
        graph = StreamedGraph(graph)
    for name in ("buckets", "graph", *(f"shards-{k}" for k in range(of))):
        (folder / name).mkdir(parents=True)
    scattered = scatter(graph, folder / "buckets", name="g", source={}, memory=budget(workers), symmetrize=symmetrize)
    made = [folder / f"shards-{k}" for k in range(of)]
    for k, here in enumerate(made):
        shard(scattered, here, budget(workers), number=k + 1, of=of)
    gather(scattered, made[::-1], folder / "graph")
    return Graph.open(folder / "graph")


@pytest.fixture
def small_parts(monkeypatch):
    """Many parts, tasks, segments and slices, so that their seams show."""
    monkeypatch.setattr(shards, "VERTICES_PER_PART", 64)
    monkeypatch.setattr(shards, "ARCS_PER_PART", 200)
    monkeypatch.setattr(sharding, "TASK_ARCS", 150)
    monkeypatch.setattr(scattering, "_capacity", lambda free, payloads: 901)
    monkeypatch.setattr(spool, "SLICE", 100)
    monkeypatch.setattr(spool, "BUCKETS", 32)


def ends(seed=0, nodes=NODES, arcs=ARCS):
    rng = np.random.default_rng(seed)
    # Skewed: row 0 is longer than a task.
    return (nodes * rng.random(arcs) ** 4).astype(np.int64), rng.integers(0, nodes, arcs)


@pytest.mark.parametrize(
    ("of", "workers", "symmetrize", "weighted"),
    [(1, 1, False, False), (3, 4, True, False), (1, 4, True, True), (3, 1, False, True)],
)
def test_external_build_has_the_bytes_of_the_in_memory_build(small_parts, tmp_path, of, workers, symmetrize, weighted):
    targets, sources = ends()
    weights = np.random.default_rng(1).random(ARCS, dtype=np.float32) if weighted else None
    made = make(tmp_path, stream(targets, sources, weights=weights), of=of, workers=workers, symmetrize=symmetrize)
    csr = from_arcs(targets, sources, n=NODES, weights=weights, symmetrize=symmetrize, drop_loops=True)
    write_graph(tmp_path / "expected", csr, name="g", source={})
    expected = Graph.open(tmp_path / "expected")
    assert made.manifest.shards == expected.manifest.shards
    assert len(made.manifest.parts("adjacency")) > 20
    assert made.manifest.symmetric == symmetrize
    loops = int((targets == sources).sum())
    assert (made.manifest.listed_arcs, made.manifest.dropped_loops) == (ARCS, loops)
    assert made.manifest.dropped_repeats == ARCS - loops - distinct(targets, sources, symmetrize)


def distinct(targets, sources, symmetrize, loops=False):
    """How many pairs of nodes arcs join, in either direction where each stands for both."""
    pairs = {(a, b) for a, b in zip(targets.tolist(), sources.tolist(), strict=True) if loops or a != b}
    return len({(min(pair), max(pair)) for pair in pairs} if symmetrize else pairs)


@pytest.mark.parametrize("of", [1, 3])
@pytest.mark.parametrize("symmetrize", [False, True])
def test_repeats_and_loops_are_kept_on_request(small_parts, tmp_path, caplog, symmetrize, of):
    targets, sources = ends()
    made = make(tmp_path, stream(targets, sources, loops="keep"), of=of, symmetrize=symmetrize).manifest
    assert (targets == sources).any() and made.dropped_loops == 0
    assert made.dropped_repeats == ARCS - distinct(targets, sources, symmetrize, loops=True)
    reverse = " or its reverse, for which each stands, too," if symmetrize else ""
    assert [record.getMessage() for record in caplog.records] == [
        f"g: {made.dropped_repeats} of {ARCS} arcs repeat another one{reverse} and are left out"
        " (--repeats sum adds them up)"
    ]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_graphs_equal_the_in_memory_build(tmp_path_factory, data):
    nodes = data.draw(st.integers(1, 40))
    pairs = data.draw(st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=120))
    symmetrize, of = data.draw(st.booleans()), data.draw(st.integers(1, 4))
    targets, sources = (np.array([pair[k] for pair in pairs], np.int64) for k in (0, 1))
    folder = tmp_path_factory.mktemp("any")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "VERTICES_PER_PART", data.draw(st.sampled_from([1, 4, 16])))
        patch.setattr(shards, "ARCS_PER_PART", data.draw(st.integers(1, 30)))
        patch.setattr(sharding, "TASK_ARCS", data.draw(st.integers(1, 30)))
        patch.setattr(scattering, "_capacity", lambda free, payloads: 7)
        patch.setattr(spool, "BUCKETS", data.draw(st.sampled_from([2, 4, 16])))
        made = make(folder, stream(targets, sources, chunk=5, nodes=nodes), of=of, symmetrize=symmetrize)
        csr = from_arcs(targets, sources, n=nodes, symmetrize=symmetrize, drop_loops=True)
        write_graph(folder / "expected", csr, name="g", source={})
        expected = Graph.open(folder / "expected").manifest
    assert (made.manifest.shards, made.manifest.symmetric) == (expected.shards, expected.symmetric)


def test_first_weight_of_repeated_arcs_counts_in_both_directions(tmp_path):
    targets, sources = np.array([1, 0, 0, 2]), np.array([0, 1, 1, 1])
    weights = np.array([5, 6, 7, 8], np.float32)
    made = make(tmp_path, stream(targets, sources, weights=weights, nodes=3), symmetrize=True)
    csr = made.rows(0, 3)
    assert csr.indptr.tolist() == [0, 1, 3, 4]
    assert csr.indices.tolist() == [1, 0, 2, 1]
    assert csr.weights.tolist() == [5, 5, 8, 8]


@pytest.mark.parametrize("of", [1, 3])
def test_graph_equal_to_its_transpose_is_recognized_as_symmetric(small_parts, tmp_path, of):
    """Whatever range finds an arc and its reverse; one arc more, or another weight, and it is not."""
    targets, sources = (values[:2000] for values in ends())
    apart = targets != sources
    low, high = np.minimum(targets, sources)[apart], np.maximum(targets, sources)[apart]
    weights = (low + high).astype(np.float32)
    both = np.concatenate([low, high]), np.concatenate([high, low])
    twice = np.concatenate([weights, weights])
    assert make(tmp_path / "same", stream(*both, weights=twice), of=of).manifest.symmetric
    more = np.append(both[0], NODES - 1), np.append(both[1], NODES - 2)
    assert not ((both[0] == NODES - 1) & (both[1] == NODES - 2)).any()
    assert not make(tmp_path / "more", stream(*more, weights=np.append(twice, 1)), of=of).manifest.symmetric
    first = (both[0] == both[0][0]) & (both[1] == both[1][0])
    other = np.where(first, np.float32(-1), twice)
    assert not make(tmp_path / "other", stream(*both, weights=other), of=of).manifest.symmetric


def test_zeros_of_both_signs_are_equal_weights(tmp_path):
    weights = np.array([0.0, -0.0], np.float32)
    made = make(tmp_path, stream(np.array([0, 1]), np.array([1, 0]), weights=weights, nodes=2))
    assert made.manifest.symmetric


def test_arcs_of_several_types_may_join_the_same_nodes(small_parts, tmp_path):
    rng = np.random.default_rng(3)
    targets, sources, types = rng.integers(0, 9, 900), rng.integers(0, 9, 900), rng.integers(0, 4, 900).astype(np.int32)
    made = make(tmp_path, stream(targets, sources, types=types, nodes=9, relations=4), of=2)
    triples = sorted({(t, s, r) for t, s, r in zip(targets, sources, types, strict=True) if t != s})
    csr = made.rows(0, 9)
    rows = np.repeat(np.arange(9), np.diff(csr.indptr))
    assert [(int(t), int(s), int(r)) for t, s, r in zip(rows, csr.indices, csr.types, strict=True)] == triples
    assert made.manifest.relations == 4
    some = made.rows(3, 5)
    assert np.array_equal(some.types, csr.types[csr.indptr[3] : csr.indptr[5]])


@pytest.mark.parametrize("largest", [pytest.param(2**31 + 10, marks=pytest.mark.slow), 1000])
def test_nodes_are_the_occurring_ids(small_parts, tmp_path, largest):
    """Far apart, or so close that parts of 64 nodes begin and end within words of 64 ids."""
    rng = np.random.default_rng(4)
    known = np.sort(rng.choice(largest, 300, replace=False))
    t, s = rng.integers(0, 300, 4000), rng.integers(0, 300, 4000)
    t[:300], s[:300] = np.arange(300), np.roll(np.arange(300), 1)
    made = make(tmp_path, stream(known[t], known[s], nodes=None), of=3, workers=2)
    at_once = make(tmp_path / "at once", stream(known[t], known[s], nodes=None))
    assert made.manifest.shards == at_once.manifest.shards
    assert made.manifest.nodes == 300
    assert np.array_equal(made.ids(0, 300), known)
    assert np.array_equal(made.ids(100, 131), known[100:131])
    expected = from_arcs(t, s, n=300, drop_loops=True)
    csr = made.rows(0, 300)
    assert np.array_equal(csr.indptr, expected.indptr)
    assert np.array_equal(csr.indices, expected.indices)


def test_node_with_only_a_self_loop_is_kept(tmp_path):
    made = make(tmp_path, stream(np.array([7, 3]), np.array([7, 5]), nodes=None))
    assert made.ids(0, 3).tolist() == [3, 5, 7]
    assert (made.manifest.arcs, made.manifest.dropped_loops) == (1, 1)


@pytest.mark.parametrize(
    ("targets", "sources", "facts", "message"),
    [
        ([0, 1], [1, 500], {}, "arc 1: node id 500 is outside 0..499"),
        ([0, -1], [1, 2], {}, "arc 1: node id -1 is outside 0..499"),
        ([-5], [1], {"nodes": None}, "arc 0: node id -5"),
        ([], [], {"nodes": None}, "holds no arc"),
        ([], [], {"nodes": 0}, "without nodes"),
        ([0], [1], {"nodes": None, "stated_nodes": 5}, "announces 5 nodes, but the arcs join 2"),
        ([0], [1], {"nodes": 2**33}, "at most 4294967296 nodes"),
    ],
)
def test_invalid_arcs_are_refused(tmp_path, targets, sources, facts, message):
    with pytest.raises(InputError, match=message):
        make(tmp_path, stream(np.array(targets, np.int64), np.array(sources, np.int64), chunk=1000, **facts))


def test_graph_without_arcs_is_built(tmp_path):
    none = np.empty(0, np.int64)
    made = make(tmp_path, stream(none, none, nodes=4))
    assert (made.manifest.nodes, made.manifest.arcs, made.manifest.symmetric) == (4, 0, True)
    assert made.offsets().tolist() == [0] * 5


def test_node_data_blocks_may_have_any_size(small_parts, tmp_path):
    rng = np.random.default_rng(5)
    features = rng.random((NODES, 3), dtype=np.float32)
    tasks = rng.choice(np.array([0, 1, 255], np.uint8), (NODES, 7))
    blocks = FeatureStream(lambda: (features[lo : lo + 37] for lo in range(0, NODES, 37)), 3)
    graph = StreamedGraph(
        stream(*ends()), blocks, labels=np.arange(NODES) % 5 - 1, splits=np.arange(NODES) % 4, tasks=tasks
    )
    made = make(tmp_path, graph)
    assert np.array_equal(made.features(10, 400), features[10:400])
    assert np.array_equal(made.tasks(0, NODES), tasks)
    assert np.array_equal(made.labels(0, NODES), np.arange(NODES) % 5 - 1)
    assert np.array_equal(made.splits(63, 65), np.arange(63, 65) % 4)
    assert (made.manifest.features, made.manifest.classes, made.manifest.tasks) == (3, 4, 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": FeatureStream(lambda: iter([np.zeros((3, 2), np.float32)]), 2)}, "features of 3 nodes for 500"),
        (
            {"features": FeatureStream(lambda: iter([np.full((NODES, 2), np.nan, np.float32)]), 2)},
            "feature of node 0, column 0 is nan",
        ),
        ({"labels": np.arange(NODES) - 2}, "label of node 0 is -2"),
        ({"tasks": np.full((NODES, 2), 3, np.uint8)}, "task 0 of node 0 is 3"),
    ],
)
def test_invalid_node_data_are_refused(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        make(tmp_path, replace(StreamedGraph(stream(*ends())), **change))


def test_foreign_or_missing_shards_are_refused(tmp_path):
    a = make(tmp_path / "a", stream(*ends(0)), of=2)
    make(tmp_path / "b", stream(*ends(1)), of=2)
    assert a.manifest.arcs
    scattered = scattering.Scattered.open(tmp_path / "a" / "buckets")
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="shards of another graph"):
        gather(scattered, [tmp_path / "a" / "shards-0", tmp_path / "b" / "shards-1"], tmp_path / "out")
    with pytest.raises(InputError, match="shards 1 of 2: each must be there once"):
        gather(scattered, [tmp_path / "a" / "shards-0"], tmp_path / "out")


@pytest.mark.parametrize("task", [150, 10**6])
def test_damage_between_the_steps_is_detected(tmp_path, monkeypatch, task):
    monkeypatch.setattr(sharding, "TASK_ARCS", task)
    monkeypatch.setattr(shards, "VERTICES_PER_PART", 100)
    monkeypatch.setattr(spool, "SLICE", 100)
    rng = np.random.default_rng(8)
    weights, types = rng.random(ARCS, dtype=np.float32), rng.integers(0, 3, ARCS).astype(np.int32)
    make(tmp_path, stream(*ends(), weights=weights, types=types, relations=3), of=2)
    folders = [tmp_path / name for name in ("buckets", "shards-0", "shards-1")]
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    assert len(files) > 12
    for path in files:
        data = path.read_bytes()
        for _ in range(2):
            at = int(rng.integers(0, len(data)))
            changed = data[:at] + bytes([data[at] ^ 1 << rng.integers(0, 8)]) + data[at + 1 :]
            path.write_bytes(data[:at] if rng.random() < 0.3 else changed)
            with pytest.raises(InputError):
                again(tmp_path, folders)
        path.write_bytes(data)
    again(tmp_path, folders)


def again(tmp_path, folders):
    """Steps 2 and 3, and all that is in the graph."""
    shutil.rmtree(tmp_path / "again", ignore_errors=True)
    for name in ("shards", "graph"):
        (tmp_path / "again" / name).mkdir(parents=True)
    scattered = scattering.Scattered.open(folders[0])
    shard(scattered, tmp_path / "again" / "shards", budget())
    gather(scattered, folders[1:], tmp_path / "again" / "graph")
    graph = Graph.open(tmp_path / "again" / "graph")
    graph.rows(0, NODES)


def test_budget_too_small_for_a_row_is_refused(tmp_path, monkeypatch):
    targets, sources = np.zeros(3 * 2**20, np.int64), np.arange(3 * 2**20)
    make(tmp_path / "fits", stream(targets, sources, chunk=2**20, nodes=2**22))
    scattered = scattering.Scattered.open(tmp_path / "fits" / "buckets")
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="memory of 10 MiB is too small"):
        shard(scattered, tmp_path / "out", Memory(10 * 2**20))
    monkeypatch.setattr(Memory, "free", lambda self, least: 100 * 2**20)
    with pytest.raises(MachineError, match=r"row 0 has 3145727 arcs, which need .* at once: raise --memory by"):
        shard(scattered, tmp_path / "out", budget(2))


@pytest.mark.slow
@pytest.mark.parametrize("header", ["source,target", "source,target,weight"])
def test_budget_named_by_the_refusal_is_enough(tmp_path, header):
    """One number, not a larger one after every try; the first run compiles, which takes more."""
    (tmp_path / "edges.csv").write_text(header + "\n" + ",".join("012"[: header.count(",") + 1]) + "\n")
    command = [sys.executable, "-m", "mgg.cli", "graph", "edges.csv", "--out", "graph", "--memory"]
    subprocess.run([*command, "1GiB"], cwd=tmp_path, check=True, capture_output=True)
    refused = subprocess.run([*command, "1KB"], cwd=tmp_path, check=False, capture_output=True, text=True)
    last = refused.stderr.splitlines()[-1]
    said = re.fullmatch(r"mgg: memory of 0 MiB is too small: at least (\d+) MiB are needed", last)
    assert said is not None, refused.stderr
    enough = subprocess.run([*command, f"{said[1]}MiB"], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert enough.returncode == 0, enough.stderr


@pytest.mark.slow
def test_peak_memory_stays_within_the_budget(tmp_path):
    """56 million pairs: their keys alone are more than the budget, which the interpreter and its libraries share."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "edges.npy", rng.integers(0, 2**20, (56_000_000, 2), dtype=np.int32))
    assert peak(tmp_path, "graph", "edges.npy", "--out", "graph", "--memory", "416MiB", "--workers", "2") <= 416


@pytest.mark.slow
def test_peak_memory_with_weights_and_types_stays_within_the_budget(tmp_path):
    """12 million arcs in both directions are 384 MB in buckets."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 600_000, (2, 12_000_000))
    columns = {"source": ends[0], "target": ends[1], "weight": rng.random(ends.shape[1], dtype=np.float32)}
    table = pa.table(columns | {"type": rng.integers(0, 4, ends.shape[1], dtype=np.int32)})
    pa.parquet.write_table(table, tmp_path / "edges.parquet")
    budget = ("--memory", "520MiB", "--workers", "2")
    assert peak(tmp_path, "graph", "edges.parquet", "--out", "graph", "--symmetrize", *budget) <= 520


@pytest.mark.slow
def test_peak_memory_with_many_nodes_stays_within_the_budget(tmp_path):
    """Degrees of 60 million nodes would take 480 MB."""
    header = "%%MatrixMarket matrix coordinate pattern general\n60000000 60000000 2\n"
    (tmp_path / "wide.mtx").write_text(header + "1 2\n60000000 7\n")
    assert peak(tmp_path, "graph", "wide.mtx", "--out", "graph", "--memory", "400MiB", "--workers", "2") <= 400
    assert Graph.open(tmp_path / "graph").rows(59_999_999, 60_000_000).indices.tolist() == [6]
