import zipfile

import numpy as np
import pytest
from text_helpers import arcs_of, features_of, load, refused, zipped

from mgg.errors import InputError
from mgg.graph.io import text
from mgg.graph.sources.ogb import binary as ogb_binary
from mgg.graph.sources.ogb import csv as ogb_csv


def lines_of(values):
    rows = np.asarray(values).reshape(len(values), -1)
    return "".join(",".join(map(str, row)) + "\n" for row in rows.tolist())


def csv_folder(folder, **changes):
    """A data set of 6 nodes and 7 arcs, with a repeat and a loop, as CSV; ``changes`` replace a file's text."""
    parts = {
        "raw/edge": "0,1\n1,2\n2,0\n2,2\n0,1\n5,3\n4,5\n",
        "raw/num-node-list": "6\n",
        "raw/num-edge-list": "7\n",
        "raw/node-feat": lines_of(np.arange(18).reshape(6, 3) / 8),
        "raw/node-label": "3.0\n0\nnan\n1\n2\n2\n",
        "split/time/train": "0\n4\n",
        "split/time/valid": "1\n",
        "split/time/test": "5\n3\n",
    }
    for name, content in {**parts, **changes}.items():
        if content is not None:
            zipped(folder / f"{name}.csv.gz", content)
    return folder


@pytest.mark.parametrize("size", [1, 10, 10**6])
@pytest.mark.parametrize("below", ["", "arxiv"])
def test_csv_files_match_a_hand_written_graph(tmp_path, monkeypatch, below, size):
    csv_folder(tmp_path / below)
    (tmp_path / "source.yaml").touch()
    monkeypatch.setattr(text, "BLOCK", size)
    graph = load("ogb", tmp_path)
    assert (graph.arcs.nodes, graph.arcs.undirected, graph.tasks) == (6, False, None)
    expected = [(0, 1), (1, 2), (2, 0), (2, 2), (0, 1), (5, 3), (4, 5)]
    assert arcs_of(graph.arcs) == expected
    assert arcs_of(graph.arcs) == expected
    assert np.array_equal(features_of(graph), np.arange(18).reshape(6, 3) / 8)
    assert graph.labels.tolist() == [3, 0, -1, 1, 2, 2]
    assert graph.splits.tolist() == [1, 2, 0, 3, 1, 3]


def test_labels_and_splits_are_optional(tmp_path):
    graph = load("ogb", csv_folder(tmp_path, **{f"split/time/{part}": None for part in ("train", "valid", "test")},
                                   **{"raw/node-label": None, "raw/node-feat": None}))  # fmt: skip
    assert graph.labels is graph.splits is graph.features is graph.tasks is None
    assert len(arcs_of(graph.arcs)) == 7


def test_several_labels_are_tasks(tmp_path):
    labels = "0,1\n1,1\nnan,0\n1.0,\n0,0\n,1\n"
    graph = load("ogb", csv_folder(tmp_path, **{"raw/node-label": labels}))
    assert graph.labels is None
    assert graph.tasks.dtype == np.uint8
    assert graph.tasks.tolist() == [[0, 1], [1, 1], [255, 0], [1, 255], [0, 0], [255, 1]]


@pytest.mark.parametrize("size", [1, 50, 333, 10**6])
def test_arc_features_become_node_means(tmp_path, monkeypatch, size):
    """Against the mean over the rows of a SciPy-free dense incidence matrix."""
    rng = np.random.default_rng(0)
    ends, values = rng.integers(0, 20, (300, 2)), rng.random((300, 8)).round(4)
    csv_folder(
        tmp_path,
        **{"raw/edge": lines_of(ends)},
        **{
            "raw/num-node-list": "25\n",
            "raw/num-edge-list": "300\n",
            "raw/edge-feat": lines_of(values),
            "raw/node-feat": None,
            "raw/node-label": None,
        },
    )
    incidence = np.zeros((25, 300))
    for end in ends.T:
        np.add.at(incidence, (end, np.arange(300)), 1)
    expected = incidence @ values / np.maximum(incidence.sum(axis=1, keepdims=True), 1)
    monkeypatch.setattr(text, "BLOCK", size)
    monkeypatch.setattr(ogb_csv, "ROWS", 7)
    found = features_of(load("ogb", tmp_path))
    assert found.shape == (25, 8)
    assert not found[20:].any()
    assert np.allclose(found, expected, rtol=1e-6)


