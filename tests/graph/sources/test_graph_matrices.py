"""Matrix files as graphs: the arcs, weights, repeats and self-loops are those of the matrix that SciPy reads."""

import json

import numpy as np
import pytest
import scipy.io
from click.testing import CliRunner
from scipy import sparse
from text_helpers import gz, load

from mgg.cli.group import cli
from mgg.errors import InputError, MachineError
from mgg.graph.budget import limited, resident
from mgg.graph.build import build, gather, scatter, shard
from mgg.graph.io import text
from mgg.graph.sources import scipy_npz
from mgg.graph.store import Graph

#: Entries of a matrix of 30 rows with repeats and a diagonal; the values are quarters, so float32 sums are exact.
N = 30
RNG = np.random.default_rng(5)
ROWS, COLUMNS = RNG.integers(0, N, (2, 400))
VALUES = RNG.integers(1, 9, 400) / 4
COO = sparse.coo_array((VALUES, (ROWS, COLUMNS)), shape=(N, N))


def product_matrix(folder) -> sparse.csr_array:
    """The matrix of a graph folder, whose product is C = A B."""
    graph = Graph.open(folder)
    return sparse.csr_array(graph.rows(0, graph.manifest.nodes).to_scipy(np.float64))


def same(found, expected) -> bool:
    """Equal entries in equal places, explicit zeros included."""
    expected = sparse.csr_array(expected, copy=True)
    expected.sum_duplicates()
    return (
        np.array_equal(found.indptr, expected.indptr)
        and np.array_equal(found.indices, expected.indices)
        and np.array_equal(found.data, expected.data)
    )


def write_mtx(path, matrix, **options):
    """A Matrix Market file by SciPy, or with the entries of a COO matrix as they are, repeats included."""
    if sparse.issparse(matrix) and matrix.format == "coo" and not options:
        lines = [f"{i + 1} {j + 1} {v}" for i, j, v in zip(*matrix.coords, matrix.data, strict=True)]
        head = f"%%MatrixMarket matrix coordinate real general\n{N} {N} {matrix.nnz}\n"
        path.write_text(head + "\n".join(lines) + "\n")
    else:
        scipy.io.mmwrite(path, matrix, **options)
    return path


