import bz2

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from text_helpers import arcs_of, exhaust, features_of, gz, load, refused

from mgg.errors import InputError
from mgg.graph.build import build
from mgg.graph.io import tables, text
from mgg.graph.sources import find_loader, loader_of
from mgg.graph.store import Graph

EDGES = "source,target,weight,type\n10,-7,0.5,0\n-7,10,1,2\n30,30,1e-3,0\n10,-7,0.5,0\n"
NODES = "id,height,label,split,width\n30,1,2,train,0.5\n-7,2,,val,-1e3\n10,3,0,,4\n99,4,-1,TEST,0\n"
ARCS = [(2, 1, 0.5, 0), (1, 2, 1.0, 2), (0, 0, np.float32(1e-3), 0), (2, 1, 0.5, 0)]
PLAIN = "source,target\n5,1\n1,5\n5,5\n"


@pytest.fixture
def write(tmp_path):
    def write(content, name="edges.csv"):
        path = tmp_path / name
        if isinstance(content, dict):
            pa.parquet.write_table(pa.table(content), path, row_group_size=2)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def columns(content):
    """A table for Parquet from CSV: numbers where all values are numbers, None where empty."""

    def parse(value):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                pass
        return value or None

    head, *rows = (line.split(",") for line in content.splitlines())
    return {name: [parse(row[i]) for row in rows] for i, name in enumerate(head)}


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (PLAIN, "a.csv"),
        ("5,1\n1,5\n5,5\n", "a.csv"),
        ("5\t1\n1\t5\n5\t5", "a.tsv"),
        ("# made by hand\n\ntarget\tsource\n1\t5\n5\t1\n5\t5\n", "a.tsv"),
        ('"source","target"\r\n"5","1"\r\n\r\n1, 5 \r\n5,5\r\n', "a.csv"),
        ("\ufeffsource,target\n5,1\n1,5\n5,5\n", "a.csv"),
        (gz(PLAIN.encode()), "a.csv.gz"),
        (bz2.compress(PLAIN.encode()), "a.csv"),
        (columns(PLAIN), "a.parquet"),
        ({"target": pa.array([1, 5, 5], pa.uint8()), "source": pa.array([5, 1, 5], pa.int16())}, "a.parquet"),
    ],
)
def test_edge_table_is_read(write, monkeypatch, content, name):
    path = write(content, name)
    for size in (1, 9, 10**6):
        monkeypatch.setattr(text, "BLOCK", size)
        monkeypatch.setattr(tables, "PARQUET_ROWS", size)
        graph = load("table", path)
        assert graph.arcs.nodes is None
        assert graph.features is graph.labels is graph.splits is None
        assert arcs_of(graph.arcs) == [(5, 1), (1, 5), (5, 5)]
    assert loader_of(path) == "table"


