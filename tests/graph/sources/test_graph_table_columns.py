"""Files as other programs write them, one case a file: what MGG reads is what pandas or NumPy reads, or is refused."""

from __future__ import annotations

import codecs
import io

import networkx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from text_helpers import arcs_of, exhaust, features_of, load, refused

from mgg.errors import InputError
from mgg.graph.build import build, gather, scatter, shard
from mgg.graph.io import text
from mgg.graph.io.columns import ColumnChoice
from mgg.graph.sources import find_loader
from mgg.graph.store import Graph

ARCS = [(5, 1), (1, 5), (5, 5)]
LINES = "5 1\n1 5\n5 5\n"


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("loader", ["table", "snap"])
def test_text_encodings_and_line_ends_are_recognized(write, monkeypatch, loader, encoding, ends):
    content = LINES if loader == "snap" else "source,target\n" + LINES.replace(" ", ",")
    mark = codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b""
    path = write(mark + content.replace("\n", ends).encode(encoding))
    for size in (1, 3, 7, 10**6):
        monkeypatch.setattr(text, "BLOCK", size)
        assert arcs_of(load(loader, path).arcs) == ARCS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LINES.encode("utf-16-le"), "looks like UTF-16 without a byte order mark: save it as UTF-8"),
        (codecs.BOM_UTF16_LE + b"1\x00 \x002", "begins as utf-16.* and is none"),
        (codecs.BOM_UTF16_LE + b"\x00\xdc1\x002\x00", "begins as utf-16.* and is none"),
    ],
)
def test_invalid_utf16_is_refused(write, content, message):
    refused("snap", write(content), message)


def test_weights_that_underflow_in_float32_are_refused(write):
    with pytest.raises(InputError, match=r"edges\.csv: line 3: weight is 1e-50, too small for a float32"):
        exhaust("table", write("source,target,weight\n0,1,0\n1,0,1e-50\n"))
    banner = "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 0\n2 1 -1e-50\n"
    refused("matrix_market", write(banner, "a.mtx"), r"a\.mtx: line 4: value is -1e-50, too small for a float32")
    smallest = float(np.finfo(np.float32).smallest_subnormal)
    graph = load("table", write(f"source,target,weight\n0,1,0\n1,0,{smallest}\n"))
    assert arcs_of(graph.arcs) == [(0, 1, 0), (1, 0, smallest)]


def test_missing_path_is_reported_first(tmp_path):
    with pytest.raises(InputError, match=r"^kora: no such file or folder, and unknown data set 'kora'; did you mean"):
        build("kora", tmp_path / "graph")


#: Three nodes whose ids are in no order, so that rows taken for ids would be seen.
IDS = [30, 10, 20]
FRAME = pd.DataFrame({"id": IDS, "label": [2, 0, 1], "x0": [0.5, 1.5, 2.5], "x1": [7, 8, 9]})
EDGES = "source,target\n10,20\n20,30\n30,10\n"


def said(*roles, header=None):
    return ColumnChoice.parsed(header, roles)


def read(path, *roles, header=None, loader="table"):
    return find_loader(loader)(path, said(*roles, header=header))


def nodes_of(graph):
    """Id -> label, split and features."""
    splits = [None] * graph.arcs.nodes if graph.splits is None else graph.splits.tolist()
    labels = [None] * graph.arcs.nodes if graph.labels is None else graph.labels.tolist()
    rows = [()] * graph.arcs.nodes if graph.features is None else map(tuple, features_of(graph).tolist())
    ids = range(graph.arcs.nodes) if graph.ids is None else graph.ids.tolist()
    return dict(zip(ids, zip(labels, splits, rows, strict=True), strict=True))


EXPECTED = {row.id: (row.label, None, (row.x0, row.x1)) for row in FRAME.itertuples()}


@pytest.mark.parametrize("parquet", [False, True])
@pytest.mark.parametrize(
    "name",
    ["id", "ID", "Id", "node_id", "nodeId", "node-id", "Node ID", "node", ":ID", "id:ID", "paperId:ID(Paper)", "index"],
)
def test_node_id_column_may_have_any_usual_name(write, tmp_path, name, parquet):
    write(EDGES)
    frame = FRAME.rename(columns={"id": name})
    if parquet:
        frame.to_parquet(tmp_path / "nodes.parquet")
    else:
        frame.to_csv(tmp_path / "nodes.csv", index=False)
    graph = read(tmp_path)
    assert nodes_of(graph) == EXPECTED
    assert arcs_of(graph.arcs) == [(1, 2), (2, 0), (0, 1)]
    assert graph.columns["nodes"] == {"id": name, "label": "label", "features": "x0..x1 (2)"}