@pytest.mark.parametrize("field", ["real", "integer"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("block", [7, 2**21])
def test_every_matrix_market_form_matches_scipy(tmp_path, monkeypatch, field, symmetry, dense, block):
    monkeypatch.setattr(text, "BLOCK", block)
    made = COO.toarray() if field == "real" else np.round(COO.toarray()).astype(np.int64)
    made = {"general": made, "symmetric": made + made.T, "skew-symmetric": made - made.T}[symmetry]
    path = tmp_path / "a.mtx"
    write_mtx(path, made if dense else sparse.csc_array(made), field=field, symmetry=symmetry)
    assert path.read_text().split("\n")[0].split()[2:] == ["array" if dense else "coordinate", field, symmetry]
    manifest = build(path, tmp_path / "graph")
    assert same(product_matrix(tmp_path / "graph"), sparse.coo_array(scipy.io.mmread(path)))
    assert manifest.symmetric == (symmetry == "symmetric")
    assert manifest.dropped_loops == manifest.dropped_repeats == 0


@pytest.mark.parametrize("field", ["unsigned-integer", "double"])
def test_nonstandard_fields_match_scipy(tmp_path, field):
    path = write_mtx(tmp_path / "a.mtx", sparse.coo_array(np.array([[0, 2], [3, 4]])), symmetry="general")
    path.write_text(path.read_text().replace("integer", field))
    build(path, tmp_path / "graph")
    assert same(product_matrix(tmp_path / "graph"), scipy.io.mmread(path))


@pytest.mark.parametrize(
    ("banner", "lines", "message"),
    [
        ("array pattern general", "1 1\n1", "line 1: a pattern has no values: it cannot be array general"),
        ("coordinate pattern skew-symmetric", "2 2 1\n2 1", "line 1: a pattern has no values"),
        ("coordinate real skew-symmetric", "2 2 1\n1 1 3", r"line 3: entry \(1, 1\) is on the diagonal"),
        ("array real general", "2 2\n1\n2\n3", "ends after 3 of the 4 lines that the size of line 2 announces"),
        ("array real symmetric", "2 2\n1\n2\n3\n4", "line 6: one more than the 3 that the size of line 2"),
        ("array real general", "2 2 4\n1\n2\n3\n4", "line 2: expected rows and columns as two whole numbers"),
    ],
)
def test_matrix_market_files_without_a_graph_are_refused(tmp_path, banner, lines, message):
    path = tmp_path / "a.mtx"
    path.write_text(f"%%MatrixMarket matrix {banner}\n{lines}\n")
    with pytest.raises(InputError, match=message):
        for _ in load("matrix_market", path).arcs.read():
            pass


MERGED = {"sum": np.add, "max": np.maximum}


def merged(repeats, loops, rows=ROWS, columns=COLUMNS, values=VALUES):
    """The entries merged one by one in their order."""
    found: dict[tuple[int, int], float] = {}
    for row, column, value in zip(rows.tolist(), columns.tolist(), values.tolist(), strict=True):
        if row != column or loops == "keep":
            known = found.get((row, column))
            found[row, column] = value if known is None else MERGED.get(repeats, lambda a, _: a)(known, value)
    ends = np.array(list(found), int).reshape(-1, 2).T
    return sparse.csr_array(sparse.coo_array((list(found.values()), tuple(ends)), shape=(N, N)))


@pytest.mark.parametrize("loops", ["drop", "keep"])
@pytest.mark.parametrize("repeats", ["first", "sum", "max"])
def test_repeats_and_loops_follow_the_options(tmp_path, repeats, loops):
    path = write_mtx(tmp_path / "a.mtx", COO)
    manifest = build(path, tmp_path / "graph", repeats=repeats, loops=loops)
    assert same(product_matrix(tmp_path / "graph"), merged(repeats, loops))
    listed_loops = int((ROWS == COLUMNS).sum())
    assert (manifest.repeats, manifest.loops, manifest.listed_arcs) == (repeats, loops, 400)
    assert manifest.dropped_loops == (listed_loops if loops == "drop" else 0)
    assert manifest.arcs == 400 - manifest.dropped_loops - manifest.dropped_repeats
    again = build(tmp_path / "graph", tmp_path / "again", order="degree")
    assert (again.repeats, again.loops, again.dropped_repeats) == (repeats, loops, manifest.dropped_repeats)
    assert again.arcs == manifest.arcs
    turned = Graph.open(tmp_path / "again").ids(0, N)
    assert same(product_matrix(tmp_path / "again"), merged(repeats, loops)[turned][:, turned])


def test_matrices_sum_repeats_by_default_and_tables_do_not(tmp_path, caplog):
    mtx, csv = write_mtx(tmp_path / "a.mtx", COO), tmp_path / "a.csv"
    assert same(sparse.csr_array(scipy.io.mmread(mtx)), COO)
    build(mtx, tmp_path / "matrix")
    assert same(product_matrix(tmp_path / "matrix"), scipy.io.mmread(mtx))
    assert not caplog.records
    lines = [f"{j},{i},{v}" for i, j, v in zip(ROWS, COLUMNS, VALUES, strict=True)]
    csv.write_text("source,target,weight\n" + "\n".join(lines) + "\n")
    found = build(csv, tmp_path / "table")
    assert same(product_matrix(tmp_path / "table"), merged("first", "drop"))
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "a.csv: columns: source=source, target=target, weight=weight",
        f"a.csv: {found.dropped_loops} of 400 arcs join a node to itself and are left out (--loops keep keeps them)",
        f"a.csv: {found.dropped_repeats} of 400 arcs repeat another one and are left out (--repeats sum adds them up)",
    ]
    build(csv, tmp_path / "asked", repeats="sum", loops="keep")
    assert same(product_matrix(tmp_path / "asked"), COO)


@pytest.mark.parametrize("repeated", [(), (3,), (3, 3, 17, 399)])
@pytest.mark.parametrize("of", [1, 3])
def test_repeated_pattern_entries_are_counted_like_scipy(tmp_path, monkeypatch, repeated, of):
    """Without repeats a pattern has no weights; with some in one of three ranges it has them everywhere."""
    monkeypatch.setattr("mgg.graph.store.shards.VERTICES_PER_PART", 8)
    monkeypatch.setattr("mgg.graph.store.shards.ARCS_PER_PART", 40)
    first = np.unique(ROWS * N + COLUMNS)
    at = np.concatenate([first, first[[k % len(first) for k in repeated]]])
    body = "".join(f"{k // N + 1} {k % N + 1}\n" for k in at)
    path = tmp_path / "a.mtx"
    path.write_text(f"%%MatrixMarket matrix coordinate pattern general\n{N} {N} {len(at)}\n{body}")
    scatter(path, tmp_path / "buckets")
    for k in range(of):
        shard(tmp_path / "buckets", tmp_path / f"{k}", number=k + 1, of=of)
    manifest = gather(tmp_path / "buckets", [tmp_path / f"{k}" for k in range(of)], tmp_path / "graph")
    assert same(product_matrix(tmp_path / "graph"), scipy.io.mmread(path))
    assert (manifest.weighted, manifest.dropped_repeats) == (bool(repeated), len(repeated))
    whole = build(path, tmp_path / "whole", name=manifest.name)
    assert whole == manifest
    symmetric = sparse.coo_array(scipy.io.mmread(path))
    assert not manifest.symmetric and (symmetric != symmetric.T).nnz


def test_symmetric_pattern_with_repeats_stays_symmetric(tmp_path, monkeypatch):
    monkeypatch.setattr("mgg.graph.store.shards.VERTICES_PER_PART", 8)
    low, high = np.minimum(ROWS, COLUMNS), np.maximum(ROWS, COLUMNS)
    both = sorted({*zip(low.tolist(), high.tolist(), strict=True), *zip(high.tolist(), low.tolist(), strict=True)})
    one = next(pair for pair in both if pair[0] < 8 and pair[1] < 8 and pair[0] != pair[1])
    for name, more, expected in (("same", [one, one[::-1]], True), ("other", [one], False)):
        body = "".join(f"{i + 1} {j + 1}\n" for i, j in [*both, *more])
        path = tmp_path / f"{name}.mtx"
        path.write_text(f"%%MatrixMarket matrix coordinate pattern general\n{N} {N} {len(both) + len(more)}\n{body}")
        scatter(path, tmp_path / "buckets")
        for k in range(3):
            shard(tmp_path / "buckets", tmp_path / f"{k}", number=k + 1, of=3)
        manifest = gather(tmp_path / "buckets", [tmp_path / f"{k}" for k in range(3)], tmp_path / "graph")
        assert (manifest.weighted, manifest.symmetric) == (True, expected)
        assert same(product_matrix(tmp_path / "graph"), scipy.io.mmread(path))


@pytest.mark.parametrize("repeats", ["first", "sum", "max"])
def test_added_reverse_arcs_are_merged_and_loops_have_none(tmp_path, repeats):
    path = write_mtx(tmp_path / "a.mtx", COO)
    manifest = build(path, tmp_path / "graph", symmetrize=True, repeats=repeats)
    off = ROWS != COLUMNS
    rows = np.stack([ROWS, np.where(off, COLUMNS, -1)], axis=1).ravel()
    columns = np.stack([COLUMNS, ROWS], axis=1).ravel()
    kept = rows >= 0
    expected = merged(repeats, "keep", rows[kept], columns[kept], np.repeat(VALUES, 2)[kept])
    assert same(product_matrix(tmp_path / "graph"), expected)
    assert manifest.symmetric and (expected != expected.T).nnz == 0


def test_sums_do_not_depend_on_memory_threads_or_jobs(tmp_path, monkeypatch):
    """Values whose sum depends on the order: rounded once, after a sum in float64 in the order of the file."""
    values = np.float32(RNG.standard_normal(4000) * 10.0 ** RNG.integers(-12, 12, 4000))
    ends = RNG.integers(0, N // 3, (2, 4000))
    body = "".join(f"{i + 1} {j + 1} {v!r}\n" for i, j, v in zip(*ends.tolist(), values.tolist(), strict=True))
    path = tmp_path / "a.mtx"
    path.write_text(f"%%MatrixMarket matrix coordinate real general\n{N} {N} 4000\n{body}")
    whole = build(path, tmp_path / "whole")
    expected = np.zeros((N, N))
    for row, column, value in zip(*ends.tolist(), values.tolist(), strict=True):
        expected[row, column] += value
    assert np.array_equal(product_matrix(tmp_path / "whole").toarray(), expected.astype(np.float32))
    monkeypatch.setattr("mgg.graph.external.sharding.TASK_ARCS", 300)
    monkeypatch.setattr("mgg.graph.external.scattering._capacity", lambda free, payloads: 97)
    monkeypatch.setattr("mgg.graph.external.spool.BUCKETS", 4)
    monkeypatch.setattr(text, "BLOCK", 1000)
    scatter(path, tmp_path / "buckets")
    for k in range(2):
        shard(tmp_path / "buckets", tmp_path / f"{k}", number=k + 1, of=2)
    assert gather(tmp_path / "buckets", [tmp_path / f"{k}" for k in range(2)], tmp_path / "graph") == whole


def test_sums_beyond_float32_are_refused(tmp_path):
    path = tmp_path / "a.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n3 3 3\n1 1 1\n3 2 3e38\n3 2 3e38\n")
    with pytest.raises(InputError, match=r"a\.mtx: the weights of the arcs from node 1 to node 2 add up to more than"):
        build(path, tmp_path / "graph")
    assert build(path, tmp_path / "graph", repeats="max").arcs == 2


@pytest.mark.parametrize("option", [{"loops": "keep"}, {"repeats": "sum"}, {"repeats": "max"}])
def test_graph_folder_without_the_requested_arcs_is_refused(tmp_path, option):
    build(write_mtx(tmp_path / "a.mtx", COO), tmp_path / "graph", repeats="first", loops="drop")
    (name, value), *_ = option.items()
    with pytest.raises(InputError, match=rf"--{name} {value}: \d+ arcs were left out or merged"):
        build(tmp_path / "graph", tmp_path / "again", **option)
    kept = build(tmp_path / "a.mtx", tmp_path / "kept")
    bare = build(tmp_path / "kept", tmp_path / "bare", loops="drop")
    loops = int((COO.tocsr().diagonal() != 0).sum())
    assert (bare.loops, bare.dropped_loops, bare.arcs) == ("drop", loops, kept.arcs - loops)


FORMATS = ["csr", "csc", "coo", "bsr", "dia"]


def save(path, **members):
    """A file like those of save_npz, with members as they are."""
    np.savez(path, **members)
    return path


@pytest.mark.parametrize("container", ["matrix", "array"])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("compressed", "chunk"), [(False, 7), (True, 2**20)])
def test_every_format_of_save_npz_has_the_arcs_of_tocoo(tmp_path, monkeypatch, form, container, compressed, chunk):
    monkeypatch.setattr(scipy_npz, "CHUNK_ARCS", chunk)
    made = getattr(sparse, f"{form}_{container}")(COO if form == "coo" else COO.toarray())
    if form == "bsr":
        made = sparse.bsr_array(COO.toarray(), blocksize=(3, 5))
    sparse.save_npz(tmp_path / "a.npz", made, compressed=compressed)
    manifest = build(tmp_path / "a.npz", tmp_path / "graph")
    read = sparse.load_npz(tmp_path / "a.npz")
    assert read.format == form
    assert same(product_matrix(tmp_path / "graph"), read.tocoo())
    assert not (COO.toarray() == COO.toarray().T).all()  # so that a transposed one would be noticed
    assert manifest.listed_arcs == read.tocoo().nnz
    assert manifest.dropped_loops == 0


