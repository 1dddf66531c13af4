"""What files hold that is not in the graph is told on standard error and in the manifest, whatever the loader."""

import gzip
import json

import networkx
import numpy as np
import pandas
import pytest
import scipy.io
from scipy import sparse

from mgg.errors import InputError
from mgg.graph.build import build
from mgg.graph.csr import row_ids
from mgg.graph.sources import find_loader
from mgg.graph.store import Graph

N = 6
MATRIX = sparse.random_array((N, N), density=0.4, rng=np.random.default_rng(2), format="coo")
TU = {
    "A": "1, 2\n2, 1\n3, 4\n4, 3\n1, 2\n",
    "graph_indicator": "1\n1\n2\n2\n",
    "graph_labels": "1\n-1\n",
    "edge_labels": "7\n7\n-2\n9\n-2\n",
    "edge_attributes": "0.5\n0.5\n1\n1\n2\n",
    "graph_attributes": "0.1\n0.2\n",
    "node_labels": "0\n1\n0\n1\n",
    "node_attributes": "1, 2\n3, 4\n5, 6\n7, 8\n",
    "label_readme": "words\n",
}


def tu(folder, **changes):
    for part, text in (TU | changes).items():
        if text is not None:
            (folder / f"T_{part}.txt").write_text(text)
    return folder


def graphsage(folder, rows=None):
    nodes = [{"id": node, "test": False, "val": node == 1, "feature": [1, "]\\"]} for node in range(N)]
    links = [{"source": 0, "target": 1, "weight": 2}, {"source": 2, "target": 1, 'odd " name': None}]
    graph = {"directed": False, "nodes": nodes, "links": links, "graph": {"note": 'no "field": here'}}
    (folder / "x-G.json").write_text(json.dumps(graph))
    (folder / "x-walks.txt").write_text("0\t1\n")
    (folder / "x-id_map.json").write_text(json.dumps({str(node): node for node in range(N)} | (rows or {})))
    return folder


def graphml(folder):
    graph = networkx.DiGraph(source="made by hand")
    graph.add_edge("a", "b", weight=0.5, year=2001)
    graph.add_node("b", colour="red")
    networkx.write_graphml(graph, folder / "a.graphml")
    return folder / "a.graphml"


def matrix_market(folder):
    scipy.io.mmwrite(folder / "a.mtx", MATRIX, comment="name: web\nkind: directed\n\n")
    return folder / "a.mtx"


def save_npz(folder):
    coo = {"row": MATRIX.row, "col": MATRIX.col, "data": MATRIX.data, "shape": MATRIX.shape, "format": b"coo"}
    np.savez(folder / "a.npz", **coo, years=np.arange(3))
    return folder / "a.npz"


def gnn_benchmark(folder):
    csr = MATRIX.tocsr()
    parts = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr, "shape": csr.shape}
    members = {f"adj_{part}": values for part, values in parts.items()}
    np.savez(folder / "a.npz", **members, labels=np.arange(N) % 2, class_names=["a", "b"], attr_text=np.arange(2))
    return folder / "a.npz"


def reddit(folder):
    sparse.save_npz(folder / "r_graph.npz", MATRIX)
    data = {"feature": np.ones((N, 2)), "label": np.zeros(N, int), "node_types": np.ones(N, int)}
    np.savez(folder / "r_data.npz", **data, node_ids=np.arange(N))
    return folder


