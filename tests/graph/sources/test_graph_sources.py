import gzip
import re
import subprocess
import sys
from importlib import resources

import numpy as np
import pytest
from graph_helpers import TinyPlanetoid, python2, python2_array, python2_graph
from support.workflow import ROOT
from text_helpers import arcs_of, features_of

from mgg.errors import InputError
from mgg.graph.build import build
from mgg.graph.csr import has_loops, is_symmetric, row_ids
from mgg.graph.sources import find_loader, planetoid
from mgg.graph.store import Graph


def test_citeseer_has_the_published_counts(mirror, tmp_path):
    """Those that PyTorch Geometric documents; 15 of the isolated nodes are test nodes without label and features."""
    manifest = build("citeseer", tmp_path / "graph")
    graph, n = Graph.open(tmp_path / "graph"), manifest.nodes
    csr, splits, labels = graph.rows(0, n), graph.splits(0, n), graph.labels(0, n)
    assert (n, manifest.arcs, manifest.features, manifest.classes) == (3327, 9104, 3703, 6)
    assert np.bincount(splits)[1:].tolist() == [120, 500, 1000] and np.count_nonzero(np.diff(csr.indptr) == 0) == 48
    assert manifest.symmetric and is_symmetric(csr) and not has_loops(csr)
    assert np.bincount(labels[splits == 1]).tolist() == [20] * 6
    unlabeled = np.flatnonzero(labels < 0)
    assert len(unlabeled) == 15 and not splits[unlabeled].any() and not graph.features(0, n)[unlabeled].any()


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(planetoid, "VALIDATION", 3)
    return TinyPlanetoid()


def test_planetoid_files_match_a_hand_written_graph(tiny, tmp_path):
    data = find_loader("planetoid")(tiny.write(tmp_path))
    assert data.arcs.undirected
    assert arcs_of(data.arcs) == [(other, node) for node, others in tiny.graph.items() for other in others]
    features = features_of(data)
    assert data.labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 1, -1, 2]
    assert data.splits.tolist() == [1, 1, 2, 2, 2, 0, 0, 0, 3, 0, 3]
    assert features[:8].tolist() == np.eye(8, 4).tolist()
    assert features[8:].tolist() == [[0.5] * 4, [0] * 4, [0.5] * 4]
    made = build(tmp_path, tmp_path / "graph", loader="planetoid")
    csr = Graph.open(tmp_path / "graph").rows(0, 11)
    edges = {(0, 1), (2, 3), (4, 5), (6, 7), (8, 10)}
    assert set(zip(row_ids(csr).tolist(), csr.indices.tolist(), strict=True)) == edges | {(b, a) for a, b in edges}
    assert (made.listed_arcs, made.dropped_loops, made.dropped_repeats) == (11, 1, 5)


def test_planetoid_arcs_come_in_chunks_of_whole_or_cut_lists(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(planetoid, "CHUNK_ARCS", 2)
    monkeypatch.setattr(planetoid, "BLOCK_VALUES", 9)
    data = find_loader("planetoid")(tiny.write(tmp_path))
    assert max(len(part.targets) for part in data.arcs.read()) == 2
    assert arcs_of(data.arcs) == [(other, node) for node, others in tiny.graph.items() for other in others]
    assert features_of(data)[8:].tolist() == [[0.5] * 4, [0] * 4, [0.5] * 4]


def put(**changes):
    return lambda tiny: [setattr(tiny, name, value) for name, value in changes.items()]


def row(name, index, value):
    return lambda tiny: getattr(tiny, name).__setitem__(index, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(test="11\n8\n"), r"ind\.tiny\.test\.index: line 1: test node 11 is outside 8\.\.10"),
        (put(test="10\n3\n"), r"test\.index: line 2: test node 3 is outside 8"),
        (put(test="10\n10\n"), r"test\.index: the test split names node 10, which is already"),
        (put(test="10\n"), r"test\.index: 1 test nodes, tx has 2 rows"),
        (put(test="10\neight\n"), r"test\.index: expected one node id a line.*eight"),
        (row("graph", 3, [2, 11]), r"ind\.tiny\.graph: node 3: neighbor 11 is outside 0\.\.10"),
        (row("graph", 12, []), r"ind\.tiny\.graph: its keys are not the node ids"),
        (put(graph={}), r"ind\.tiny\.graph: its keys"),
        (row("allx", (4, 2), np.nan), r"ind\.tiny\.allx: feature of row 4, column 2 is nan"),
        (row("ally", (4, 0), 1), r"ind\.tiny\.ally: row 4 names no class or several"),
        (put(ty=np.eye(4, dtype=np.int32)[[2, 1]]), r"ind\.tiny\.ty: 4 classes, ally has 3"),
        (put(ty=np.eye(3, dtype=np.int32)), r"ind\.tiny\.ty: expected 2 rows"),
        (put(tx=np.zeros((2, 5), np.float32)), r"ind\.tiny\.tx: 5 feature columns, allx has 4"),
        (put(allx=np.eye(4, dtype=np.float32), ally=np.eye(4, 3, dtype=np.int32)), r"ind\.tiny\.y: 2 training and 3"),
    ],
)
def test_mismatched_planetoid_files_are_named(tiny, tmp_path, change, message):
    change(tiny)
    with pytest.raises(InputError, match=message) as caught:
        build(tiny.write(tmp_path / "raw"), tmp_path / "graph", loader="planetoid")
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["raw"]


