import pytest
from text_helpers import arcs_of, gz, load, refused

from mgg.graph.io import text
from mgg.graph.sources import loader_of

HEAD = "# Directed graph: tiny\n# Nodes: 4 Edges: 5\n# FromNodeId\tToNodeId\n"
BODY = "0\t4\n4\t9\n9\t9\n0\t4\n2\t0\n"
ARCS = [(0, 4), (4, 9), (9, 9), (0, 4), (2, 0)]
JULIA = "4,5,d,graph,2,Int64,simplegraph\n1,2\n2,4\n4,4\n1,2\n3,1\n"


@pytest.mark.parametrize(
    "content",
    [
        HEAD + BODY,
        BODY,
        BODY.rstrip(),
        (HEAD + BODY).replace("\n", "\r\n"),
        HEAD + "\n\n" + BODY.replace("\n", " \n\n") + "# end\n",
        BODY.replace("\t", "   ").replace("0", " 0"),
        BODY.replace("\t", ","),
        BODY.replace("\t", " , "),
        gz((HEAD + BODY).encode()),
    ],
)
def test_arcs_match_a_hand_written_file(write, content):
    stream = load("snap", write(content)).arcs
    assert stream.nodes is None
    assert not stream.undirected
    assert arcs_of(stream) == ARCS
    assert arcs_of(stream) == ARCS  # a second reading gives the same


@pytest.mark.parametrize("content", [JULIA, JULIA.replace("\n", "\r\n"), gz(JULIA.encode())])
def test_julia_ids_begin_at_one(write, content):
    stream = load("snap", write(content, "graph.jlg")).arcs
    assert (stream.nodes, stream.stated_nodes, stream.undirected) == (4, None, False)
    assert arcs_of(stream) == [(0, 1), (1, 3), (3, 3), (0, 1), (2, 0)]
    assert load("snap", write(JULIA.replace(",d,", ",u,"))).arcs.undirected


@pytest.mark.parametrize("content", [HEAD + BODY, JULIA])
def test_blocks_may_end_anywhere(write, monkeypatch, content):
    path = write(content)
    whole = arcs_of(load("snap", path).arcs)
    for size in range(1, len(content) + 1):
        monkeypatch.setattr(text, "BLOCK", size)
        assert arcs_of(load("snap", path).arcs) == whole


@pytest.mark.parametrize(
    ("title", "undirected"),
    [
        ("# Undirected graph: ../../data/output/orkut.txt\n", True),
        ("# Directed graph (each unordered pair of nodes is saved once): Epinions\n", False),
        ("# Friends. Undirected graphs are elsewhere\n", False),
    ],
)
def test_header_decides_between_arcs_and_edges(write, title, undirected):
    assert load("snap", write(title + BODY)).arcs.undirected is undirected


def test_stated_nodes_may_have_no_arcs(write):
    stream = load("snap", write("7,0,d\n")).arcs
    assert (stream.nodes, arcs_of(stream)) == (7, [])


def test_folder_with_one_file_is_read(write, tmp_path):
    write(BODY, "graph.txt")
    write("name: x\n", "source.yaml")
    assert arcs_of(load("snap", tmp_path).arcs) == ARCS
    assert [loader_of(tmp_path / name) for name in ("a.txt", "b.TXT.gz", "c.edges", "d.jlg")] == ["snap"] * 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEAD.replace("5", "4") + BODY, "line 8: one more than the 4 that line 2 announces"),
        (HEAD.replace("5", "6") + BODY, "ends after 5 of the 6 lines that line 2 announces"),
        (
            HEAD + BODY.replace("9\t9", "9\tnine"),
            "line 6: target is 'nine', not a whole number: number the nodes first",
        ),
        (HEAD + BODY.replace("9\t9", "9"), r"line 6: 1 fields, expected 2"),
        (HEAD + BODY.replace("9\t9", "-9\t9"), r"line 6: source is -9, outside 0\.\.9223372036854775807"),
        (HEAD.replace("5", "0"), "has no arcs, so no nodes"),
        ("", "has no arcs, so no nodes"),
        (JULIA.replace("2,4", "0,4"), r"line 3: source is 0, outside 1\.\.4"),
        (JULIA.replace("2,4", "2,5"), r"line 3: target is 5, outside 1\.\.4"),
        (JULIA.replace("4,5,d", "4,4,d"), "line 6: one more than the 4 that line 1 announces"),
        (JULIA.replace("4,5,d", "0,5,d"), r"line 1: 0 nodes, expected 1\.\."),
        (JULIA.replace("4,5,d", "9999999999999999999999,5,d"), r"line 1: 9999999999999999999999 nodes"),
        (JULIA.replace("4,5,d", "4,5,x"), "line 1: "),
        (JULIA.replace("4,5,d", "4" * 5000 + ",5,d"), "line 1: a number of 5000 digits counts neither nodes nor edges"),
        (HEAD.replace("Edges: 5", "Edges: " + "5" * 5000) + BODY, "line 2: a number of 5000 digits"),
        (gz((HEAD + BODY).encode())[:-9], "cut off or corrupt gzip data"),
    ],
)
@pytest.mark.parametrize("size", [7, 10**6])
def test_bad_files_are_named(write, monkeypatch, content, message, size):
    path = write(content)
    monkeypatch.setattr(text, "BLOCK", size)
    refused("snap", path, message)


def test_node_count_is_found_in_the_header(write):
    path = write("# a list\n# of arcs\n# Nodes: 9 Edges: 5\n" + BODY)
    assert load("snap", path).arcs.stated_in == f"{path}: line 3"
    assert load("snap", path).arcs.stated_nodes == 9
    assert load("snap", write(BODY)).arcs.stated_in == ""
    assert load("snap", write(JULIA)).arcs.stated_in == ""