def ogb(folder):
    files = {"num-node-list": f"{N}\n", "num-edge-list": "2\n", "edge": "0,1\n1,2\n", "node-feat": "1\n" * N}
    files |= {"node-label": "0\n" * N, "node_year": "2001\n" * N, "edge-feat": "1,2\n3,4\n"}
    (folder / "raw").mkdir()
    for name, text in files.items():
        (folder / "raw" / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def ogb_means(folder):
    ogb(folder)
    (folder / "raw" / "node-feat.csv.gz").unlink()
    return folder


def ogb_binary(folder):
    (folder / "raw").mkdir()
    members = {"edge_index": np.array([[0, 1], [1, 2]]), "num_nodes_list": [N], "num_edges_list": [2]}
    np.savez(folder / "raw" / "data.npz", **members, node_year=np.arange(N))
    return folder


def geom_gcn(folder):
    (folder / "out1_graph_edges.txt").write_text("node_id\tnode_id\n0\t1\n")
    rows = "".join(f"{node}\t{node},1\t0\n" for node in range(3))
    (folder / "out1_node_feature_label.txt").write_text(f"node_id\tfeature\tlabel\n{rows}")
    (folder / "words.txt").write_text("0 theory\n")
    masks = {name: np.arange(3) == at for at, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    np.savez(folder / "t_split_0.npz", **masks, seed=1)
    return folder


def rdf(folder):
    (folder / "a.nt").write_text("<urn:a> <urn:p> <urn:b> .\n")
    (folder / "completeDataset.tsv").write_text("person\tid\tlabel_group\tlabel_age\nurn:a\t1\tx\t30\n")
    return folder


def julia(folder):
    (folder / "a.jlg").write_text("3,1,d,web of 2001\n1,2\n")
    return folder / "a.jlg"


CASES = {
    "tu": (tu, "tu", {
        "edges": {"type": "edge_labels", "ignored": ["edge_attributes"]},
        "nodes": {"label": "graph_labels", "features": "node_attributes", "ignored": ["node_labels"]},
        "graphs": {"ignored": ["graph_attributes"]},
        "files": {"ignored": ["label_readme"]},
    }),
    "graphsage": (graphsage, "graphsage", {
        "nodes": {"split": ["val", "test"]},
        "fields": {"ignored": ["feature", "graph", "note", 'odd \\" name', "weight"]},
        "files": {"ignored": ["x-walks.txt"]},
    }),
    "graphml": (graphml, None, {
        "edges": {"weight": "weight", "ignored": ["year"]},
        "nodes": {"ignored": ["the names of nodes, which are numbered in the order of the file", "colour"]},
        "graph": {"ignored": ["source"]},
    }),
    "matrix market": (matrix_market, None, {"edges": {"ignored": ["comments (2 lines)"]}}),
    "save_npz": (save_npz, None, {"members": {"ignored": ["years"]}}),
    "gnn-benchmark": (gnn_benchmark, None, {
        "nodes": {"label": "labels", "split": "seed 0"}, "members": {"ignored": ["attr_text", "class_names"]},
    }),
    "reddit": (reddit, "npz", {
        "nodes": {"label": "label", "split": "node_types", "features": "feature"}, "members": {"ignored": ["node_ids"]},
    }),
    "ogb": (ogb, "ogb", {
        "nodes": {"label": "node-label.csv.gz", "features": "node-feat.csv.gz"},
        "files": {"ignored": ["edge-feat.csv.gz", "node_year.csv.gz"]},
    }),
    "ogb, features of arcs": (ogb_means, "ogb", {
        "nodes": {"label": "node-label.csv.gz", "features": "means of edge-feat.csv.gz over each node's arcs"},
        "files": {"ignored": ["node_year.csv.gz"]},
    }),
    "ogb, binary": (ogb_binary, "ogb", {"members": {"ignored": ["node_year"]}}),
    "geom_gcn": (geom_gcn, "geom_gcn", {
        "nodes": {"split": "t_split_0.npz", "ignored": ["t_split_0.npz: seed"]}, "files": {"ignored": ["words.txt"]},
    }),
    "rdf": (rdf, "rdf", {"nodes": {"label": "label_group", "ignored": ["id", "label_age"]}}),
    "julia": (julia, None, {
        "edges": {"source": "column 1", "target": "column 2", "ignored": ["of line 1 web of 2001"]},
    }),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_unread_data_are_reported(tmp_path, caplog, name):
    write, loader, expected = CASES[name]
    (tmp_path / "given").mkdir()
    manifest = build(write(tmp_path / "given"), tmp_path / "graph", loader=loader, name="given")
    assert manifest.source["columns"] == expected
    (line,) = [text for text in map(str, caplog.messages) if ": columns: " in text]
    for roles in expected.values():
        ignored = roles.get("ignored", [])
        assert f"ignored {', '.join(ignored)}" in line if ignored else True


def test_many_names_are_counted_on_standard_error_and_kept_in_the_manifest(tmp_path, caplog):
    more = {f"more{number:02}": np.zeros(1) for number in range(20)}
    np.savez(tmp_path / "a.npz", edge_index=np.array([[0], [1]]), **more)
    manifest = build(tmp_path / "a.npz", tmp_path / "graph")
    assert manifest.source["columns"]["members"]["ignored"] == sorted(more)
    assert "members: ignored more00, more01, more02, more03, more04, more05, more06, more07, ... (20)" in caplog.text


def test_edge_labels_become_arc_types(tmp_path):
    """Against the files as pandas reads them; labels are numbered in ascending order."""
    (tmp_path / "given").mkdir()
    manifest = build(tu(tmp_path / "given"), tmp_path / "graph", loader="tu")
    csr = Graph.open(tmp_path / "graph").rows(0, manifest.nodes)
    frame = pandas.read_csv(tmp_path / "given" / "T_A.txt", header=None, names=["row", "column"]) - 1
    label = pandas.read_csv(tmp_path / "given" / "T_edge_labels.txt", header=None)[0]
    frame["type"] = label.rank(method="dense").astype(int) - 1
    expected = frame.drop_duplicates().sort_values(["row", "column", "type"])
    found = zip(row_ids(csr).tolist(), csr.indices.tolist(), csr.types.tolist(), strict=True)
    assert list(found) == list(expected.itertuples(index=False, name=None))
    assert manifest.relations == label.nunique() and manifest.dropped_repeats == 0


def test_multiple_edge_labels_are_not_read(tmp_path):
    found = find_loader("tu")(tu(tmp_path, edge_labels="7, 1\n7, 1\n-2, 1\n9, 0\n-2, 0\n"))
    assert found.arcs.relations == 0 and all(arcs.types is None for arcs in found.arcs.read())
    assert "edge_labels" in found.columns["edges"]["ignored"] and "type" not in found.columns["edges"]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("7\n7\n-2\n9\n", r"T_edge_labels\.txt: ends after 4 labels: T_A\.txt lists more edges"),
        ("7\n7\n-2\n9\n1\n1\n", r"T_edge_labels\.txt: lists more labels than the 5 edges of T_A\.txt"),
        ("7\n7\nx\n9\n1\n", r"T_edge_labels\.txt: line 3: edge label is 'x', not a whole number"),
        ("7\n7, 1\n-2\n9\n1\n", r"T_edge_labels\.txt: line 2: 2 fields, expected 1"),
        ("", r"T_edge_labels\.txt: is empty"),
    ],
)
def test_mismatched_edge_labels_are_refused(tmp_path, monkeypatch, labels, message):
    monkeypatch.setattr("mgg.graph.io.text.BLOCK", 4)
    with pytest.raises(InputError, match=message):
        list(find_loader("tu")(tu(tmp_path, edge_labels=labels)).arcs.read())


def test_reordered_graphsage_features_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"x-id_map\.json: node 2 has row 3 of the features: sort them"):
        find_loader("graphsage")(graphsage(tmp_path, {"2": 3, "3": 2}))


def test_graphml_default_weight_is_used(tmp_path):
    """GraphML 1.0, section "Attributes": an edge without a value has the default of its key."""
    path = graphml(tmp_path)
    key = 'attr.name="weight" attr.type="double"'
    text = path.read_text().replace("</graph>", '<edge source="b" target="a"/></graph>')
    assert text.count(key) == 1
    head, _, rest = text.partition(key)
    path.write_text(head + key + rest.replace("/>", "><default>4.0</default></key>", 1))
    graph = find_loader("networkx")(path)
    (arcs,) = graph.arcs.read()
    assert list(zip(arcs.sources, arcs.targets, arcs.weights, strict=True)) == [(0, 1, 0.5), (1, 0, 4.0)]
