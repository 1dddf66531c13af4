"""Files that people have: arcs and node data as SciPy or NetworkX have them, and what is not read is said."""

import io
import sys
import tarfile
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import scipy.io
from scipy import sparse
from text_helpers import PACK, arcs_of, features_of, load

from mgg.errors import InputError, MachineError
from mgg.graph.io.endings import COMPRESSIONS
from mgg.graph.sources import loader_of
from mgg.graph.user_files import needs_loader

TEXTS = {
    "a.csv": ("table", "source,target,weight\n0,1,0.5\n2,0,2\n", [(0, 1, 0.5), (2, 0, 2.0)]),
    "a.tsv": ("table", "source\ttarget\n0\t1\n", [(0, 1)]),
    "a.txt": ("snap", "# pairs\n0 1\n2 0\n", [(0, 1), (2, 0)]),
    "a.edges": ("snap", "0 1\n", [(0, 1)]),
    "a.edgelist": ("snap", "0 1\n", [(0, 1)]),
    "a.mtx": ("matrix_market", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 0.5\n", [(1, 0, 0.5)]),
    "a.graph": ("metis", "2 1\n2\n1\n", [(1, 0), (0, 1)]),
}


@pytest.mark.parametrize("compression", ["", *COMPRESSIONS])
@pytest.mark.parametrize("name", TEXTS)
def test_every_text_format_is_read_under_every_compression(tmp_path, name, compression):
    loader, text, arcs = TEXTS[name]
    path = tmp_path / (name + compression)
    path.write_bytes(PACK[compression](text.encode()))
    assert loader_of(path) == loader
    assert arcs_of(load(loader, path).arcs) == arcs


def rows(stream) -> set[tuple]:
    """Row, column and weight of each arc."""
    return {(target, source, *np.float32(more).tolist()) for source, target, *more in arcs_of(stream)}


def entries(matrix) -> set[tuple]:
    coo = sparse.coo_array(matrix)
    return set(zip(coo.row.tolist(), coo.col.tolist(), np.float32(coo.data).tolist(), strict=True))


def packed(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def mtx(matrix) -> bytes:
    out = io.BytesIO()
    scipy.io.mmwrite(out, sparse.coo_array(matrix))
    return out.getvalue()


MATRIX = sparse.random_array((7, 7), density=0.3, rng=np.random.default_rng(1), format="csc")


@pytest.mark.parametrize("ending", [".tar.gz", ".tgz"])
def test_suitesparse_archive_is_read(tmp_path, ending):
    files = {
        "web/web.mtx": mtx(MATRIX),
        "web/web_b.mtx": mtx(np.ones((7, 1))),
        "web/web_coord.mtx": mtx(np.ones((7, 2))),
    }
    path = packed(tmp_path / f"web{ending}", files)
    assert loader_of(path) == "matrix_market"
    graph = load("matrix_market", path)
    assert rows(graph.arcs) == entries(MATRIX) == rows(graph.arcs), "as often as it is asked for"
    assert graph.columns == {"edges": {"matrix": "web.mtx", "ignored": ["web_b.mtx", "web_coord.mtx"]}}


def saved(path: Path, **members) -> Path:
    np.savez(path, **members)
    return path


RNG = np.random.default_rng(0)
EDGES = np.array([[0, 1], [1, 2], [3, 0], [4, 4]])
X = RNG.random((5, 3), dtype=np.float32)
Y = np.array([0, 1, 1, 0, 2])
MASK = np.array([True, False, False, False, False])


def test_heterophilous_graph_files_are_read(tmp_path):
    masks = [np.stack([np.roll(MASK, shift + split) for split in range(10)]) for shift in range(3)]
    path = saved(
        tmp_path / "minesweeper.npz", edges=EDGES, node_features=X, node_labels=Y, train_masks=masks[0],
        val_masks=masks[1], test_masks=masks[2],
    )  # fmt: skip
    graph = load("npz", path)
    assert graph.arcs.undirected and graph.arcs.nodes == 5
    assert arcs_of(graph.arcs) == [tuple(edge) for edge in EDGES.tolist()]
    np.testing.assert_array_equal(features_of(graph), X)
    np.testing.assert_array_equal(graph.labels, Y)
    assert graph.splits.tolist() == [1, 2, 3, 0, 0]
    assert graph.columns == {
        "edges": {"source": "edges[0]", "target": "edges[1]", "direction": "each edge stands for both"},
        "nodes": {
            "label": "node_labels", "features": "node_features",
            "split": ["train_masks[0] of 10", "val_masks[0] of 10", "test_masks[0] of 10"],
        },
    }  # fmt: skip


def test_gnnadvisor_files_are_read(tmp_path):
    path = saved(tmp_path / "a.npz", src_li=EDGES[:, 0], dst_li=EDGES[:, 1], num_nodes=7, odd=np.zeros(2))
    graph = load("npz", path)
    assert (graph.arcs.nodes, graph.arcs.undirected, graph.features) == (7, False, None)
    assert arcs_of(graph.arcs) == [tuple(edge) for edge in EDGES.tolist()]
    assert graph.columns == {
        "edges": {"source": "src_li", "target": "dst_li"}, "members": {"ignored": ["odd"]},
    }  # fmt: skip


@pytest.mark.parametrize("weights", [None, np.array([0.5, 1, 2, 3])])
def test_pyg_edge_files_are_read(tmp_path, weights):
    members = {"edge_index": EDGES.T, "x": X, "y": Y.reshape(-1, 1), "train_mask": MASK, "test_mask": np.roll(MASK, 1)}
    members |= {} if weights is None else {"edge_weight": weights}
    graph = load("npz", saved(tmp_path / "a.npz", **members))
    pairs = [tuple(edge) for edge in EDGES.tolist()]
    found = pairs if weights is None else [(*pair, w) for pair, w in zip(pairs, weights.tolist(), strict=True)]
    assert arcs_of(graph.arcs) == found and graph.arcs.nodes == 5
    assert graph.labels.tolist() == Y.tolist() and graph.splits.tolist() == [1, 3, 0, 0, 0]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"edge_index": np.zeros((3, 4), int)}, r"edge_index: has shape \(3, 4\); expected pairs of ids"),
        ({"src_li": EDGES[:, 0], "dst_li": EDGES[:2, 1]}, r"src_li: \(4,\) and \(2,\); expected as many"),
        ({"edge_index": EDGES.T, "x": X[:3]}, "arc 2: node id 3 is outside 0..2"),
        ({"edge_index": EDGES.T, "y": Y, "train_mask": MASK, "val_mask": MASK}, "val_mask: has node 0, which another"),
        ({"edge_index": EDGES.T, "y": Y, "train_mask": Y}, "train_mask: int64 of shape .* expected a mask of 5 nodes"),
        ({"edge_index": EDGES.T, "edge_weight": np.full(3, 0.5)}, "edge_weight: expected a weight for each edge"),
        ({"edge_index": np.zeros((2, 0), int)}, "has no edges, so no nodes"),
    ],
)
def test_invalid_edges_name_their_member(tmp_path, members, message):
    with pytest.raises(InputError, match=message):
        arcs_of(load("npz", saved(tmp_path / "a.npz", **members)).arcs)


