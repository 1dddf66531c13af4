import io

import numpy as np
import pytest
import scipy.io
from scipy import sparse
from text_helpers import arcs_of, exhaust, gz, load

from mgg.errors import InputError
from mgg.graph.io import text
from mgg.graph.sources import loader_of

TINY = "%%MatrixMarket matrix coordinate real general\n% made by hand\n\n3 3 4\n1 2 0.5\n3 1 -2\n3 3 1e-3\n1 2 0.5\n"
LOWER = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 3\n2 1\n3 3\n3 2\n"


@pytest.fixture
def write(tmp_path):
    def write(content, name="graph.mtx"):
        data = content if isinstance(content, bytes) else content.encode()
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    return write


def matrix(stream):
    """The dense adjacency: row = target, column = source, of an undirected stream with its mirror image."""
    dense = np.zeros((stream.nodes, stream.nodes), np.float32)
    for source, target, *weight in arcs_of(stream):
        dense[target, source] = weight[0] if weight else 1
        if stream.undirected:
            dense[source, target] = dense[target, source]
    return dense


def test_cnr_2000_has_the_published_counts(mirror):
    stream = load("matrix_market", mirror / "cnr-2000").arcs
    arcs = loops = 0
    for part in stream.read():
        arcs += len(part.sources)
        loops += int((part.sources == part.targets).sum())
    assert (stream.nodes, stream.weighted, stream.undirected, arcs, loops) == (325_557, False, False, 3_216_152, 87_442)


@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
@pytest.mark.parametrize("seed", range(3))
def test_matrices_are_those_of_scipy(write, monkeypatch, field, symmetry, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    values = rng.standard_normal(300) if field != "integer" else rng.integers(-1000, 1000, 300)
    ends = rng.integers(0, n, (2, 300))
    first = np.unique(ends[0] * n + ends[1], return_index=True)[1]
    made = sparse.coo_array((values[first], ends[:, first]), shape=(n, n))
    if symmetry == "symmetric":
        made = sparse.tril(made)
        made = (made + sparse.triu(made.T, 1)).tocoo()
    target = io.BytesIO()
    scipy.io.mmwrite(target, made, comment="a\nb", field=field, symmetry=symmetry)
    path = write(target.getvalue())
    monkeypatch.setattr(text, "BLOCK", int(rng.integers(1, 500)))
    stream = load("matrix_market", path).arcs
    assert (stream.weighted, stream.undirected) == (field != "pattern", symmetry == "symmetric")
    assert np.array_equal(matrix(stream), scipy.io.mmread(path).toarray().astype(np.float32))


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
def test_entries_by_hand(write, content):
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


def test_a_matrix_without_entries(write):
    stream = load("matrix_market", write("%%MatrixMarket matrix coordinate pattern general\n5 5 0\n")).arcs
    assert (stream.nodes, arcs_of(stream)) == (5, [])


def test_nodes_beyond_2_to_the_31(write):
    head = "%%MatrixMarket matrix coordinate pattern general\n"
    stream = load("matrix_market", write(head + "4294967296 4294967296 1\n4294967296 2147483649\n")).arcs
    assert arcs_of(stream) == [(2147483648, 4294967295)]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["a.mtx"], "a.mtx"),
        (["graph/graph.mtx", "graph/graph_coord.mtx", "graph/graph_b.mtx"], "graph/graph.mtx"),
        (["graph/other.mtx.gz"], "graph/other.mtx.gz"),
        (["graph/graph.mtx", "graph/license.txt"], "graph/graph.mtx"),
    ],
)
def test_the_matrix_of_a_folder(write, tmp_path, names, chosen):
    for name in names:
        write(TINY if name == chosen else LOWER, name)
    assert load("matrix_market", tmp_path).arcs.weighted
    assert loader_of(tmp_path / chosen) == "matrix_market"


