"""shards: graphs of PyTorch Geometric and DGL become what the same files would."""

import importlib.util
import os
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from support.models.pyg import torch
from torch_geometric.data import Data, HeteroData

from mgg import interop, layout, partition
from mgg.errors import InputError
from mgg.graph.build import build
from mgg.graph.store import Graph

NODES, ARCS = 40, 200


def random_data(**more):
    """A directed graph with repeats and self-loops, with everything."""
    generator = torch.Generator().manual_seed(0)

    def draw(*size, high):
        return torch.randint(high, size, generator=generator)

    split = draw(NODES, high=4)
    values = {
        "edge_index": draw(2, ARCS, high=NODES),
        "x": torch.randn(NODES, 5, generator=generator),
        "y": draw(NODES, high=3) - 1,
        "train_mask": split == 1,
        "val_mask": split == 2,
        "test_mask": split == 3,
        "edge_weight": torch.rand(ARCS, generator=generator),
    }
    return Data(**(values | more))


class DglGraph:
    """What ``shards`` asks of a homogeneous dgl.DGLGraph (DGL 2.1), for machines without DGL."""

    is_homogeneous = True

    def __init__(self, data, weights="edge_weight"):
        self._ends, self._nodes = (data.edge_index[0], data.edge_index[1]), data.num_nodes
        names = {"x": "feat", "y": "label"}
        node_names = ("x", "y", "train_mask", "val_mask", "test_mask")
        self.ndata = {names.get(name, name): data[name] for name in node_names if data.get(name) is not None}
        self.edata = {} if data.edge_weight is None else {weights: data.edge_weight}

    def num_nodes(self):
        return self._nodes

    def edges(self):
        return self._ends


def real_dgl_graph(data, weights="edge_weight"):
    import dgl

    graph, stand_in = dgl.graph(tuple(data.edge_index), num_nodes=data.num_nodes), DglGraph(data, weights)
    graph.ndata.update(stand_in.ndata)
    graph.edata.update(stand_in.edata)
    return graph


needs_dgl = pytest.mark.skipif(importlib.util.find_spec("dgl") is None, reason="dgl is not installed")
LIBRARIES = [
    pytest.param(lambda data: data, id="pyg"),
    pytest.param(DglGraph, id="dgl stand-in"),
    pytest.param(real_dgl_graph, id="dgl", marks=needs_dgl),
]


#: What a source lists; a graph that is stored already lists what it kept.
COUNTED = ("listed_arcs", "dropped_loops", "dropped_repeats")


def content(folder):
    """All shards by their hashes, and the facts of the graph, but for where it comes from and what was left out."""
    return Graph.open(folder).manifest.model_dump(exclude={"source", *COUNTED})


@pytest.mark.parametrize("library", LIBRARIES)
def test_repeats_and_loops_follow_the_options(library, tmp_path):
    data = random_data()
    interop.shards(library(data), tmp_path / "graph", name="random", repeats="sum", loops="keep")
    found = Graph.open(tmp_path / "graph").rows(0, NODES).to_scipy(np.float64)
    sources, targets = data.edge_index.numpy()
    expected = sparse.coo_array((data.edge_weight.double().numpy(), (targets, sources)), shape=(NODES, NODES))
    assert abs(found - expected).max() < 1e-6
    assert expected.tocsr().diagonal().any()


@pytest.mark.parametrize("library", LIBRARIES)
def test_arcs_and_node_data_are_converted(library, tmp_path):
    data = random_data()
    manifest = interop.shards(library(data), tmp_path / "graph", name="random")
    graph = Graph.open(tmp_path / "graph")
    csr = graph.rows(0, NODES)
    sources, targets = data.edge_index.tolist()
    kept = {}
    for arc, weight in zip(zip(targets, sources, strict=True), data.edge_weight.tolist(), strict=True):
        if arc[0] != arc[1]:
            kept.setdefault(arc, weight)
    entries = sorted(kept.items())
    assert [(row, column) for (row, column), _ in entries] == list(zip(*csr.to_scipy().nonzero(), strict=True))
    np.testing.assert_array_equal(csr.weights, np.array([weight for _, weight in entries], np.float32))
    assert manifest.listed_arcs == ARCS and manifest.dropped_loops > 0 and manifest.dropped_repeats > 0
    np.testing.assert_array_equal(graph.features(0, NODES), data.x)
    np.testing.assert_array_equal(graph.labels(0, NODES), data.y)
    splits = 1 * data.train_mask + 2 * data.val_mask + 3 * data.test_mask
    np.testing.assert_array_equal(graph.splits(0, NODES), splits)