@pytest.mark.parametrize("form", ["csv", "parquet", "unnamed"])
def test_pandas_index_is_the_node_id(write, tmp_path, form):
    write(EDGES)
    frame = FRAME.set_index("id").rename_axis(None)
    if form == "parquet":
        frame.to_parquet(tmp_path / "nodes.parquet")
        assert "__index_level_0__" in pa.parquet.read_schema(tmp_path / "nodes.parquet").names
    else:
        frame.to_csv(tmp_path / "nodes.csv", index_label="Unnamed: 0" if form == "unnamed" else None)
    assert nodes_of(read(tmp_path)) == EXPECTED


def test_pandas_index_beside_an_id_column_is_left_out_with_a_note(write, tmp_path):
    write(pd.read_csv(io.StringIO(EDGES)).to_csv())
    write(FRAME.to_csv(), "nodes.csv")
    graph = read(tmp_path)
    assert nodes_of(graph) == EXPECTED
    assert arcs_of(graph.arcs) == [(1, 2), (2, 0), (0, 1)]
    assert [graph.columns[kind]["ignored"] for kind in ("edges", "nodes")] == [["(no name)"]] * 2


@pytest.mark.parametrize("name", ["y", "Y", "class", "Class", "Label", "labels", "node_label"])
def test_label_column_may_have_any_usual_name(write, tmp_path, name):
    write(EDGES)
    write(FRAME.rename(columns={"label": name}).to_csv(index=False), "nodes.csv")
    assert nodes_of(read(tmp_path)) == EXPECTED


@pytest.mark.parametrize("parquet", [False, True])
@pytest.mark.parametrize(
    "names", ["train_mask val_mask test_mask", "trainMask valid-mask TEST_MASK", "train valid test"]
)
@pytest.mark.parametrize("kind", [bool, int, float])
def test_mask_columns_are_the_split(write, tmp_path, kind, names, parquet):
    write(EDGES)
    masks = pd.DataFrame(np.eye(3)[[1, 0, 2]].astype(kind), columns=names.split())
    frame = pd.concat([FRAME, masks], axis=1)
    frame.to_parquet(tmp_path / "nodes.parquet") if parquet else frame.to_csv(tmp_path / "nodes.csv", index=False)
    graph = read(tmp_path)
    assert nodes_of(graph) == {30: (2, 2, (0.5, 7)), 10: (0, 1, (1.5, 8)), 20: (1, 3, (2.5, 9))}
    assert graph.columns["nodes"]["split"] == names.split()


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("id,paper_id\n1,2\n", r"what is 'paper_id'\? say --column id=paper_id, .* or --column ignore=paper_id"),
        ("id,humid\n1,2\n", "what is 'humid'"),
        ("id,train_mask_0\n1,1\n", "what is 'train_mask_0'.*--column train=train_mask_0"),
        ("id,target\n1,2\n", "what is 'target'.*--column label=target"),
        ("id,modularity_class\n1,2\n", "what is 'modularity_class'"),
        ("id,y,label\n1,2,3\n", "'label' and 'y' may both be the label say|'label' and 'y' may both be the label"),
        ("id,node_id\n1,2\n", "'node_id' and 'id' may both be the id"),
        ("id,split,train_mask\n1,0,1\n", "'split' and 'train_mask' both say the split"),
        ("id,name\n1,Zoe\n", "line 2: name is 'Zoe', not a number: leave the column out by --column ignore=name"),
        ("id,train_mask,test_mask\n1,1,0\n2,1,1\n", "line 3: the node is in the masks of train and test"),
        ("id,train_mask\n1,yes\n", "line 2: train_mask is 'yes'; expected true or false, 1 or 0"),
        ("id,Label\n1,1\n2,2\n3,3\n", "'Label' repeats the nodes' ids, so it names nodes, as in Gephi"),
        ("id,:LABEL\n1,Person\n", "line 2: :LABEL is 'Person', not a number: leave the column out"),
    ],
)  # fmt: skip
def test_ambiguous_columns_are_refused_naming_the_option(write, tmp_path, nodes, message):
    write("source,target\n1,1\n")
    write(nodes, "nodes.csv")
    refused("table", tmp_path, rf"nodes\.csv: .*({message})")