@pytest.mark.parametrize("names", [[], ["a.mtx", "b.mtx"], ["a/a.mtx", "b/b.mtx"], ["a.txt"]])
def test_folders_without_one_matrix(write, tmp_path, names):
    for name in names:
        write(TINY, name)
    with pytest.raises(InputError, match=r"\d files end in \.mtx"):
        load("matrix_market", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: not a Matrix Market banner"),
        ("3 3 1\n1 1\n", "line 1: not a Matrix Market banner"),
        (TINY.replace(" general", ""), "line 1: not a Matrix Market banner"),
        (TINY.replace("matrix", "vector"), "line 1: object 'vector' is no graph; supported: matrix"),
        (TINY.replace("coordinate", "list"), "line 1: format 'list' is no graph; supported: coordinate, array"),
        (TINY.replace("coordinate", "array"), "line 4: expected rows and columns as two whole numbers"),
        (TINY.replace("real", "complex"), "line 1: field 'complex' is no graph; supported: real, double, integer, "),
        (TINY.replace("general", "skew-symmetric"), r"line 5: entry \(1, 2\) is above the diagonal; a skew-symmetric"),
        (TINY.replace("general", "hermitian"), "line 1: symmetry 'hermitian' is no graph"),
        (TINY.partition("3 3 4")[0], "has no size line"),
        (TINY.replace("3 3 4", "3 3"), "line 4: expected rows, columns and entries"),
        (TINY.replace("3 3 4", "3 3 four"), "line 4: expected rows, columns and entries"),
        (TINY.replace("3 3 4", "-3 -3 4"), "line 4: expected rows, columns and entries"),
        (TINY.replace("3 3 4", "3 4 4"), "line 4: the matrix is 3 x 4; that of a graph is square"),
        (TINY.replace("3 3 4", "0 0 0"), r"line 4: 0 rows, expected 1\.\."),
        (TINY.replace("3 3 4", "4294967297 4294967297 4"), r"line 4: 4294967297 rows"),
        (TINY.replace("3 3 4", f"{2**63} {2**63} 4"), f"line 4: {2**63} rows"),
        (TINY.replace("3 3 4", "3 3 3"), "line 8: one more than the 3 that line 4 announces"),
        (TINY.replace("3 3 4", "3 3 5"), "ends after 4 of the 5 lines that line 4 announces"),
        (TINY.replace("3 3 4", "3 3 0"), "line 5: one more than the 0"),
        (TINY.replace("3 1 -2", "0 1 -2"), r"line 6: row is 0, outside 1\.\.3"),
        (TINY.replace("3 1 -2", "3 4 -2"), r"line 6: column is 4, outside 1\.\.3"),
        (TINY.replace("3 1 -2", "3 -1 -2"), r"line 6: column is -1"),
        (TINY.replace("3 1 -2", "3 2147483648 -2"), "line 6: column is 2147483648, outside"),
        (TINY.replace("3 1 -2", "3 9223372036854775808 -2"), r"line 6: column is '9223372036854775808', beyond 2\^63"),
        (TINY.replace("3 1 -2", "3 1.5 -2"), "line 6: column is '1.5', not a whole number"),
        (TINY.replace("3 1 -2", "3 1"), r"line 6: 2 fields, expected 3 \(row, column, value\)"),
        (TINY.replace("3 1 -2", "3 1 -2 0"), "line 6: 4 fields, expected 3"),
        (TINY.replace("3 1 -2", "3 1 two"), "line 6: value is 'two', not a number"),
        (TINY.replace("3 1 -2", "3 1 nan"), "line 6: value is nan, not a finite float32"),
        (TINY.replace("3 1 -2", "3 1 -inf"), "line 6: value is -inf, not a finite float32"),
        (TINY.replace("3 1 -2", "3 1 1e39"), r"line 6: value is 1e\+39, not a finite float32"),
        (LOWER.replace("3 2", "2 3"), r"line 5: entry \(2, 3\) is above the diagonal"),
        (LOWER.replace("3 2", "3 2 1"), "line 5: 3 fields, expected 2"),
        (gz(TINY.encode())[:-9], "cut off or corrupt gzip data"),
        (gz(TINY.encode() + b"1 1 1\n" * 9)[:-15], "cut off or corrupt gzip data"),
    ],
)
@pytest.mark.parametrize("size", [11, 10**6])
def test_bad_files_are_named(write, monkeypatch, content, message, size):
    path = write(content)
    monkeypatch.setattr(text, "BLOCK", size)
    with pytest.raises(InputError, match=message) as caught:
        exhaust("matrix_market", path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