def test_metis_graph_is_read(tmp_path):
    """Sizes and two weights of nodes, weights of edges, a comment and a node without neighbours."""
    graph = nx.Graph()
    graph.add_nodes_from(range(4))
    graph.add_weighted_edges_from([(0, 1, 2.5), (0, 2, 3), (1, 2, 1)])
    text = "% made by hand\n4 3 111 2\n"
    for node in graph:
        pairs = [f"{other + 1} {edge['weight']:g}" for other, edge in graph[node].items()]
        text += f"1 7 8 {' '.join(pairs)}\n"
    (tmp_path / "a.graph").write_text(text)
    read = load("metis", tmp_path / "a.graph")
    found = read.arcs
    assert found.nodes == 4
    assert rows(found) == entries(nx.to_scipy_sparse_array(graph, nodelist=range(4)))
    assert read.columns == {"nodes": {"ignored": ["sizes", "weights (2 of each node)"]}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2 one\n", "line 1: expected nodes, edges"),
        ("2 1 002\n2\n1\n", "line 1: expected nodes"),
        ("2 1\n2\n", "ends after 1 nodes; line 1 promises 2"),
        ("2 2\n2\n1\n", "lists 2 neighbours; line 1 promises 2 edges"),
        ("2 1\n3\n1\n", "line 2: neighbour 3 is outside 1..2"),
        ("2 1\n2\n1\n1\n", "line 4: is beyond the 2 nodes of line 1"),
        ("2 1 1\n2\n1 1\n", "line 2: has 1 numbers: 0 of the node and 2 for each"),
        ("2 1\nx\n1\n", "line 2: holds something that is no number"),
        ("2 1 1\n2 1e-50\n1 1\n", "line 2: a weight is 1e-50, too small"),
    ],
)
def test_invalid_metis_graph_names_its_line(tmp_path, text, message):
    (tmp_path / "a.graph").write_text(text)
    with pytest.raises(InputError, match=message):
        arcs_of(load("metis", tmp_path / "a.graph").arcs)