@pytest.mark.parametrize("part", ["x", "ty", "graph", "test.index"])
@pytest.mark.parametrize("what", ["missing", "truncated", "text", "code", "other"])
def test_planetoid_files_of_other_types_are_named(tiny, tmp_path, part, what):
    folder = tiny.write(tmp_path / "raw")
    path = folder / f"ind.tiny.{part}"
    data = path.read_bytes()
    content = {
        "truncated": data[: len(data) // 2],
        "text": b"<html>404: Not Found</html>\n",
        "code": python2(b"cos\nsystem\nU\x09touch ran\x85R"),
        "other": python2(python2_array(np.zeros(3)) if part == "graph" else python2_graph({0: []})),
    }
    if what == "missing":
        path.unlink()
    else:
        path.write_bytes(content[what])
    with pytest.raises(InputError, match=r"tiny|ind\.NAME\.graph" if part == "graph" else rf"ind\.tiny\.{part}"):
        build(folder, tmp_path / "graph", loader="planetoid")
    assert not (tmp_path / "graph").exists()


@pytest.mark.parametrize("graph", [{0: [1.5]}, {0: "text"}, {"0": []}])
def test_planetoid_graph_with_other_values_is_refused(graph):
    files = planetoid._Files.__new__(planetoid._Files)
    object.__setattr__(files, "path", lambda part: part)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planetoid, "read_pickle", lambda path: graph)
        with pytest.raises(InputError, match="graph: node"):
            planetoid._graph(files)


def digits_file():
    return resources.files("sklearn.datasets.data") / "digits.csv.gz"


def test_digits_have_their_counts(tmp_path):
    manifest = build("digits", tmp_path / "digits")
    graph = Graph.open(tmp_path / "digits")
    assert (manifest.nodes, manifest.arcs, manifest.features, manifest.classes) == (1797, 24678, 64, 10)
    csr, splits, labels = graph.rows(0, 1797), graph.splits(0, 1797), graph.labels(0, 1797)
    assert manifest.symmetric
    assert is_symmetric(csr)
    assert not has_loops(csr)
    assert np.diff(csr.indptr).min() >= 10
    assert np.bincount(splits).tolist() == [0, 200, 500, 1097]
    assert np.bincount(labels[splits == 1]).tolist() == [20] * 10
    features = graph.features(0, 1797)
    assert (features.min(), features.max()) == (0, 1)
    assert (labels[row_ids(csr)] == labels[csr.indices]).mean() > 0.95
    build("digits", tmp_path / "again")
    assert Graph.open(tmp_path / "again").hash == graph.hash


def test_digits_arcs_join_nearest_neighbors(tmp_path):
    data = find_loader("digits")(digits_file())
    points = features_of(data).astype(np.float64)
    (arcs,) = data.arcs.read()
    pairs = set()
    for node in range(1797):
        distance = np.square(points - points[node]).sum(axis=1)
        distance[node] = np.inf
        closest = np.lexsort((np.arange(1797), distance))[:10]
        pairs |= {(min(node, other), max(node, other)) for other in closest.tolist()}
    found = list(zip(arcs.targets.tolist(), arcs.sources.tolist(), strict=True))
    assert data.arcs.undirected and sorted(pairs) == sorted(found)


def edited(change):
    lines = gzip.decompress(digits_file().read_bytes()).decode().splitlines()
    rows = [line.split(",") for line in lines]
    change(rows)
    return gzip.compress("\n".join(",".join(row) for row in rows).encode())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: digits_file().read_bytes()[:30_000], "not the digits table|ended before"),
        (lambda: b"plain text", "digits.csv.gz"),
        (lambda: gzip.compress(b"1,2\n3,4\n"), "expected 65 columns"),
        (lambda: edited(lambda rows: rows[5].pop()), "not the digits table"),
        (lambda: edited(lambda rows: rows[5].__setitem__(7, "nan")), "feature of node 5, column 7 is nan"),
        (lambda: edited(lambda rows: rows[5].__setitem__(7, "17")), "pixels must be whole numbers"),
        (lambda: edited(lambda rows: rows[5].__setitem__(64, "10")), "label of node 5 is 10"),
        (lambda: edited(lambda rows: rows[5].__setitem__(64, "1.5")), "label of node 5 is 1.5"),
    ],
)
def test_file_other_than_the_digits_is_refused(tmp_path, content, message):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "digits.csv.gz").write_bytes(content())
    with pytest.raises(InputError, match=message):
        build(raw, tmp_path / "graph", loader="digits")
    assert not (tmp_path / "graph").exists()


def test_documented_pydoc_command_shows_a_loader():
    """The command of docs/concepts/data.md, by the Python that MGG is installed for: a bare pydoc may be another's."""
    page = (ROOT / "docs/concepts/data.md").read_text(encoding="utf-8")
    command = re.search(r"`(.*pydoc) mgg\.graph\.sources\.NAME`", page)
    assert command is not None
    python, *options = command[1].split()
    assert python == "python"
    shown = subprocess.run(
        [sys.executable, *options, "mgg.graph.sources.table"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "Read an edge table, or a folder" in shown.stdout
