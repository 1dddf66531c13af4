import json

import numpy as np
import pytest

from mgg.errors import InputError
from mgg.graph.sources import graphsage
from mgg.graph.sources.graphsage import load

GRAPH = {
    "directed": False,
    "graph": {"name": "x"},
    "nodes": [
        {"test": False, "id": 0, "val": False},
        {"test": False, "id": 1, "val": True, "more": [1, 2]},
        {"test": True, "id": 2, "val": False},
        {"test": False, "id": 3, "val": False},
    ],
    "links": [
        {"source": 0, "target": 1, "train_removed": True},
        {"source": 2, "target": 1},
        {"source": 2, "target": 2},
        {"source": 1, "target": 0},
    ],
    "multigraph": False,
}
FEATURES = np.arange(12, dtype=np.float64).reshape(4, 3)
CLASSES = {"0": [1, 0], "2": [0, 0], "1": [1, 1], "3": [0, 1]}


def write(folder, graph=GRAPH, features=FEATURES, classes=CLASSES, indent=None):
    folder.mkdir(exist_ok=True)
    (folder / "x-G.json").write_text(graph if isinstance(graph, str) else json.dumps(graph, indent=indent))
    if features is not None:
        np.save(folder / "x-feats.npy", features)
    if classes is not None:
        (folder / "x-class_map.json").write_text(json.dumps(classes))
    return folder


def changed(**changes):
    """The graph with some fields changed; ``node`` and ``link`` change fields of the second one."""
    graph = json.loads(json.dumps(GRAPH))
    graph["nodes"][1].update(changes.pop("node", {}))
    graph["links"][1].update(changes.pop("link", {}))
    return {**graph, **changes}


@pytest.mark.parametrize("indent", [None, 2])
def test_small_graph_is_read_completely(tmp_path, monkeypatch, indent):
    monkeypatch.setattr(graphsage, "CHUNK_ARCS", 3)
    monkeypatch.setattr(graphsage, "FEATURE_ROWS", 3)
    graph = load(write(tmp_path / "raw", indent=indent))
    chunks = list(graph.arcs.read())
    assert [len(chunk.targets) for chunk in chunks] == [3, 1]
    assert np.concatenate([chunk.sources for chunk in chunks]).tolist() == [0, 2, 2, 1]
    assert np.concatenate([chunk.targets for chunk in chunks]).tolist() == [1, 1, 2, 0]
    assert (graph.arcs.nodes, graph.arcs.undirected) == (4, True)
    blocks = list(graph.features.read())
    assert [block.dtype for block in blocks] == [np.float32] * 2
    assert np.array_equal(np.concatenate(blocks), FEATURES)
    assert graph.splits.tolist() == [1, 2, 3, 1]
    assert graph.tasks.tolist() == [[1, 0], [1, 1], [0, 0], [0, 1]]


def test_directed_graph_without_node_data_is_read(tmp_path):
    graph = load(write(tmp_path / "raw", changed(directed=True), None, None) / "x-G.json")
    assert not graph.arcs.undirected
    assert (graph.features, graph.tasks) == (None, None)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("{", "no graph in JSON"),
        ("[1]", "no graph in JSON"),
        (json.dumps(GRAPH) * 2, "expected one JSON object"),
        ({"nodes": GRAPH["nodes"]}, "expected one JSON object with nodes and links"),
        (changed(nodes=[]), "has no nodes"),
        (changed(node={"id": 7}), r"node 1 \(from 0\) has id 7; expected 0, 1"),
        (changed(node={"id": None}), r"node 1 \(from 0\) has no id"),
        (changed(node={"test": True}), "node 1 is in the validation and the test split"),
        (changed(node={"val": "yes"}), "no graph in JSON"),
        (changed(link={"target": 4}), r"link 1 \(from 0\): target 4; nodes are 0\.\.3"),
        (changed(link={"source": -1}), r"link 1 \(from 0\): source -1"),
        (changed(link={"source": "a"}), "no graph in JSON"),
        (changed(link={"target": None}), r"link 1 \(from 0\) has no target"),
    ],
)
def test_invalid_graph_json_is_refused(tmp_path, graph, message):
    with pytest.raises(InputError, match=rf"x-G\.json: .*{message}") as caught:
        load(write(tmp_path / "raw", graph))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ({"0": [1]}, "expected an object with the classes of 4 nodes"),
        ({**CLASSES, "2": [1]}, "node 2: expected a list of 2 numbers"),
        ({**CLASSES, "2": [1, 2]}, "node 2: expected a list of 2 numbers"),
        ({**CLASSES, "0": []}, "node 0: expected a list of some numbers"),
        ({"0": [1], "1": [1], "2": [1], "4": [1]}, "node 3: expected a list"),
    ],
)
def test_invalid_class_map_is_refused(tmp_path, classes, message):
    with pytest.raises(InputError, match=rf"x-class_map\.json: {message}"):
        load(write(tmp_path / "raw", classes=classes))


@pytest.mark.parametrize("features", [FEATURES[:3], FEATURES[0], FEATURES[:, :0], FEATURES.astype(str)])
def test_invalid_features_are_refused(tmp_path, features):
    with pytest.raises(InputError, match=r"x-feats\.npy: .*expected numbers \[4, columns\]"):
        load(write(tmp_path / "raw", features=features))


def test_truncated_or_hostile_features_and_classes_are_refused(tmp_path):
    raw = write(tmp_path / "raw")
    data = (raw / "x-feats.npy").read_bytes()
    for wrong in (b"", data[:20], data[:-1]):
        (raw / "x-feats.npy").write_bytes(wrong)
        with pytest.raises(InputError, match=r"x-feats\.npy: no array"):
            load(raw)
    np.save(raw / "x-feats.npy", np.array([{}] * 4, dtype=object))
    with pytest.raises(InputError, match=r"x-feats\.npy: object of shape \(4,\); expected numbers"):
        load(raw)
    np.savez(raw / "x-feats.npz", FEATURES)
    (raw / "x-feats.npz").rename(raw / "x-feats.npy")
    with pytest.raises(InputError, match=r"x-feats\.npy: no array"):
        load(raw)
    (raw / "x-feats.npy").write_bytes(data)
    for wrong in ("", "{", "[" * 100_000):
        (raw / "x-class_map.json").write_text(wrong)
        with pytest.raises(InputError, match=r"x-class_map\.json: not readable as JSON"):
            load(raw)


def test_too_long_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(graphsage, "MOST_BYTES", 99)
    with pytest.raises(InputError, match="JSON graphs of 2 GiB and more"):
        load(write(tmp_path / "raw"))


def test_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"x-G\.json: No such file"):
        load(tmp_path / "x-G.json")
    with pytest.raises(InputError, match=r"0 files end in -g\.json"):
        load(tmp_path)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e39])
def test_nonfinite_features_are_named(tmp_path, monkeypatch, value):
    monkeypatch.setattr(graphsage, "FEATURE_ROWS", 3)
    features = FEATURES.copy()
    features[3, 1] = value
    graph = load(write(tmp_path / "raw", features=features))
    with pytest.raises(InputError, match=r"x-feats\.npy: feature of node 3, column 1 is .*, not a finite float32"):
        list(graph.features.read())


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i2"])
def test_features_of_every_dtype_are_read(tmp_path, order, dtype):
    graph = load(write(tmp_path / "raw", features=np.asarray(FEATURES, dtype, order=order)))
    (block,) = graph.features.read()
    assert block.dtype == np.float32
    assert np.array_equal(block, FEATURES)
