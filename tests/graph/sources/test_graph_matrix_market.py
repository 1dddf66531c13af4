import numpy as np
import pytest
from text_helpers import arcs_of, gz, load, refused

from mgg.errors import InputError
from mgg.graph.io import text
from mgg.graph.sources import loader_of

TINY = "%%MatrixMarket matrix coordinate real general\n% made by hand\n\n3 3 4\n1 2 0.5\n3 1 -2\n3 3 1e-3\n1 2 0.5\n"
LOWER = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 3\n2 1\n3 3\n3 2\n"


@pytest.mark.parametrize(
    "content",
    [
        TINY,
        TINY.rstrip(),
        TINY.replace("\n", "\r\n"),
        TINY.replace(" ", "   "),
        TINY.replace(" ", "\t").replace("%\tmade", "% made"),
        TINY.replace("\n3 1", "\n\n  3 1"),
        TINY.replace("%%", "%").replace("matrix coordinate", "MATRIX Coordinate"),
        TINY.replace("3 3 4", "% 3 3 9\n%\n3 3 4 "),
        gz(TINY.encode()),
    ],
)
def test_entries_match_a_hand_written_matrix(write, content):
    stream = load("matrix_market", write(content)).arcs
    assert stream.nodes == 3
    expected = [(1, 0, 0.5), (0, 2, -2), (2, 2, np.float32(1e-3)), (1, 0, 0.5)]
    assert arcs_of(stream) == expected
    assert arcs_of(stream) == expected


def test_blocks_may_end_anywhere(write, monkeypatch):
    for content in (TINY, LOWER):
        path = write(content)
        whole = arcs_of(load("matrix_market", path).arcs)
        for size in range(1, len(content) + 1):
            monkeypatch.setattr(text, "BLOCK", size)
            assert arcs_of(load("matrix_market", path).arcs) == whole


def test_matrix_without_entries_is_read(write):
    stream = load("matrix_market", write("%%MatrixMarket matrix coordinate pattern general\n5 5 0\n")).arcs
    assert (stream.nodes, arcs_of(stream)) == (5, [])


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["a.mtx"], "a.mtx"),
        (["graph/graph.mtx", "graph/graph_coord.mtx", "graph/graph_b.mtx"], "graph/graph.mtx"),
        (["graph/other.mtx.gz"], "graph/other.mtx.gz"),
        (["graph/graph.mtx", "graph/license.txt"], "graph/graph.mtx"),
    ],
)
def test_folder_with_one_matrix_is_read(write, tmp_path, names, chosen):
    for name in names:
        write(TINY if name == chosen else LOWER, name)
    assert load("matrix_market", tmp_path).arcs.weighted
    assert loader_of(tmp_path / chosen) == "matrix_market"


@pytest.mark.parametrize("names", [[], ["a.mtx", "b.mtx"], ["a/a.mtx", "b/b.mtx"], ["a.txt"]])
def test_folder_without_exactly_one_matrix_is_refused(write, tmp_path, names):
    for name in names:
        write(TINY, name)
    with pytest.raises(InputError, match=r"\d files end in \.mtx"):
        load("matrix_market", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: not a Matrix Market banner"),
        (TINY.replace(" general", ""), "line 1: not a Matrix Market banner"),
        (TINY.replace("matrix", "vector"), "line 1: object 'vector' is no graph; supported: matrix"),
        (TINY.replace("coordinate", "list"), "line 1: format 'list' is no graph; supported: coordinate, array"),
        (TINY.replace("coordinate", "array"), "line 4: expected rows and columns as two whole numbers"),
        (TINY.replace("real", "complex"), "line 1: field 'complex' is no graph; supported: real, double, integer, "),
        (TINY.replace("general", "skew-symmetric"), r"line 5: entry \(1, 2\) is above the diagonal; a skew-symmetric"),
        (TINY.replace("general", "hermitian"), "line 1: symmetry 'hermitian' is no graph"),
        (TINY.partition("3 3 4")[0], "has no size line"),
        (TINY.replace("3 3 4", "3 3"), "line 4: expected rows, columns and entries"),
        (TINY.replace("3 3 4", "-3 -3 4"), "line 4: expected rows, columns and entries"),
        (TINY.replace("3 3 4", "3 4 4"), "line 4: the matrix is 3 x 4; that of a graph is square"),
        (TINY.replace("3 3 4", "0 0 0"), r"line 4: 0 rows, expected 1\.\."),
        (TINY.replace("3 3 4", "4294967297 4294967297 4"), r"line 4: 4294967297 rows"),
        (TINY.replace("3 3 4", "3 3 3"), "line 8: one more than the 3 that line 4 announces"),
        (TINY.replace("3 3 4", "3 3 5"), "ends after 4 of the 5 lines that line 4 announces"),
        (TINY.replace("3 1 -2", "0 1 -2"), r"line 6: row is 0, outside 1\.\.3"),
        (TINY.replace("3 1 -2", "3 4 -2"), r"line 6: column is 4, outside 1\.\.3"),
        (TINY.replace("3 1 -2", "3 1"), r"line 6: 2 fields, expected 3 \(row, column, value\)"),
        (TINY.replace("3 1 -2", "3 1 nan"), "line 6: value is nan, not a finite float32"),
        (LOWER.replace("3 2", "2 3"), r"line 5: entry \(2, 3\) is above the diagonal"),
        (LOWER.replace("3 2", "3 2 1"), "line 5: 3 fields, expected 2"),
        (gz(TINY.encode())[:-9], "cut off or corrupt gzip data"),
    ],
)
@pytest.mark.parametrize("size", [11, 10**6])
def test_bad_files_are_named(write, monkeypatch, content, message, size):
    path = write(content)
    monkeypatch.setattr(text, "BLOCK", size)
    refused("matrix_market", path, message)