def binary_folder(folder, save=np.savez_compressed, order="C", **changes):
    rng = np.random.default_rng(1)
    nodes, arcs = 50, 400
    members = {
        "edge_index": np.asarray(rng.integers(0, nodes, (2, arcs)), order=order),
        "node_feat": rng.standard_normal((nodes, 9)).astype(np.float32),
        "node_year": rng.integers(2000, 2020, (nodes, 1)),
        "num_nodes_list": np.array([nodes]),
        "num_edges_list": np.array([arcs]),
        "node_label": np.where(rng.random((nodes, 1)) < 0.3, np.nan, rng.integers(0, 5, (nodes, 1))).astype(np.float32),
    } | changes
    (folder / "raw").mkdir(parents=True)
    save(folder / "raw" / "node-label.npz", node_label=members.pop("node_label"))
    save(folder / "raw" / "data.npz", **{name: values for name, values in members.items() if values is not None})
    for part, ids in (("train", "0\n1\n"), ("valid", "7\n"), ("test", "49\n")):
        zipped(folder / "split" / "time" / f"{part}.csv.gz", ids)
    return members


@pytest.mark.parametrize("chunk", [1, 7, 400, 10**6])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_binary_members_are_streamed(tmp_path, monkeypatch, save, order, chunk):
    members = binary_folder(tmp_path / "papers", save, order)
    monkeypatch.setattr(ogb_binary, "CHUNK_ARCS", chunk)
    monkeypatch.setattr(ogb_binary, "BLOCK_NUMBERS", 3 * chunk)
    graph = load("ogb", tmp_path)
    assert all(len(part.sources) <= chunk for part in graph.arcs.read())
    assert arcs_of(graph.arcs) == list(zip(*members["edge_index"].tolist(), strict=True))
    assert np.array_equal(features_of(graph), members["node_feat"])
    label = np.load(tmp_path / "papers" / "raw" / "node-label.npz")["node_label"][:, 0]
    assert graph.labels.tolist() == [-1 if np.isnan(value) else int(value) for value in label]
    assert np.flatnonzero(graph.splits).tolist() == [0, 1, 7, 49]


def test_binary_features_of_another_dtype_are_converted(tmp_path):
    half = np.arange(100, dtype=np.float16).reshape(50, 2)
    binary_folder(tmp_path / "a", node_feat=half)
    assert np.array_equal(features_of(load("ogb", tmp_path / "a")), half)
    binary_folder(tmp_path / "b", node_feat=None, node_label=np.arange(50) % 3)
    graph = load("ogb", tmp_path / "b")
    assert graph.features is None
    assert graph.labels.tolist() == (np.arange(50) % 3).tolist()
    binary_folder(tmp_path / "c", node_label=np.tile([0, 1, np.nan], (50, 1)))
    assert load("ogb", tmp_path / "c").tasks.tolist() == [[0, 1, 255]] * 50


def typed_folder(folder, **changes):
    """Three node types (author 2, field 1, paper 3) and three relations, listed in no order."""
    parts = {
        "raw/num-node-dict": "paper,author,field\n3,2,1\n",
        "raw/triplet-type-list": "paper,cites,paper\nauthor,writes,paper\npaper,has,field\n",
        "raw/relations/paper___cites___paper/edge": "0,1\n2,0\n",
        "raw/relations/paper___cites___paper/num-edge-list": "2\n",
        "raw/relations/author___writes___paper/edge": "1,2\n",
        "raw/relations/author___writes___paper/num-edge-list": "1\n",
        "raw/relations/paper___has___field/edge": "2,0\n",
        "raw/relations/paper___has___field/num-edge-list": "1\n",
        "raw/node-feat/paper/node-feat": "1,2\n3,4\n5,6\n",
        "raw/node-label/paper/node-label": "4\n0\n2\n",
        "split/time/paper/train": "0\n",
        "split/time/paper/valid": "2\n",
        "split/time/paper/test": "1\n",
        "split/time/nodetype-has-split": "author,field,paper\nFalse,False,True\n",
    }
    for name, content in {**parts, **changes}.items():
        zipped(folder / f"{name}.csv.gz", content)
    return folder