@pytest.mark.parametrize("form", FORMATS)
def test_matrices_of_ones_have_no_weights_and_nan_is_named(tmp_path, form):
    ones = sparse.coo_array((COO.toarray() != 0).astype(np.int8))
    sparse.save_npz(tmp_path / "a.npz", ones.asformat(form))
    # Blocks that are not full have zeros, which are entries.
    assert build(tmp_path / "a.npz", tmp_path / "graph").weighted == bool(
        (sparse.load_npz(tmp_path / "a.npz").data != 1).any() and form == "bsr"
    )
    assert same(product_matrix(tmp_path / "graph"), sparse.load_npz(tmp_path / "a.npz").tocoo())
    values = ones.astype(np.float64)
    values.data[11] = np.nan
    sparse.save_npz(tmp_path / "a.npz", values.asformat(form))
    with pytest.raises(InputError, match=r"a\.npz: weight of arc \d+ is nan, not a finite float32"):
        build(tmp_path / "a.npz", tmp_path / "bad")


def test_unsorted_repeated_and_padded_matrices_are_read(tmp_path):
    """Column by column, unsorted with repeats, diagonals longer than the matrix, entries beyond the last pointer."""
    blocks = sparse.bsr_array(COO.toarray(), blocksize=(3, 5))
    blocks.data = np.asfortranarray(blocks.data)
    diagonals = sparse.dia_array((np.arange(1, 91.0).reshape(45, 2).T, [-3, 4]), shape=(N, N))
    assert diagonals.data.shape == (2, 45) and diagonals.data.flags.f_contiguous
    unsorted = sparse.csr_array((np.arange(1, 7.0), [5, 2, 5, 0, 29, 0], [0, 3] + [6] * (N - 1)), shape=(N, N))
    for matrix in (blocks, diagonals, unsorted, unsorted.T):
        sparse.save_npz(tmp_path / "a.npz", matrix)
        build(tmp_path / "a.npz", tmp_path / "graph")
        assert same(product_matrix(tmp_path / "graph"), sparse.load_npz(tmp_path / "a.npz").tocoo())
    longer = {"indices": [1, 2, 9], "data": [1.0, 2, 3], "indptr": [0, 1] + [2] * (N - 1)}
    save(tmp_path / "a.npz", format=np.array(b"csr"), shape=[N, N], **longer)
    build(tmp_path / "a.npz", tmp_path / "graph")
    assert same(product_matrix(tmp_path / "graph"), sparse.load_npz(tmp_path / "a.npz"))


