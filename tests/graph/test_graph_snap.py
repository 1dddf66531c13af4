import gzip

import numpy as np
import pytest
from text_helpers import arcs_of, exhaust, gz, load

from mgg.errors import InputError
from mgg.graph.io import text
from mgg.graph.sources import loader_of

HEAD = "# Directed graph: tiny\n# Nodes: 4 Edges: 5\n# FromNodeId\tToNodeId\n"
BODY = "0\t4\n4\t9\n9\t9\n0\t4\n2\t0\n"
ARCS = [(0, 4), (4, 9), (9, 9), (0, 4), (2, 0)]
JULIA = "4,5,d,graph,2,Int64,simplegraph\n1,2\n2,4\n4,4\n1,2\n3,1\n"


@pytest.fixture
def write(tmp_path):
    def write(content, name="graph.txt"):
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    ("name", "nodes", "stated", "ids", "arcs", "loops"),
    [
        ("soc-Epinions1", None, 75_879, 75_879, 508_837, 0),
        ("cit-HepPh", 34_546, None, 34_546, 421_578, 44),
    ],
)
def test_real_files_have_the_published_counts(mirror, name, nodes, stated, ids, arcs, loops):
    stream = load("snap", mirror / name).arcs
    parts = list(stream.read())
    sources, targets = (np.concatenate([getattr(part, end) for part in parts]) for end in ("sources", "targets"))
    assert (stream.nodes, stream.stated_nodes, stream.undirected, stream.weighted) == (nodes, stated, False, False)
    assert len(sources) == arcs
    assert len(np.union1d(sources, targets)) == ids
    assert int((sources == targets).sum()) == loops


def test_real_arcs_are_those_of_numpy(mirror):
    file = next((mirror / "soc-Epinions1").glob("*.txt.gz"))
    assert arcs_of(load("snap", file).arcs) == [tuple(row) for row in np.loadtxt(file, dtype=int).tolist()]
    file = next((mirror / "cit-HepPh").glob("*.jlg"))
    with gzip.open(file) as content:
        expected = np.loadtxt(content, dtype=int, delimiter=",", skiprows=1) - 1
    assert arcs_of(load("snap", file).arcs) == [tuple(row) for row in expected.tolist()]


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
def test_arcs_by_hand(write, content):
    stream = load("snap", write(content)).arcs
    assert stream.nodes is None
    assert not stream.undirected
    assert arcs_of(stream) == ARCS
    assert arcs_of(stream) == ARCS  # a second reading gives the same


@pytest.mark.parametrize("content", [JULIA, JULIA.replace("\n", "\r\n"), gz(JULIA.encode())])
def test_julia_counts_from_one(write, content):
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
def test_the_header_says_whether_lines_are_edges(write, title, undirected):
    assert load("snap", write(title + BODY)).arcs.undirected is undirected


def test_ids_reach_to_2_to_the_32(write):
    assert arcs_of(load("snap", write("4294967295 2147483648\n")).arcs) == [(4294967295, 2147483648)]


def test_a_known_number_of_nodes_may_have_no_arcs(write):
    stream = load("snap", write("7,0,d\n")).arcs
    assert (stream.nodes, arcs_of(stream)) == (7, [])


def test_a_folder_with_one_file(write, tmp_path):
    write(BODY)
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
        (HEAD + BODY.replace("9\t9", "9.5\t9"), "line 6: source is '9.5', not a whole number"),
        (HEAD + BODY.replace("9\t9", "9"), r"line 6: 1 fields, expected 2"),
        (HEAD + BODY.replace("9\t9", "9\t9\t1217567877"), r"line 6: 3 fields, expected 2"),
        (HEAD + BODY.replace("9\t9", "-9\t9"), r"line 6: source is -9, outside 0\.\.9223372036854775807"),
        (HEAD + BODY.replace("9\t9", "9\t9223372036854775808"), r"line 6: target is .*, beyond 2\^63"),
        (HEAD + BODY.replace("9\t9", "9,9"), "line 6: 1 fields"),
        (HEAD.replace("5", "0"), "has no arcs, so no nodes"),
        ("", "has no arcs, so no nodes"),
        ("\n\r\n# nothing\n", "has no arcs, so no nodes"),
        ("<html>404: Not Found</html>\n", "line 1: "),
        (JULIA.replace("2,4", "0,4"), r"line 3: source is 0, outside 1\.\.4"),
        (JULIA.replace("2,4", "2,5"), r"line 3: target is 5, outside 1\.\.4"),
        (JULIA.replace("2,4", "2,2147483648"), r"line 3: target is 2147483648, outside 1\.\.4"),
        (JULIA.replace("2,4", "2,9223372036854775808"), r"line 3: target is .*, beyond 2\^63"),
        (JULIA.replace("2,4", "2 4"), "line 3: 1 fields"),
        (JULIA.replace("4,5,d", "4,4,d"), "line 6: one more than the 4 that line 1 announces"),
        (JULIA.replace("4,5,d", "4,6,d"), "ends after 5 of the 6"),
        (JULIA.replace("4,5,d", "0,5,d"), r"line 1: 0 nodes, expected 1\.\."),
        (JULIA.replace("4,5,d", "9999999999999999999999,5,d"), r"line 1: 9999999999999999999999 nodes"),
        (JULIA.replace("4,5,d", "4,5,x"), "line 1: "),
        (JULIA.replace("4,5,d", "4" * 5000 + ",5,d"), "line 1: a number of 5000 digits counts neither nodes nor edges"),
        (JULIA.replace("4,5,d", "4," + "5" * 5000 + ",d"), "line 1: a number of 5000 digits"),
        (HEAD.replace("Edges: 5", "Edges: " + "5" * 5000) + BODY, "line 2: a number of 5000 digits"),
        (gz((HEAD + BODY).encode())[:-9], "cut off or corrupt gzip data"),
        (gz((HEAD + BODY).encode())[:30] + bytes(40), "cut off or corrupt gzip data"),
        (b"\x1f\x8bno gzip", "cut off or corrupt gzip data after 0 bytes"),
    ],
)
@pytest.mark.parametrize("size", [7, 10**6])
def test_bad_files_are_named(write, monkeypatch, content, message, size):
    path = write(content)
    monkeypatch.setattr(text, "BLOCK", size)
    with pytest.raises(InputError, match=message) as caught:
        exhaust("snap", path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match="none: cannot be read: No such file"):
        exhaust("snap", tmp_path / "none")
    with pytest.raises(InputError, match=r"0 files end in \.txt or "):
        exhaust("snap", tmp_path)


def test_where_the_number_of_nodes_is_stated(write):
    path = write("# a list\n# of arcs\n# Nodes: 9 Edges: 5\n" + BODY)
    assert load("snap", path).arcs.stated_in == f"{path}: line 3"
    assert load("snap", path).arcs.stated_nodes == 9
    assert load("snap", write(BODY)).arcs.stated_in == ""
    assert load("snap", write(JULIA)).arcs.stated_in == ""