@pytest.mark.parametrize("library", LIBRARIES)
def test_unread_attributes_are_reported(library, tmp_path, caplog):
    data = library(random_data())
    if isinstance(data, Data):
        data.edge_attr, data.pos, expected = torch.ones(ARCS, 2), torch.ones(NODES, 3), {
            "attributes": {"ignored": ["edge_attr", "pos"]}
        }  # fmt: skip
    else:
        data.edata["time"], data.ndata["pos"] = torch.ones(ARCS), torch.ones(NODES, 3)
        expected = {"edges": {"ignored": ["time"]}, "nodes": {"ignored": ["pos"]}}
    manifest = interop.shards(data, tmp_path / "graph", name="random")
    assert manifest.source["columns"] == expected and "random: columns: " in caplog.text
    plain = interop.shards(library(random_data()), tmp_path / "plain", name="random")
    assert "columns" not in plain.source


@pytest.mark.skipif("MGG_DATA_DIR" not in os.environ, reason="MGG_DATA_DIR is not set: no real data here")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_shards_equal_those_of_the_data_set(name, library, tmp_path):
    build(name, tmp_path / "source")
    graph = Graph.open(tmp_path / "source")
    nodes = graph.manifest.nodes
    matrix = graph.rows(0, nodes).to_scipy().tocoo()
    splits = torch.tensor(graph.splits(0, nodes))
    masks = {f"{part}_mask": splits == code for code, part in enumerate(("train", "val", "test"), 1)}
    data = Data(
        x=torch.tensor(graph.features(0, nodes)),
        edge_index=torch.tensor(np.stack([matrix.col, matrix.row])[:, ::-1].astype(np.int64)),
        y=torch.tensor(graph.labels(0, nodes)),
        **masks,
    )
    interop.shards(library(data), tmp_path / "graph", name="mine")
    assert content(tmp_path / "graph") | {"name": name} == content(tmp_path / "source")


@pytest.mark.parametrize("weighted", [False, True])
def test_shards_equal_those_of_an_npz_file(weighted, tmp_path):
    data = random_data() if weighted else random_data(edge_weight=None)
    sources, targets = data.edge_index.numpy()
    values = np.ones(ARCS, np.float32) if data.edge_weight is None else data.edge_weight.numpy()
    # Of repeated arcs the first counts, which a matrix cannot say.
    _, first = np.unique(targets * NODES + sources, return_index=True)
    data.edge_index = data.edge_index[:, np.sort(first)]
    data.edge_weight = None if data.edge_weight is None else data.edge_weight[np.sort(first)]
    matrix = sparse.csr_matrix((values[first], (targets[first], sources[first])), (NODES, NODES))
    np.savez(
        tmp_path / "random.npz",
        **{f"adj_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr", "shape")},
        attr_matrix=data.x.numpy(),
    )
    build(tmp_path / "random.npz", tmp_path / "source")
    for name in ("y", "train_mask", "val_mask", "test_mask"):
        del data[name]
    interop.shards(data, tmp_path / "graph", name="random.npz")
    assert content(tmp_path / "graph") == content(tmp_path / "source")


def test_other_graph_forms_are_converted(tmp_path):
    ids, types = torch.arange(NODES), torch.arange(ARCS) % 3
    tasks = torch.tensor([[0.0, 1.0, torch.nan]]).repeat(NODES, 1)
    masks = {
        f"{part}_mask": torch.stack([ids == 0, ids % 4 == code], 1) for code, part in enumerate(("train", "val"), 1)
    }
    data = random_data(
        x=torch.eye(NODES).to_sparse(),
        y=tasks,
        test_mask=None,
        edge_weight=None,
        edge_type=types,
        strength=ids,
        **masks,
    )
    data.power = torch.arange(ARCS)[:, None]
    manifest = interop.shards(data, tmp_path / "graph", name="other", weights="power", split=1, order="degree")
    assert (manifest.relations, manifest.tasks, manifest.classes, manifest.order) == (3, 3, 0, "degree")
    graph = Graph.open(tmp_path / "graph")
    order, csr = graph.ids(0, NODES), graph.rows(0, NODES)
    np.testing.assert_array_equal(graph.features(0, NODES), np.eye(NODES)[order])
    np.testing.assert_array_equal(graph.tasks(0, NODES), np.tile([0, 1, 255], (NODES, 1)))
    np.testing.assert_array_equal(graph.splits(0, NODES), np.where(order % 4 < 3, order % 4, 0))
    arcs = csr.weights.astype(int)
    np.testing.assert_array_equal(csr.types, arcs % 3)
    np.testing.assert_array_equal(data.edge_index[0, arcs], order[csr.indices])