@pytest.mark.parametrize("nodes_as", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("edges_as", ["csv", "csv.gz", "tsv", "parquet"])
def test_edge_and_node_tables_are_read(write, tmp_path, monkeypatch, edges_as, nodes_as):
    for stem, content, suffix in (("edges", EDGES, edges_as), ("nodes", NODES, nodes_as)):
        made = {
            "csv": content,
            "csv.gz": gz(content.encode()),
            "tsv": content.replace(",", "\t"),
            "parquet": columns(content),
        }
        write(made[suffix], f"{stem}.{suffix}")
    for size in (1, 20, 10**6):
        monkeypatch.setattr(text, "BLOCK", size)
        monkeypatch.setattr(tables, "PARQUET_ROWS", size)
        graph = load("table", tmp_path)
        assert (graph.arcs.nodes, graph.arcs.relations, graph.arcs.weighted) == (4, 3, True)
        assert arcs_of(graph.arcs) == ARCS
        assert arcs_of(graph.arcs) == ARCS
        assert graph.labels.tolist() == [2, -1, 0, -1]
        assert graph.splits.tolist() == [1, 2, 0, 3]
        assert graph.splits.dtype == np.uint8
        assert features_of(graph).tolist() == [[1, 0.5], [2, -1000], [3, 4], [4, 0]]


@pytest.mark.parametrize("fixed", [False, True])
def test_feature_lists_are_read(write, tmp_path, fixed):
    values = np.arange(12, dtype=np.float64).reshape(4, 3)
    kind = pa.list_(pa.float64(), 3) if fixed else pa.list_(pa.float64())
    write({"source": [0, 3], "target": [1, 2]}, "edges.parquet")
    write({"features": pa.array(values.tolist(), kind)}, "nodes.parquet")
    graph = load("table", tmp_path)
    assert graph.arcs.nodes == 4
    assert np.array_equal(features_of(graph), values)
    write({"label": pa.array([0, None, 1, 1]), "x": pa.array(values.tolist(), kind)}, "nodes.parquet")
    graph = load("table", tmp_path)
    assert graph.labels.tolist() == [0, -1, 1, 1]
    assert np.array_equal(features_of(graph), values)


def test_nodes_without_ids_are_numbered(write, tmp_path):
    write("0,2\n2,1\n")
    write("x\n1\n2\n3\n", "nodes.csv")
    graph = load("table", tmp_path)
    assert (graph.arcs.nodes, arcs_of(graph.arcs), graph.labels) == (3, [(0, 2), (2, 1)], None)
    write("split\n0\n3\n1\n", "nodes.csv")
    assert load("table", tmp_path).splits.tolist() == [0, 3, 1]
    write({"split": [2, 0, 1]}, "nodes.parquet")
    (tmp_path / "nodes.csv").unlink()
    assert load("table", tmp_path).splits.tolist() == [2, 0, 1]


def test_unsorted_ids_are_looked_up(write, tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    ids = np.unique(rng.integers(-(2**63), 2**63 - 1, 500))
    rng.shuffle(ids)
    ends = rng.integers(0, len(ids), (2, 4000))
    write("".join(f"{a},{b}\n" for a, b in ids[ends].T.tolist()))
    write("id\n" + "\n".join(map(str, ids.tolist())), "nodes.csv")
    monkeypatch.setattr(text, "BLOCK", 1000)
    assert arcs_of(load("table", tmp_path).arcs) == list(zip(*ends.tolist(), strict=True))


@pytest.mark.parametrize("content", ["", "source,target\n", "\n\n# none\n"])
def test_graph_without_arcs_needs_a_node_table(write, tmp_path, content):
    path = write(content)
    refused("table", path, r"edges\.csv: has no arcs, so no nodes")
    write("id\n4\n", "nodes.csv")
    stream = load("table", tmp_path).arcs
    assert (stream.nodes, arcs_of(stream)) == (1, [])


def typed(**changes):
    return columns(EDGES) | changes


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (
            EDGES.replace("30,30", "30,x"),
            r"edges\.csv: line 4: target is 'x', not a whole number: number the nodes first",
        ),
        (EDGES.replace("30,30", "30,31"), r"line 4: target is 31, an id that nodes\.csv has not"),
        (EDGES.replace("1e-3", ""), "line 4: weight is nan, not a finite float32"),
        (EDGES.replace("1e-3", "1e39"), "line 4: weight is 1e\\+39, not a finite float32"),
        (EDGES.replace("1e-3,0", "1e-3,-1"), r"line 4: type is -1, outside 0\.\."),
        (EDGES.replace("1e-3,0", "1e-3,2147483647"), r"line 4: type is 2147483647, outside 0\.\."),
        (
            EDGES.replace("1e-3,0", "1e-3,cites"),
            "line 4: type is 'cites', not a whole number: leave the column out by --column ign",
        ),
        (EDGES.replace("type", "time"), r"columns are source, target, weight, time; expected source, target\["),
        (EDGES.replace("source", "tail"), r"columns are tail, target, weight, type; expected"),
        (EDGES.replace("type", "weight"), "two columns are called 'weight'"),
        (EDGES.replace("type", ""), "line 1: no header: .* holds numbers or empty names"),
    ],
)
def test_bad_edges_are_named(write, tmp_path, edges, message):
    write(edges)
    write(NODES, "nodes.csv")
    refused("table", tmp_path, rf"^(?=.*edges\.csv).*({message})")


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (typed(source=[10, -7, None, 10]), "row 2: source is empty"),
        (typed(source=[10, -7, 8, 10]), r"row 2: source is 8, an id that nodes\.csv has not"),
        (
            typed(source=pa.array([10, 30, 2**63, 10], pa.uint64())),
            r"row 2: source is 9223372036854775808, beyond 2\^63",
        ),
        (typed(source=[0.5] * 4), r"row 0: source is 0\.5, not a whole number"),
        (typed(target=["a"] * 4), "column 'target' is of type string, expected whole numbers: number the nodes first"),
        (typed(type=["a"] * 4), "column 'type' is of type string, expected whole numbers: leave"),
        (typed(weight=["a"] * 4), "column 'weight' is of type string, expected numbers"),
        (typed(weight=[0.5, 1, None, 2]), "row 2: weight is nan, not a finite float32"),
    ],
)
def test_bad_parquet_edges_are_named(write, tmp_path, monkeypatch, edges, message):
    write(edges, "edges.parquet")
    write(NODES, "nodes.csv")
    for size in (1, 3, 10**6):
        monkeypatch.setattr(tables, "PARQUET_ROWS", size)
        with pytest.raises(InputError, match=rf"edges\.parquet: {message}"):
            exhaust("table", tmp_path)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (NODES.replace("99", "10"), "line 5: id 10 is that of an earlier node, too"),
        (NODES.replace("99", "zoe"), "line 5: id is 'zoe', not a whole number: number the nodes first"),
        (NODES.replace("-1,TEST", "-2,TEST"), "line 5: label is -2; expected a whole number from 0"),
        (NODES.replace("-1,TEST", "0.5,TEST"), "line 5: label is 0.5; expected a whole number from 0"),
        (NODES.replace("-1,TEST", "3000000000,TEST"), r"line 5: label is 3e\+09; expected"),
        (NODES.replace("TEST", "holdout"), "line 5: split is 'holdout'; expected train, validation, test"),
        (NODES.replace("99,4,", "99,,"), "line 5: height is '', not a number"),
        (NODES.replace("99,4,", "99,4e38,"), "line 5: height is inf, not a finite float32"),
        ("id,label\n", "has no nodes"),
        ("", "is empty"),
    ],
)
def test_bad_nodes_are_named(write, tmp_path, monkeypatch, nodes, message):
    write(EDGES)
    write(nodes, "nodes.csv")
    for size in (5, 10**6):
        monkeypatch.setattr(text, "BLOCK", size)
        with pytest.raises(InputError, match=rf"nodes\.csv: ({message})"):
            exhaust("table", tmp_path)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({"x": [[1.0], [2.0, 3.0]]}, "row 1: x has 2 numbers, the first row has 1"),
        ({"x": [[1.0], [np.nan]]}, r"row 1: x\[0\] is nan, not a finite float32"),
        ({"x": [[1.0], None]}, "row 1: x is empty"),
        ({"x": [[1.0], [2.0]], "z": [1, 2]}, "columns x, z: one of lists, or numbers, but not both"),
        ({"name": ["a", "b"]}, "column 'name' is of type string, expected numbers"),
        ({"id": [4, 4]}, "row 1: id 4 is that of an earlier node, too"),
        ({"split": ["train", "some"]}, "row 1: split is 'some'; expected"),
        ({"label": [0.5, 1]}, "row 0: label is 0.5; expected"),
        ({"x": [[], []]}, r"x' is of type list<.*: null>, expected numbers"),
    ],
)
def test_bad_parquet_nodes_are_named(write, tmp_path, nodes, message):
    write({"source": pa.array([], pa.int64()), "target": pa.array([], pa.int64())}, "edges.parquet")
    write(nodes, "nodes.parquet")
    refused("table", tmp_path, rf"nodes\.parquet: ({message})|nodes\.parquet: column '({message})")