def test_node_types_become_one_graph(tmp_path, monkeypatch):
    monkeypatch.setattr(ogb_csv, "ROWS", 2)
    graph = load("ogb", typed_folder(tmp_path / "mag"))
    assert (graph.arcs.nodes, graph.arcs.relations) == (6, 3)
    assert arcs_of(graph.arcs) == [(1, 5, 0), (3, 4, 1), (5, 3, 1), (5, 2, 2)]
    assert features_of(graph).tolist() == [[0, 0]] * 3 + [[1, 2], [3, 4], [5, 6]]
    assert graph.labels.tolist() == [-1, -1, -1, 4, 0, 2]
    assert graph.splits.tolist() == [0, 0, 0, 1, 3, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"raw/num-node-dict": "paper,author\n3\n"}, "num-node-dict.csv.gz: expected a line of node types"),
        ({"raw/num-node-dict": "paper,author,field\n0,0,0\n"}, "has no nodes"),
        (
            {"raw/num-node-dict": f"paper,author,field\n3,2,{2**32}\n"},
            "num-node-dict.*: has 4294967301 nodes; expected",
        ),
        (
            {"raw/triplet-type-list": "paper,cites,paper\nvenue,prints,paper\n"},
            "triplet-type-list.*: line 2: expected",
        ),
        ({"raw/triplet-type-list": "paper,reads,paper\n"}, "paper___reads___paper.*cannot be read: No such file"),
        ({"raw/relations/author___writes___paper/edge": "2,2\n"}, r"line 1: source is 2, outside 0\.\.1"),
        ({"raw/node-label/author/node-label": "1\n1\n"}, "node-label: holds 2 folders, expected one"),
        ({"raw/node-label/paper/node-label": "1\n1\n"}, "ends after 2 of the 3"),
        ({"raw/node-label/paper/node-label": "1,0\n1,0\n0,0\n"}, "several label columns"),
        ({"raw/node-feat/author/node-feat": "1\n1\n"}, r"node types have \[1, 2\] features"),
        ({"raw/node-feat/paper/node-feat": "1,2\n3,4\n"}, "ends after 2 of the 3 lines that num-node-dict"),
        ({"split/time/paper/test": "3\n"}, r"test\.csv\.gz: line 1: node is 3, outside 0\.\.2"),
        ({"split/time/paper/test": "2\n"}, r"names node 5, which is already in a split"),
    ],
)
def test_bad_typed_folders_are_named(tmp_path, changes, message):
    refused("ogb", typed_folder(tmp_path, **changes), message)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("raw/edge", "0,1\n1,6\n", r"edge\.csv\.gz: line 2: target is 6, outside 0\.\.5"),
        ("raw/edge", "0,1\n", "ends after 1 of the 7 lines that num-edge-list.csv.gz announces"),
        ("raw/edge", "0,1\n" * 8, "line 8: one more than the 7 that num-edge-list.csv.gz announces"),
        ("raw/edge", None, r"edge\.csv\.gz: cannot be read: No such file"),
        ("raw/num-node-list", "3\n3\n", r"num-node-list\.csv\.gz: holds several counts; expected that of one graph"),
        ("raw/num-node-list", "", "holds no count"),
        ("raw/num-node-list", f"{2**32 + 1}\n", r"num-node-list\.csv\.gz: line 1: count is 4294967297, outside"),
        ("raw/num-edge-list", f"{2**62 + 1}\n", r"num-edge-list\.csv\.gz: line 1: count is 4611686018427387905"),
        ("raw/num-node-list", "0\n", "has no nodes"),
        ("raw/num-node-list", "7\n", "ends after 6 of the 7 lines that num-node-list.csv.gz announces"),
        ("raw/node-feat", "1,2\n" * 5, r"node-feat\.csv\.gz: ends after 5 of the 6 lines"),
        ("raw/node-feat", "1,2\n" * 7, r"node-feat\.csv\.gz: line 7: one more than the 6"),
        ("raw/node-feat", "1,2\n" * 5 + "1,nan\n", "line 6: feature 1 is nan, not a finite float32"),
        ("raw/node-feat", "", r"node-feat\.csv\.gz: is empty"),
        ("raw/node-label", "1\n" * 5, r"node-label\.csv\.gz: ends after 5 of the 6"),
        ("raw/node-label", "1\n" * 5 + "1.5\n", "line 6: label is 1.5; expected a whole number from 0, or nan"),
        ("raw/node-label", "1\n" * 5 + "-2\n", "line 6: label is -2; expected"),
        ("raw/node-label", "1,0\n" * 5 + "1,255\n", "line 6: label 1 is 255; expected 0, 1 or nan"),
        ("split/time/valid", "1\n6\n", r"valid\.csv\.gz: line 2: node is 6, outside 0\.\.5"),
        ("split/time/valid", "0\n", "the validation split names node 0, which is already in a split"),
        ("split/time/valid", None, r"valid\.csv\.gz: cannot be read"),
        ("split/other/valid", "1\n", "split: holds 2 folders, expected one"),
    ],
)
@pytest.mark.parametrize("size", [9, 10**6])
def test_bad_csv_folders_are_named(tmp_path, monkeypatch, file, content, message, size):
    csv_folder(tmp_path, **{file: content})
    monkeypatch.setattr(text, "BLOCK", size)
    refused("ogb", tmp_path, message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_index": np.full((2, 400), 50)}, r"edge_index: source of arc 0 is 50, outside 0\.\.49"),
        ({"edge_index": np.zeros((2, 399), int)}, r"edge_index is int64 \(2, 399\), expected whole numbers \(2, 400\)"),
        ({"edge_index": None}, "has no member edge_index"),
        ({"num_nodes_list": np.array([25, 25])}, "num_nodes_list holds 2 counts"),
        ({"num_nodes_list": np.array([0])}, "has no nodes"),
        (
            {"num_nodes_list": np.array([2**62]), "node_feat": None},
            r"data\.npz: num_nodes_list: has 4611686018427387904",
        ),
        ({"node_feat": np.zeros((49, 9))}, r"node_feat is float64 \(49, 9\), expected 50 rows of numbers"),
        ({"node_feat": np.full((50, 9), np.inf)}, "node_feat: feature 0 of node 0 is inf"),
        ({"node_label": np.full((49, 1), 1.0)}, r"node_label is float64 \(49, 1\), expected 50 rows"),
        ({"node_label": np.full((50, 1), 1.5)}, "node_label: node 0: label is 1.5"),
    ],
)
def test_bad_binary_folders_are_named(tmp_path, monkeypatch, changes, message):
    binary_folder(tmp_path, **changes)
    monkeypatch.setattr(ogb_binary, "CHUNK_ARCS", 33)
    refused("ogb", tmp_path, message)