def test_any_mask_column_can_be_chosen(tmp_path):
    part = torch.arange(NODES) % 4
    columns = [torch.stack([part == first, part == second], 1) for first, second in ((1, 2), (2, 3))]
    data = random_data(train_mask=columns[0], val_mask=columns[1], test_mask=None)
    for split, expected in enumerate(([0, 1, 2, 0], [0, 0, 1, 2])):
        interop.shards(data, tmp_path / str(split), name="masks", split=split)
        found = Graph.open(tmp_path / str(split)).splits(0, NODES)
        np.testing.assert_array_equal(found, np.tile(expected, NODES // 4))
    for split in (-1, 2):
        with pytest.raises(InputError, match=r"train_mask has 2 columns: choose one with split, 0\.\.1"):
            interop.shards(data, tmp_path / "none", name="masks", split=split)


def test_bfloat16_features_become_float32(tmp_path):
    """NumPy has no such numbers."""
    narrow = random_data().edge_weight.to(torch.bfloat16)
    tasks = (torch.arange(2 * NODES) % 2).reshape(NODES, 2).to(torch.bfloat16)
    x = torch.rand(NODES, 3, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    values = {"edge_weight": narrow, "y": tasks, "x": x}
    interop.shards(random_data(**values), tmp_path / "bf16", name="same")
    interop.shards(random_data(**{key: each.float() for key, each in values.items()}), tmp_path / "fp32", name="same")
    assert content(tmp_path / "bf16") == content(tmp_path / "fp32")


def test_labels_may_be_one_column(tmp_path):
    data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([[0], [1], [1]]), num_nodes=3)
    manifest = interop.shards(data, tmp_path / "graph", name="few", symmetrize=True)
    assert (manifest.nodes, manifest.arcs, manifest.classes, manifest.features) == (3, 4, 2, 0)
    assert manifest.symmetric and not manifest.weighted


def bad(**more):
    return lambda: random_data(**more)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Data(x=torch.ones(3, 2)), "Data has no edge_index: expected"),
        (HeteroData, "HeteroData has no edge_index"),
        (
            lambda: SimpleNamespace(ndata={}, is_homogeneous=False),
            "several types of nodes or edges: dgl.to_homogeneous",
        ),
        (
            bad(edge_index=torch.tensor([[0, 1], [2, 40]]), edge_weight=None),
            "arc 1 joins nodes 1 and 40; nodes are 0..39",
        ),
        (bad(edge_index=torch.tensor([[0.5], [1.0]])), r"edge_index must be integers \[2, arcs\], found float32"),
        (bad(edge_weight=torch.ones(ARCS, 2)), r"edge_weight has shape \(200, 2\) of float32, expected 200 weights"),
        (bad(edge_weight=torch.ones(ARCS, dtype=torch.complex64)), "edge_weight has shape .* of complex64, expected"),
        (bad(edge_weight=torch.ones(ARCS).to_sparse()), r"wrong: edge_weight is sparse \(torch.sparse_coo\), expected"),
        (bad(edge_index=torch.ones(2, ARCS).to_sparse()), "wrong: edge_index is sparse"),
        (bad(edge_weight=[1.0] * ARCS), "wrong: edge_weight is a list, expected a torch.Tensor"),
        (bad(edge_weight=torch.full((ARCS,), torch.inf)), "edge_weight: weight of arc 0 is inf"),
        (bad(edge_weight=torch.full((ARCS,), 1e300, dtype=torch.float64)), r"edge_weight: weight of arc 0 is 1e\+300,"),
        (bad(edge_type=torch.ones(ARCS)), r"edge_type must be 200 integers, found float32 of shape \(200,\)"),
        (bad(edge_type=torch.full((ARCS,), -1)), r"edge_type of arc 0 is -1; types are 0\.\.2147483647"),
        (bad(edge_type=torch.arange(ARCS) // 199 << 31), "edge_type of arc 199 is 2147483648; types are"),
        (bad(x=[[1.0]] * NODES), "wrong: x is a list, expected a torch.Tensor"),
        (bad(x=torch.ones(NODES, 2, dtype=torch.complex64)), "x is torch.complex64, expected real numbers"),
        (bad(x=torch.ones(NODES)), r"x has shape \(40,\), expected \[40, columns\], of one column or more"),
        (bad(x=torch.ones(NODES, 0)), r"x has shape \(40, 0\), expected \[40, columns\], of one column or more"),
        (bad(x=torch.full((NODES, 2), torch.nan)), "feature of node 0, column 0 is nan"),
        (bad(y=torch.rand(NODES)), r"labels are float32 of shape \(40,\)"),
        (bad(y=torch.full((NODES, 2), 2)), "task 0 of node 0 is 2; expected 0, 1 or NaN"),
        (bad(y=torch.full((NODES,), -2)), "label"),
        (bad(y=torch.full((NODES,), 2**31)), r"label of node 0 is 2147483648; classes are 0\.\.2147483647"),
        (bad(y=[0] * NODES), "wrong: y is a list, expected a torch.Tensor"),
        (bad(y=torch.eye(NODES).to_sparse()), "wrong: y is sparse"),
        (bad(train_mask=[True] * NODES), "wrong: train_mask is a list, expected a torch.Tensor"),
        (
            bad(train_mask=torch.ones(NODES, 3, dtype=torch.bool)),
            r"train_mask has 3 columns: choose one with split, 0\.\.2",
        ),
        (
            bad(train_mask=torch.ones(3, dtype=torch.bool)),
            r"train_mask must be 40 booleans, found bool of shape \(3,\)",
        ),
        (bad(train_mask=torch.ones(NODES, dtype=torch.bool)), "is already in a split"),
    ],
)
def test_invalid_graphs_are_refused(make, message, tmp_path):
    with pytest.raises(InputError, match=message) as caught:
        interop.shards(make(), tmp_path / "graph", name="wrong")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "graph").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "name '': only letters"),
        ("a\nb, <b>", r"name 'a\\nb, <b>': only letters"),
        ("cora", "name 'cora': is that of a real data set"),
        (3, "name is a int: expected a str"),
    ],
)
def test_invalid_graph_name_is_refused(name, message, tmp_path):
    with pytest.raises(InputError, match=message) as caught:
        interop.shards(random_data(), tmp_path / "graph", name=name)
    assert "\n" not in str(caught.value) and not [*tmp_path.iterdir()]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("edge_wieght", "g: weights 'edge_wieght': the arcs have no such attribute"),
        ("edge_weight", "g: weights 'edge_weight': the arcs have no such attribute"),
        (3, "g: weights is a int: expected the name of an attribute, or None"),
    ],
)
def test_missing_weights_are_refused(weights, message, library, tmp_path):
    data = random_data(**{"edge_weight": None} if weights == "edge_weight" else {})
    with pytest.raises(InputError, match=message):
        interop.shards(library(data), tmp_path / "graph", name="g", weights=weights)
    assert not [*tmp_path.iterdir()]