GOOD = {"format": np.array(b"csr"), "shape": [2, 2], "indices": [1, 0], "indptr": [0, 1, 2], "data": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": np.array(b"lil")}, "format 'lil': expected coo, csr, csc, bsr, dia"),
        ({"format": np.arange(3)}, r"format\.npy: expected a word, found int64"),
        ({"format": None}, r"has no member format\.npy, so csr, csc or bsr\?"),
        ({"shape": [2]}, "a csr array of 1 dimensions is no graph"),
        ({"shape": [2, 3]}, r"the adjacency matrix has shape \[2, 3\]; expected a square one"),
        ({"shape": [3, 3]}, r"indptr\.npy is int64 of shape \(3,\); expected 4 integers"),
        ({"indptr": [0, 1, 3]}, r"indptr\.npy does not ascend from 0 to at most 2"),
        ({"indptr": [1, 1, 2]}, r"indptr\.npy does not ascend"),
        ({"indices": [1.0, 0]}, r"indices\.npy is float64"),
        ({"indices": [1, 2]}, r"arc 1: node id 2 is outside 0\.\.1"),
        ({"data": [1.0]}, r"data\.npy is float64 of shape \(1,\); expected as many values as indices, \(2,\)"),
        ({"data": [1j, 2]}, r"data\.npy: expected numbers, found dtype complex128"),
        ({"format": np.array(b"bsr")}, r"data\.npy is float64 of shape \(2,\); expected blocks that divide 2"),
        ({"format": np.array(b"bsr"), "data": np.ones((2, 2, 2))}, r"indptr\.npy .* expected 2 integers"),
        ({"format": np.array(b"dia"), "offsets": [0]}, r"data\.npy .* a row for each of the offsets, int64"),
        ({"format": np.array(b"coo")}, r"has no member row\.npy"),
    ],
)
def test_files_that_hold_no_square_matrix_are_named(tmp_path, changed, message):
    members = {key: value for key, value in (GOOD | changed).items() if value is not None}
    save(tmp_path / "a.npz", **members)
    with pytest.raises(InputError, match=rf"a\.npz: {message}"):
        build(tmp_path / "a.npz", tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


def test_matrices_with_node_data_are_graphs_and_without_any_are_matrices(tmp_path):
    csr = sparse.csr_array(COO)
    parts = {f"adj_{part}": getattr(csr, part) for part in ("data", "indices", "indptr", "shape")}
    save(tmp_path / "alone.npz", **parts)
    save(tmp_path / "graph.npz", **parts, labels=np.arange(N) % 2)
    alone, graph = (build(tmp_path / f"{name}.npz", tmp_path / name) for name in ("alone", "graph"))
    assert (alone.repeats, alone.loops, graph.repeats, graph.loops) == ("sum", "keep", "first", "drop")
    assert same(product_matrix(tmp_path / "alone"), COO)
    assert same(product_matrix(tmp_path / "graph"), merged("sum", "drop"))
    assert graph.dropped_loops == np.count_nonzero(csr.diagonal())


def test_whole_members_stay_within_memory(tmp_path):
    rows = 2**23
    indptr = np.zeros(rows + 1, np.int64)
    save(tmp_path / "a.npz", format=np.array(b"csr"), shape=[rows] * 2, indices=[], data=[], indptr=indptr)
    with (
        limited(resident() + 2**25),
        pytest.raises(MachineError, match=r"indptr\.npy: reading it whole may take 65 MiB"),
    ):
        load("npz", tmp_path / "a.npz")


PAIRS = "1 2\n3 1\n4 4\n2 6\n"


def konect(*head, body=PAIRS):
    return "".join(f"{line}\n" for line in head) + body


def directed(nodes, weights=(1, 1, 1, 1)):
    """The matrix of PAIRS with nodes counted from 1: row = target."""
    return sparse.coo_array((weights, ([1, 0, 3, 5], [0, 2, 3, 1])), shape=(nodes, nodes)).tocsr()


@pytest.mark.parametrize("head", [("% sym",), ("% sym unweighted", "% 4 7 7"), ("%SYM positive", "% 4 7"), ()])
@pytest.mark.parametrize("kind", ["sym", "asym"])
def test_konect_banner_decides_between_arcs_and_edges(tmp_path, head, kind):
    path = tmp_path / "out.txt"
    path.write_text(konect(*(line.replace("sym", kind).replace("SYM", kind.upper()) for line in head)))
    made = build(path, tmp_path / "graph", loops="keep")
    counted = len(head) > 1
    ids = np.arange(1, 8) if counted else np.array([1, 2, 3, 4, 6])
    graph = Graph.open(tmp_path / "graph")
    assert graph.ids(0, made.nodes).tolist() == ids.tolist()
    expected = directed(7)
    expected = expected.maximum(expected.T) if kind == "sym" and head else expected
    assert same(product_matrix(tmp_path / "graph"), expected[ids - 1][:, ids - 1])
    assert made.listed_arcs == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (konect("% bip unweighted", "% 4 3 4"), "line 1: a bipartite network numbers both sets of nodes from 1: add"),
        (konect("% asym unweighted", "% 5 6 6"), "ends after 4 of the 5 lines that line 2 announces"),
        (konect("% asym unweighted", "% 4 5 5"), r"line 6: target is 6, outside 1\.\.5"),
        (konect("% sym dynamic", body="1 2 1 1082008561\n"), "line 2: no header, and 4 columns: say what"),
        (konect("% sym", body="1 2\n3 4 5\n"), "line 3: 3 fields, expected 2"),
    ],
)
def test_invalid_konect_networks_name_their_line(tmp_path, content, message):
    path = tmp_path / "out.txt"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        build(path, tmp_path / "graph")