def test_parquet_text_columns_are_refused_naming_the_option(write, tmp_path):
    write("source,target\n1,1\n")
    pd.DataFrame({"id": [1], "name": ["Zoe"]}).to_parquet(tmp_path / "nodes.parquet")
    with pytest.raises(
        InputError, match=r"column 'name' is of type .*string, expected numbers: leave .*--column ignore=name"
    ):
        exhaust("table", tmp_path)


def test_options_choose_the_columns(write, tmp_path):
    write("a,b,time,w8\n10,20,3,0.5\n")
    write("paper_id,id,area_class,name,is_train,humid\n10,1,2,x,1,0.5\n20,0,0,y,0,1.5\n", "nodes.csv")
    roles = (
        "source=b", "target=a", "weight=w8", "ignore=time", "id=paper_id", "feature=id", "label=area_class",
        "ignore=name", "train=is_train", "feature=humid",
    )  # fmt: skip
    graph = read(tmp_path, *roles)
    assert arcs_of(graph.arcs) == [(1, 0, 0.5)]
    assert nodes_of(graph) == {10: (2, 1, (1, 0.5)), 20: (0, 0, (0, 1.5))}
    assert graph.columns == {
        "edges": {"source": "b", "target": "a", "weight": "w8", "ignored": ["time"]},
        "nodes": {
            "id": "paper_id", "label": "area_class", "split": ["is_train"], "features": "id..humid (2)",
            "ignored": ["name"],
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("roles", "header", "message"),
    [
        (["source"], None, "--column 'source': expected ROLE=NAME"),
        (["sauce=a"], None, "unknown role 'sauce'; did you mean source"),
        (["source=a", "source=b"], None, "a table has one column of this role"),
        (["source=a", "target=a"], None, "given two roles"),
        (["label=y"], None, "is of a table of nodes, and there is none"),
        (["weight=c"], None, r"no column is called so: .*edges\.csv has a, b"),
        ([], "source,target,source", "'source' is there twice"),
        ([], "source,,target", "a name is empty"),
        ([], "source,target,weight", r"line 1: 2 fields, --columns names 3"),
    ],
)
def test_mismatched_options_are_refused(write, roles, header, message):
    path = write("a,b\n0,1\n")
    with pytest.raises(InputError, match=message):
        read(path, *roles, header=header)


def test_column_options_are_refused_for_other_formats(write, tmp_path):
    np.save(tmp_path / "a.npy", np.array([[0, 1]]))
    build(write(EDGES), tmp_path / "graph")
    for source, why in (
        (tmp_path / "a.npy", "loader edges reads no table"),
        (tmp_path / "graph", "a graph folder has no"),
    ):
        with pytest.raises(InputError, match=why):
            build(source, tmp_path / "other", columns=said("source=a"))
    pd.DataFrame({"source": [0], "target": [1]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match="names its columns itself: --columns is for a file that has no header"):
        read(tmp_path / "a.parquet", header="source,target")


@pytest.mark.parametrize(
    "header",
    [
        "src_id,dst_id", "source_id,target_id", "from,to", "FromNodeId,ToNodeId", "Source,Target", ":START_ID,:END_ID",
        ":START_ID(Paper),:END_ID(Paper)", "start-id,end-id", "src node,dst node",
    ],
)  # fmt: skip
def test_arc_end_columns_may_have_any_usual_names(write, header):
    source, target = header.split(",")
    graph = read(write(f"{target},edge_weight,{source},etype\n1,0.5,0,2\n"))
    assert arcs_of(graph.arcs) == [(0, 1, 0.5, 2)]
    assert graph.columns["edges"] == {"source": source, "target": target, "weight": "edge_weight", "type": "etype"}


def test_dgl_tables_are_read(write, tmp_path):
    write("src_id,dst_id\n4,1\n1,4\n")
    write(
        "node_id,label,train_mask,val_mask,test_mask,feat\n"
        '4,1,True,False,False,"0.5, 1.5,2"\n1,0,False,True,False,"-1,2e3,+3"\n', "nodes.csv",
    )  # fmt: skip
    graph = read(tmp_path)
    assert nodes_of(graph) == {4: (1, 1, (0.5, 1.5, 2)), 1: (0, 2, (-1, 2000, 3))}
    write('node_id,feat\n4,"0.5,1"\n1,"0.5,a"\n', "nodes.csv")
    refused("table", tmp_path, r"nodes\.csv: line 3: feat is no list of numbers")
    write('node_id,feat\n4,"0.5,1"\n1,"0.5"\n', "nodes.csv")
    refused("table", tmp_path, r"nodes\.csv: line 3: feat has 1 numbers, the first row has 2")


def test_gephi_edges_are_read(write):
    rows = "0,1,{0},0,1.0\n1,2,{1},1,0.5\n"
    header = "Source,Target,Type,Id,Weight\n"
    for kind in ("Directed", "Undirected"):
        graph = read(write(header + rows.format(kind, kind)))
        assert (graph.arcs.undirected, arcs_of(graph.arcs)) == (kind == "Undirected", [(0, 1, 1), (1, 2, 0.5)])
        assert graph.columns["edges"]["direction"] == "Type" and graph.columns["edges"]["ignored"] == ["Id"]
    with pytest.raises(InputError, match="line 3: Type is 'Undirected', and directed above"):
        exhaust("table", write(header + rows.format("Directed", "Undirected")))


@pytest.mark.parametrize("loader", ["table", "snap"])
@pytest.mark.parametrize(
    ("content", "header", "expected"),
    [
        ("0,1,0.5\n1,2,1.5\n", "source,target,weight", [(0, 1, 0.5), (1, 2, 1.5)]),
        ("0\t1\t-1\n1\t2\t1\n", "source,target,weight", [(0, 1, -1), (1, 2, 1)]),
        ("0\t3\t1\n1\t0\t2\n", "source,type,target", [(0, 1, 3), (1, 2, 0)]),
        ("0 1 7 9\n1 2 8 9\n", "ignore,source,target,ignore", [(1, 7), (2, 8)]),
    ],
)
def test_headerless_table_of_more_than_two_columns_is_refused(write, loader, content, header, expected):
    path = write(content)
    with pytest.raises(InputError, match=r"line 1: no header, and . columns: say .* --columns source,target,weight"):
        read(path, loader=loader)
    assert arcs_of(read(path, header=header, loader=loader).arcs) == expected


def test_headerless_columns_are_named_by_position(write):
    graph = read(write("9,0,1,0.5\n"), header="ignore,source,target,weight")
    assert graph.columns["edges"] == {
        "source": "column 2", "target": "column 3", "weight": "column 4", "ignored": ["column 1"]
    }  # fmt: skip


@pytest.mark.parametrize("loader", ["table", "snap"])
@pytest.mark.parametrize(
    ("header", "delimiter", "fmt"),
    [("source target weight", " ", "%d %d %g"), ("source,target,weight", ",", "%g"),
     ("source, target, weight", ",", "%g"), ("source target weight", ",", "%.18e"),
     ("made by hand\nsource target weight", " ", "%.18e")],
)  # fmt: skip
def test_savetxt_headers_are_read(tmp_path, header, delimiter, fmt, loader):
    rows = np.array([[0, 1, 0.5], [1, 2, 1.5], [70000, 1, 2]])
    np.savetxt(tmp_path / "a.txt", rows, header=header, delimiter=delimiter, fmt=fmt)
    assert arcs_of(read(tmp_path / "a.txt", loader=loader).arcs) == [tuple(row) for row in rows.tolist()]


@pytest.mark.parametrize("loader", ["table", "snap"])
def test_commented_header_may_swap_the_columns(write, loader):
    assert arcs_of(load(loader, write("# ToNodeId FromNodeId\n0 1\n2 3\n")).arcs) == [(1, 0), (3, 2)]
    assert arcs_of(load(loader, write("# FromNodeId ToNodeId\n0 1\n2 3\n")).arcs) == [(0, 1), (2, 3)]
    assert arcs_of(load(loader, write("# from here to\n0 1\n2 3\n")).arcs) == [(0, 1), (2, 3)]


def test_commented_node_header_is_read(write, tmp_path):
    write(EDGES)
    np.savetxt(tmp_path / "nodes.csv", FRAME, header="id label x0 x1")
    assert nodes_of(read(tmp_path)) == EXPECTED


@pytest.mark.parametrize("separator", [" ", ";", "\t", ","])
def test_field_separators_are_recognized(write, tmp_path, separator):
    frame = pd.DataFrame({"source": [10, 20, 30], "target": [20, 30, 10], "weight": [0.5, 1.25, -3]})
    write(frame.to_csv(index=False, sep=separator))
    write(FRAME.assign(split=["train", "test", "val"]).to_csv(index=False, sep=separator), "nodes.csv")
    graph = read(tmp_path)
    assert arcs_of(graph.arcs) == [(1, 2, 0.5), (2, 0, 1.25), (0, 1, -3)]
    assert {key: value[1] for key, value in nodes_of(graph).items()} == {30: 1, 10: 3, 20: 2}


def test_decimal_commas_are_read_beside_semicolons(write, tmp_path):
    frame = pd.DataFrame({"source": [0, 1], "target": [1, 0], "weight": [1, 0.25]})
    write(frame.to_csv(index=False, sep=";", decimal=","))
    assert arcs_of(read(tmp_path).arcs) == [(0, 1, 1), (1, 0, 0.25)]
    assert arcs_of(read(write("0;1;1\n1;0;0,25\n"), header="source,target,weight").arcs) == [(0, 1, 1), (1, 0, 0.25)]
    with pytest.raises(InputError, match=r"line 3: weight is '1\.000\.5', not a number"):
        exhaust("table", write("source;target;weight\n0;1;1\n0;1;1.000,5\n"))


@pytest.mark.parametrize("loader", ["table", "snap"])
@pytest.mark.parametrize("delimiter", [" ", ",", "\t"])
@pytest.mark.parametrize("weighted", [False, True])
def test_networkx_edge_lists_are_read(tmp_path, loader, delimiter, weighted):
    made = networkx.gnp_random_graph(20, 0.3, seed=1, directed=True)
    if weighted:
        networkx.set_edge_attributes(made, {edge: 0.5 + k for k, edge in enumerate(made.edges)}, "weight")
    networkx.write_edgelist(made, tmp_path / "a.edgelist", delimiter=delimiter)
    expected = [(u, v, *data.values()) for u, v, data in made.edges(data=True)]
    assert arcs_of(load(loader, tmp_path / "a.edgelist").arcs) == expected


def test_other_attributes_of_networkx_are_refused(write):
    refused("snap", write("0 1 {'color': 'red'}\n"), r"line 1: attributes \{'color': 'red'\}: an edge may have")
    refused("snap", write("0 1 {}\n0 1 {'weight': 2}\n"), "line 2: ")


@pytest.mark.parametrize("loader", ["table", "snap"])
@pytest.mark.parametrize(
    ("written", "number"),
    [("1.0", 1), ("1.", 1), ("1e+05", 100000), ("3.000000000000000000e+00", 3), ("4294967295.0", 2**32 - 1), ("+7", 7)],
)
def test_ids_written_as_decimals_are_read(write, loader, written, number):
    assert arcs_of(load(loader, write(f"0 {written}\n{written} 5\n")).arcs) == [(0, number), (number, 5)]


@pytest.mark.parametrize(
    ("written", "message"),
    [("1.5", "not a whole number"), ("nan", "not a whole number"), ("inf", "not a whole number"),
     ("1e300", "beyond 2.53"), ("1e-3", "not a whole number"),
     ("9223372036854775808.0", "beyond 2.63"), ("x1.0", "number the nodes first")],
)  # fmt: skip
def test_fractional_ids_are_refused(write, written, message):
    refused("snap", write(f"0 1\n0 {written}\n"), f"line 2: target is .*{message}")


@pytest.mark.parametrize("kind", [pa.float64(), pa.decimal128(20, 2), pa.uint64()])
def test_parquet_decimals_are_read_as_ids_and_weights(tmp_path, kind):
    frame = {"source": pa.array([1, 7], pa.int8()).cast(kind), "target": pa.array([7, 1], pa.int8()).cast(kind)}
    weights = pa.array([0.25, 2]).cast(pa.decimal128(9, 3))
    pa.parquet.write_table(pa.table(frame | {"weight": weights}), tmp_path / "edges.parquet")
    assert arcs_of(read(tmp_path / "edges.parquet").arcs) == [(1, 7, 0.25), (7, 1, 2)]


#: 2^40 and on, in no order; 2^53 + 1 is no float64.
WIDE = [2**53 + 1, 2**40, 5, 2**63 - 1, 2**40 + 1]


def dense(graph):
    """The adjacency matrix by the source's ids."""
    nodes = graph.manifest.nodes
    ids = graph.ids(0, nodes).tolist()
    found = []
    for first, csr in graph.blocks():
        rows = np.repeat(np.arange(first, first + csr.rows), np.diff(csr.indptr))
        found += [(ids[column], ids[row]) for row, column in zip(rows, csr.indices, strict=True)]
    return sorted(found), ids


@pytest.mark.parametrize("name", ["edges.csv", "edges.txt", "edges.npy", "edges.parquet"])
@pytest.mark.parametrize("steps", [False, True])
def test_ids_above_2_to_the_32_are_renumbered(tmp_path, monkeypatch, name, steps):
    monkeypatch.setattr(text, "BLOCK", 64)
    monkeypatch.setattr("mgg.graph.external.wide._HELD", 4)
    rng = np.random.default_rng(2)
    pairs = np.array(WIDE)[rng.integers(0, 5, (60, 2))]
    frame = pd.DataFrame(pairs, columns=["source", "target"])
    if name.endswith("npy"):
        np.save(tmp_path / name, pairs)
    elif name.endswith("parquet"):
        frame.to_parquet(tmp_path / name)
    else:
        frame.to_csv(
            tmp_path / name, index=False, sep="," if name.endswith("csv") else " ", header=name.endswith("csv")
        )
    if steps:
        scatter(tmp_path / name, tmp_path / "buckets")
        shard(tmp_path / "buckets", tmp_path / "shards", number=1, of=1)
        gather(tmp_path / "buckets", [tmp_path / "shards"], tmp_path / "graph")
    else:
        build(tmp_path / name, tmp_path / "graph")
    arcs, ids = dense(Graph.open(tmp_path / "graph"))
    assert ids == sorted(WIDE)
    assert arcs == sorted({(u, v) for u, v in pairs.tolist() if u != v})


def test_stated_node_count_is_checked_against_large_ids(write, tmp_path):
    path = write(f"# Nodes: 3 Edges: 1\n0 {2**40}\n", "a.txt")
    with pytest.raises(InputError, match=r"a\.txt: line 1: announces 3 nodes, but the arcs join 2"):
        build(path, tmp_path / "graph")


def test_column_roles_are_reported_and_stored_in_the_manifest(write, tmp_path, caplog):
    write("src_id,dst_id,w\n0,1,2\n", "edges.csv")
    nodes = "node_id,label,train_mask,val_mask,test_mask," + ",".join(f"x{k}" for k in range(10))
    write(f"{nodes}\n1,0,1,0,0{',1' * 10}\n0,1,0,1,0{',2' * 10}\n", "nodes.csv")
    build(tmp_path, tmp_path / "graph", loader="table", name="mine")
    assert caplog.messages == [
        f"{tmp_path.name}: columns: source=src_id, target=dst_id, weight=w; nodes: id=node_id, label=label, split from"
        " train_mask, val_mask, test_mask, features x0..x9 (10)"
    ]
    graph = Graph.open(tmp_path / "graph")
    assert graph.manifest.source == {
        "loader": "table",
        "columns": {
            "edges": {"source": "src_id", "target": "dst_id", "weight": "w"},
            "nodes": {
                "id": "node_id", "label": "label", "split": ["train_mask", "val_mask", "test_mask"],
                "features": "x0..x9 (10)",
            },
        },
    }  # fmt: skip
    build(tmp_path / "graph", tmp_path / "moved", order="degree")
    assert Graph.open(tmp_path / "moved").manifest.source == graph.manifest.source