def test_lazily_negated_tensors_are_resolved(tmp_path):
    parts = torch.complex(torch.rand(NODES, 4), torch.rand(NODES, 4))
    given = parts.conj().imag
    assert given.is_neg()
    interop.shards(random_data(x=given), tmp_path / "graph", name="g")
    np.testing.assert_array_equal(Graph.open(tmp_path / "graph").features(0, NODES), -parts.imag.numpy())


def test_multi_label_tasks_round_trip(tmp_path):
    tasks = torch.tensor([[0.0, 1.0, torch.nan]]).repeat(NODES, 1)
    tasks[3, 0] = 1
    interop.shards(random_data(y=tasks), tmp_path / "graph", name="g", order="degree")
    partition.build(tmp_path / "graph", tmp_path / "part", pes=2, scheme="equal_nodes", workgroup=8, dim=16)
    layout.build(tmp_path / "graph", tmp_path / "part", tmp_path / "layout")

    def program(graph):
        assert graph.y is None and graph.tasks.dtype == torch.float32
        assert torch.equal(graph.tasks.nan_to_num(7), tasks[graph.node_ids].nan_to_num(7))
        return graph.rows

    assert sum(interop.run(tmp_path / "layout", program, width=3, backend="simulated")) == NODES


def test_graph_in_memory_is_not_a_layout(tmp_path):
    with pytest.raises(
        InputError, match=r"folder is a Data: expected the path of a layout; mgg\.interop\.shards makes"
    ):
        interop.run(random_data(), print, width=3)