@pytest.mark.parametrize("name", ["a.txt", "a.edges", "a.txt.gz"])
def test_matrix_market_banner_in_an_edge_list_is_no_comment(tmp_path, name):
    matrix = sparse.coo_array(COO.toarray() + COO.toarray().T)
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix, symmetry="symmetric")
    text = (tmp_path / "a.mtx").read_bytes()
    (tmp_path / name).write_bytes(gz(text) if name.endswith(".gz") else text)
    made = build(tmp_path / name, tmp_path / "graph")
    assert same(product_matrix(tmp_path / "graph"), matrix)
    assert made.source["loader"] == "matrix_market"
    assert made.symmetric and made.weighted


def test_commands_take_repeats_and_loops_and_report_dropped_arcs(tmp_path):
    path = write_mtx(tmp_path / "a.mtx", COO)
    at = {name: str(tmp_path / name) for name in ("buckets", "part", "graph", "whole")}
    asked = ["--repeats", "max", "--loops", "drop"]
    steps = [
        ["graph-scatter", str(path), "--out", at["buckets"], *asked],
        ["graph-shard", at["buckets"], "--part", "1-of-1", "--out", at["part"]],
        ["graph-gather", at["buckets"], at["part"], "--out", at["graph"]],
        ["graph", str(path), "--out", at["whole"], *asked, "--json"],
    ]
    for step in steps:
        ended = CliRunner().invoke(cli, step)
        assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["repeats"] == "max" and json.loads(ended.stdout)["loops"] == "drop"
    for name in ("graph", "whole"):
        assert same(product_matrix(tmp_path / name), merged("max", "drop"))
    assert CliRunner().invoke(cli, ["graph", str(path), "--out", at["whole"], "--loops", "some"]).exit_code == 2