@pytest.mark.parametrize("struct", [False, True])
def test_matlab_matrix_is_read(tmp_path, struct):
    path = tmp_path / "a.mat"
    held = {"A": MATRIX, "name": "web"}
    scipy.io.savemat(path, {"Problem": held} if struct else {"A": MATRIX, "local_info": np.ones((7, 3))})
    assert loader_of(path) == "matlab"
    graph = load("matlab", path)
    assert rows(graph.arcs) == entries(MATRIX)
    name, other = ("Problem.A", "Problem.name") if struct else ("A", "local_info")
    assert graph.columns == {"edges": {"matrix": name, "ignored": [other]}}


def test_matlab_file_without_a_graph_is_refused(tmp_path):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"A": MATRIX, "B": MATRIX})
    with pytest.raises(InputError, match=r"square sparse matrices: A, B; one is expected: save"):
        load("matlab", path)
    scipy.io.savemat(path, {"A": MATRIX[:3]})
    with pytest.raises(InputError, match="square sparse matrices: none"):
        load("matlab", path)
    path.write_bytes(b"MATLAB 7.3 MAT-file, Platform: GLNXA64")
    with pytest.raises(InputError, match=r"is of MATLAB 7.3: save it there by save\(..., '-v7'\)"):
        load("matlab", path)
    path.write_bytes(b"nonsense" * 100)
    with pytest.raises(InputError, match="not a whole MATLAB file"):
        load("matlab", path)


TABLE = pa.table({"src": [0, 3, 1, 2], "dst": [1, 0, 2, 3], "w": [0.5, 1.5, 2.0, 3.0], "type": [0, 0, 1, 1]})
LISTED = list(zip(*(TABLE[name].to_pylist() for name in ("src", "dst", "w", "type")), strict=True))


def test_spark_output_folder_is_read(tmp_path, caplog):
    folder = tmp_path / "edges.parquet"
    folder.mkdir()
    for number in range(2):
        part = folder / f"part-0000{number}-7f0c.c000.snappy.parquet"
        pq.write_table(TABLE.slice(2 * number, 2), part, compression="snappy")
        (folder / f".{part.name}.crc").write_bytes(b"crc")
    (folder / "_SUCCESS").touch()
    assert loader_of(folder) == "table"
    assert arcs_of(load("table", folder).arcs) == LISTED
    assert "2 Parquet files are read as one table" in caplog.text
    assert arcs_of(load("table", tmp_path).arcs) == LISTED, "beside a table of nodes, perhaps"


def test_hive_partitioned_folder_is_read(tmp_path):
    """As Hive has them; pyarrow's own reader of data sets says the same."""
    ds.write_dataset(
        TABLE, tmp_path / "typed", format="parquet",
        partitioning=ds.partitioning(pa.schema([("type", pa.int64())]), flavor="hive"),
    )  # fmt: skip
    read = ds.dataset(tmp_path / "typed", partitioning="hive").to_table().to_pydict()
    expected = sorted(zip(*(read[name] for name in ("src", "dst", "w", "type")), strict=True))
    assert sorted(arcs_of(load("table", tmp_path / "typed").arcs)) == expected == sorted(LISTED)