@pytest.mark.parametrize("keep", [4, 200, -5])
def test_truncated_parquet_is_refused(write, keep):
    whole = write(columns(PLAIN), "whole.parquet").read_bytes()
    refused("table", write(whole[:keep], "edges.parquet"), r"edges\.parquet: not a whole Parquet file")


def test_ambiguous_folders_are_refused(write, tmp_path):
    with pytest.raises(InputError, match=r"0 files end in \.csv"):
        load("table", tmp_path)
    write(PLAIN, "only.csv")
    assert len(arcs_of(load("table", tmp_path).arcs)) == 3
    write(PLAIN, "edges.csv")
    write(columns(PLAIN), "edges.parquet")
    with pytest.raises(InputError, match=r"edges\.csv, edges\.parquet: leave one table of edges"):
        load("table", tmp_path)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load("table", tmp_path / "none.csv")


@pytest.mark.parametrize("parquet", [False, True])
@pytest.mark.parametrize(
    "header", ["target,source", "dst,src", "Dest,Source", "DESTINATION,from", "to,From", "to,source", "Target,SRC"]
)
def test_arc_ends_are_recognized_by_name_in_any_order(write, caplog, header, parquet):
    content = header + "\n3,7\n7,7\n"
    path = write(columns(content), "edges.parquet") if parquet else write(content)
    assert arcs_of(load("table", path).arcs) == [(7, 3), (7, 7)]
    assert arcs_of(load("table", write(header + ",weight\n3,7,2\n")).arcs) == [(7, 3, 2)]
    assert caplog.messages == []