@pytest.mark.parametrize("order", ["C", "F"])
def test_altered_binary_edges_are_noticed(tmp_path, order):
    binary_folder(tmp_path, np.savez_compressed, order)
    file = tmp_path / "raw" / "data.npz"
    with zipfile.ZipFile(file) as archive:
        middle = archive.getinfo("edge_index.npy").header_offset + 450
    whole = file.read_bytes()
    file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :])
    refused("ogb", tmp_path, r"data\.npz: edge_index: ")
    file.write_bytes(whole[:-30])
    refused("ogb", tmp_path, r"data\.npz")


def test_folders_without_a_data_set_are_refused(tmp_path):
    with pytest.raises(InputError, match="has no folder raw"):
        load("ogb", tmp_path)
    csv_folder(tmp_path / "a")
    csv_folder(tmp_path / "b")
    with pytest.raises(InputError, match=r"has several data sets \(a, b, \.\.\.\); name one"):
        load("ogb", tmp_path)


def test_second_count_is_refused_without_reading_on(tmp_path, monkeypatch):
    """What follows is not read: else its last line would be the mistake."""
    monkeypatch.setattr(text, "BLOCK", 4)
    csv_folder(tmp_path, **{"raw/num-node-list": "1\n" * 1000 + "x\n"})
    with pytest.raises(InputError, match=r"num-node-list\.csv\.gz: holds several counts"):
        load("ogb", tmp_path)