def test_parquet_files_with_different_columns_are_refused(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet")
    pq.write_table(TABLE.drop_columns("w"), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet: has other columns than .*a\.parquet"):
        load("table", tmp_path)


GRAPH = nx.DiGraph()
GRAPH.add_nodes_from(range(4), colour="red")
GRAPH.add_weighted_edges_from([(0, 1, 0.5), (2, 0, 1.5), (2, 2, 1)])


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("name", ["a.graphml", "a.graphml.gz", "a.gml", "a.gml.bz2"])
def test_networkx_files_are_read(tmp_path, name, directed):
    graph = GRAPH if directed else GRAPH.to_undirected()
    (nx.write_gml if ".gml" in name else nx.write_graphml)(graph, tmp_path / name)
    assert loader_of(tmp_path / name) == "networkx"
    found = load("networkx", tmp_path / name)
    assert found.arcs.undirected is not directed and found.arcs.nodes == 4 and found.ids is None
    expected = sorted((a, b, w) for a, b, w in graph.edges(data="weight"))
    assert sorted(arcs_of(found.arcs)) == expected
    # GML has nodes' names as labels.
    others = ["colour", "label"] if ".gml" in name else ["colour"]
    assert found.columns == {"edges": {"weight": "weight"}, "nodes": {"ignored": others}}


def test_numeric_node_names_are_kept(tmp_path):
    nx.write_graphml(nx.relabel_nodes(GRAPH, {node: 10 * node + 5 for node in GRAPH}), tmp_path / "a.graphml")
    assert load("networkx", tmp_path / "a.graphml").ids.tolist() == [5, 15, 25, 35]
    nx.write_graphml(nx.relabel_nodes(GRAPH, {node: f"n{node}" for node in GRAPH}), tmp_path / "a.graphml")
    assert load("networkx", tmp_path / "a.graphml").ids is None


def test_invalid_graphml_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.graphml"
    path.write_text("<graphml><graph>")
    with pytest.raises(InputError, match="not a whole GraphML file: "):
        load("networkx", path)
    graph = GRAPH.copy()
    del graph[0][1]["weight"]
    nx.write_graphml(graph, path)
    with pytest.raises(InputError, match="2 of 3 edges have a weight"):
        load("networkx", path)
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(MachineError, match=r"pip install 'mgg\[networkx\]'"):
        load("networkx", path)


@pytest.mark.parametrize("width", [np.int32, np.int64])
def test_files_of_the_mgg_artifact_are_read(tmp_path, width):
    matrix = sparse.csr_array(MATRIX)
    matrix.indptr.astype(np.int64).tofile(tmp_path / "web_beg_pos.bin")
    matrix.indices.astype(width).tofile(tmp_path / "web_csr.bin")
    matrix.data.tofile(tmp_path / "web_weight.bin")
    pattern = sparse.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), matrix.shape)
    for path in (tmp_path, tmp_path / "web_csr.bin", tmp_path / "web_beg_pos.bin"):
        assert {(row, column, 1.0) for column, row in arcs_of(load("csr_binary", path).arcs)} == entries(pattern)
    assert loader_of(tmp_path / "web_csr.bin") == "csr_binary"
    (left,) = load("csr_binary", tmp_path).columns["edges"]["ignored"]
    assert left.startswith("web_weight.bin")
    np.append(matrix.indices[:-1], 7).astype(width).tofile(tmp_path / "web_csr.bin")
    with pytest.raises(InputError, match=rf"arc {matrix.nnz - 1}: node id 7 is outside 0\.\.6"):
        arcs_of(load("csr_binary", tmp_path).arcs)
    (tmp_path / "web_csr.bin").write_bytes(b"odd")
    with pytest.raises(InputError, match=r"web_csr\.bin: has 3 bytes"):
        load("csr_binary", tmp_path)
    matrix.indptr[::-1].astype(np.int64).tofile(tmp_path / "web_beg_pos.bin")
    with pytest.raises(InputError, match="not the row pointers of a graph"):
        load("csr_binary", tmp_path)


@pytest.mark.parametrize("indices", [False, True])
def test_geom_gcn_files_are_read(tmp_path, indices):
    """Rows of numbers, or as in film the columns that are 1."""
    features = np.array([[1, 0, 1], [0, 0, 1], [0, 1, 0]])
    rows = [np.flatnonzero(row) if indices else row for row in features]
    nodes = [f"{node}\t{','.join(map(str, row))}\t{node % 2}" for node, row in enumerate(rows)]
    (tmp_path / "out1_node_feature_label.txt").write_text("\n".join(["node_id\tfeature\tlabel", *nodes[::-1]]) + "\n")
    (tmp_path / "out1_graph_edges.txt").write_text("node_id\tnode_id\n0\t1\n2\t0\n")
    for split in range(2):
        masks = {
            name: np.roll([1, 0, 0], at + split) for at, name in enumerate(("train_mask", "val_mask", "test_mask"))
        }
        np.savez(tmp_path / f"film_split_0.6_0.2_{split}.npz", **masks)
    graph = load("geom_gcn", tmp_path)
    assert arcs_of(graph.arcs) == [(0, 1), (2, 0)] and graph.labels.tolist() == [0, 1, 0]
    np.testing.assert_array_equal(features_of(graph), features)
    assert graph.splits.tolist() == [1, 2, 3]
    assert graph.columns == {"nodes": {"split": "film_split_0.6_0.2_0.npz", "ignored": ["film_split_0.6_0.2_1.npz"]}}
    (tmp_path / "out1_node_feature_label.txt").write_text("node_id\tfeature\tlabel\n0\t1\t0\n0\t1\t0\n")
    with pytest.raises(InputError, match="line 3: node 0 is there twice"):
        load("geom_gcn", tmp_path)


@pytest.mark.parametrize(
    ("name", "how"), [("a.pt", "torch.load"), ("a.pth", "torch.load"), ("a.bin", "dgl.load_graphs")]
)
def test_library_files_are_refused_naming_a_converter(name, how):
    assert loader_of(Path(name)) is None
    assert how in needs_loader(Path(name), "--loader") and "mgg.interop.shards" in needs_loader(Path(name), "--loader")