@pytest.mark.parametrize("parquet", [False, True])
@pytest.mark.parametrize("header", ["node_1,node_2", "head,tail", "v,u"])
def test_two_unnamed_columns_are_taken_by_position(write, caplog, header, parquet):
    content = header + "\n3,5\n5,3\n"
    path = write(columns(content), "edges.parquet") if parquet else write(content)
    assert arcs_of(load("table", path).arcs) == [(3, 5), (5, 3)]
    first, second = header.split(",")
    (said,) = caplog.messages
    assert said.startswith(f"{path}: column {first!r} is taken as source and {second!r} as target, by their places")


@pytest.mark.parametrize(
    "header",
    ["node_1,weight", "source,node_2", "node_1,SRC", "a,b,c", "type,weight", "from,src", "from,src,to", "to,weight"],
)
def test_columns_without_arc_ends_are_refused(tmp_path, header):
    (tmp_path / "edges.csv").write_text(header + "\n" + ",".join("1" * len(header.split(","))) + "\n")
    with pytest.raises(InputError, match=r"edges\.csv: columns are .*; expected source, target"):
        find_loader("table")(tmp_path / "edges.csv")


def test_node_table_ids_are_kept(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n70,9\n9,70\n9,8\n")
    (tmp_path / "nodes.csv").write_text("id,label\n70,0\n8,1\n9,1\n")
    build(tmp_path, tmp_path / "graph", loader="table")
    assert Graph.open(tmp_path / "graph").ids(0, 3).tolist() == [70, 8, 9]
    build(tmp_path / "graph", tmp_path / "moved", order="degree")
    moved = Graph.open(tmp_path / "moved")
    assert dict(zip(moved.ids(0, 3).tolist(), moved.labels(0, 3).tolist(), strict=True)) == {70: 0, 8: 1, 9: 1}


def test_feature_lists_must_have_one_length(write, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "PARQUET_ROWS", 4)
    write("0,1\n")
    write({"x": [[1.0, 2.0, 3.0]] * 8 + [[1.0, 2.0, 3.0, 4.0]] * 3}, "nodes.parquet")
    with pytest.raises(InputError, match=r"nodes\.parquet: row 8: x has 4 numbers, the first row has 3"):
        load("table", tmp_path)
    write({"label": [0] * 11, "x": [[1.0, 2.0, 3.0]] * 8 + [[1.0, 2.0, 3.0, 4.0]] * 3}, "nodes.parquet")
    refused("table", tmp_path, r"nodes\.parquet: row 8: x has 4 numbers, the first row has 3")


def test_comments_are_neither_arcs_nor_nodes(write, tmp_path):
    write("source,target,type\n0,1,0\n#1,2,9\n1,0,0\n")
    write("x,label\n0.5,0\n#1,2\n1.5,1\n", "nodes.csv")
    graph = load("table", tmp_path)
    assert (graph.arcs.relations, arcs_of(graph.arcs)) == (1, [(0, 1, 0), (1, 0, 0)])
    assert (graph.arcs.nodes, features_of(graph).tolist(), graph.labels.tolist()) == (2, [[0.5], [1.5]], [0, 1])


@pytest.mark.parametrize("nodes", ["label\n-1\n-1\n", "id,label\n0,\n1,\n"])
def test_empty_label_column_means_no_labels(write, tmp_path, nodes):
    write("0,1\n1,0\n")
    write(nodes, "nodes.csv")
    assert load("table", tmp_path).labels is None
    assert build(tmp_path, tmp_path / "graph", loader="table").classes == 0


def test_non_utf8_parquet_names_and_texts_are_refused(write, tmp_path):
    whole = write(columns(PLAIN), "whole.parquet").read_bytes()
    with pytest.raises(InputError, match=r"edges\.parquet: not a whole Parquet file"):
        exhaust("table", write(whole.replace(b"source", b"so\xffrce"), "edges.parquet"))
    write(PLAIN.replace("5", "0"))
    (tmp_path / "edges.parquet").unlink()
    whole = write({"split": ["train", "holdout"]}, "nodes.parquet").read_bytes()
    write(whole.replace(b"holdout", b"hold\xffut"), "nodes.parquet")
    with pytest.raises(InputError, match=r"nodes\.parquet: not a whole Parquet file"):
        load("table", tmp_path)
