"""The whole command on files that are not what a loader expects: one line that names the place, code 2, no output."""

import io
import re
import sys
import zipfile
from collections.abc import Callable

import numpy as np
import pytest
from text_helpers import gz

from mgg import cli

HUGE = str(2**63 + 1)
MTX = "%%MatrixMarket matrix coordinate pattern general\n"
TU = {"A": "1, 2\n2, 1\n", "graph_indicator": "1\n1\n", "graph_labels": "1\n"}
GIN = "1\n2 0\n0 1 1\n0 1 0\n"
NT = "<http://a/s> <http://a/p> <http://a/o> .\n"


def zipped(members: dict[str, str | bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def tu(**changes: str | bytes) -> bytes:
    return zipped({f"T/T_{name}.txt": content for name, content in (TU | changes).items()})


def gin(text: str) -> bytes:
    return zipped({"G/G.txt": text})


def ogb(**changes: str) -> dict[str, bytes]:
    files = {"edge": "0,1\n1,0\n", "num-node-list": "2\n", "num-edge-list": "2\n"}
    files |= {name.replace("_", "-"): text for name, text in changes.items()}
    return {f"raw/{name}.csv.gz": gz(text.encode()) for name, text in files.items()}


def npz(**changes: np.ndarray) -> bytes:
    arrays = {
        "adj_data": np.ones(2, np.float32),
        "adj_indices": np.array([1, 0]),
        "adj_indptr": np.array([0, 1, 2]),
        "adj_shape": np.array([2, 2]),
        "labels": np.array([0, 1]),
    }
    file = io.BytesIO()
    np.savez_compressed(file, **(arrays | changes))
    return file.getvalue()


def npy(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


#: Loader, name of the file or None for a folder, its content or files, what the line must say beside the path.
CASES: list[tuple[str, str | None, bytes | str | dict[str, bytes] | Callable[[], bytes | dict[str, bytes]], str]] = [
    # Truncated gzip.
    ("snap", "e.txt.gz", gz(b"0 1\n" * 5000)[:-20], "cut off or corrupt gzip"),
    ("matrix_market", "m.mtx.gz", gz((MTX + "2 2 5000\n" + "1 2\n" * 5000).encode())[:-20], "cut off or corrupt gzip"),
    ("table", "t.csv.gz", gz(b"source,target\n" + b"0,1\n" * 5000)[:-20], "cut off or corrupt gzip"),
    ("rdf", "t.nt.gz", gz(NT.encode() * 500)[:-20], "cut off or corrupt gzip"),
    ("ogb", None, ogb() | {"raw/edge.csv.gz": gz(b"0,1\n" * 5000)[:-20]}, "cut off or corrupt gzip"),
    ("digits", "digits.csv.gz", gz(b"0," * 64 + b"1\n")[:-9], "digits"),
    ("tu", "t.zip", tu()[:-30], "zip"),
    ("gin", "g.zip", gin(GIN)[:-30], "zip"),
    ("npz", "a.npz", npz()[:-30], "npz"),
    ("edges", "e.npy", npy(np.zeros((9, 2), np.int64))[:-3], "truncated"),
    # Wrong header counts.
    ("snap", "e.txt", "# Nodes: 2 Edges: 3\n0 1\n1 0\n", "2 of the 3 lines that line 1 announces"),
    ("snap", "e.txt", "# Nodes: 7 Edges: 2\n0 1\n1 0\n", "line 1: announces 7 nodes, but the arcs join 2"),
    ("snap", "e.jlg", "2,1,d,g\n1,2\n2,1\n", "line 3"),
    ("matrix_market", "m.mtx", MTX + "2 2 3\n1 2\n2 1\n", "2 of the 3"),
    ("matrix_market", "m.mtx", MTX + "2 2 1\n1 2\n2 1\n", "line 4"),
    ("ogb", None, ogb(num_edge_list="3\n"), "edge"),
    ("ogb", None, ogb(num_node_list="1\n"), "line 2"),
    ("gin", "g.zip", gin("2" + GIN[1:]), "G.txt"),
    ("gin", "g.zip", gin("1\n3 0\n0 1 1\n0 1 0\n"), "line"),
    ("tu", "t.zip", tu(graph_indicator="1\n"), "T_A.txt: line 2"),
    ("npz", "a.npz", npz(adj_shape=np.array([3, 3])), "adj"),
    # 0-based ids in a 1-based format.
    ("matrix_market", "m.mtx", MTX + "2 2 2\n0 1\n1 0\n", "line 3"),
    ("snap", "e.jlg", "2,2,d,g\n1,2\n0,1\n", "line 3"),
    ("tu", "t.zip", tu(A="1, 2\n0, 1\n"), "T_A.txt: line 2"),
    # Ids beyond 2^31 and 2^63.
    ("matrix_market", "m.mtx", MTX + f"2 2 2\n1 2\n1 {2**31}\n", "line 4"),
    ("matrix_market", "m.mtx", MTX + f"2 2 2\n1 2\n1 {HUGE}\n", "line 4"),
    ("snap", "e.txt", f"0 1\n1 {2**63}\n", "line 2"),
    ("snap", "e.txt", f"0 1\n1 {HUGE}\n", "line 2"),
    ("table", "t.csv", f"source,target\n0,{HUGE}\n", "line 2"),
    ("ogb", None, ogb(edge=f"0,1\n0,{2**31}\n"), "line 2"),
    ("ogb", None, ogb(edge=f"0,1\n0,{HUGE}\n"), "line 2"),
    ("tu", "t.zip", tu(A=f"1, 2\n{HUGE}, 1\n"), "T_A.txt: line 2"),
    ("gin", "g.zip", gin(f"1\n2 0\n0 1 {HUGE}\n0 1 0\n"), "G.txt: line 3"),
    ("edges", "e.npy", npy(np.array([[0, 2**63]], np.uint64)), "node id 9223372036854775808"),
    ("npz", "a.npz", npz(adj_indices=np.array([1, 2**31])), "adj"),
    # Non-numeric fields.
    ("matrix_market", "m.mtx", MTX + "2 2 2\n1 2\nx 1\n", "line 4"),
    ("snap", "e.txt", "0 1\n1 b\n", "line 2"),
    ("table", "t.csv", "source,target\n0,1\none,2\n", "line 3"),
    ("ogb", None, ogb(edge="0,1\n0,y\n"), "line 2"),
    ("tu", "t.zip", tu(A="1, 2\n2, z\n"), "T_A.txt: line 2"),
    ("gin", "g.zip", gin(GIN.replace("0 1 1", "0 1 w")), "G.txt: line 3"),
    ("rdf", "t.nt", NT + "<http://a/s> no .\n", "line 2"),
    ("digits", "digits.csv.gz", gz(b"a," * 64 + b"1\n"), "digits"),
    ("npz", "a.npz", npz(adj_indices=np.array([0.5, 0])), "adj"),
    # Empty graphs.
    ("snap", "e.txt", "# nothing\n", "no arcs"),
    ("table", "t.csv", "source,target\n", "no arcs"),
    ("matrix_market", "m.mtx", MTX + "0 0 0\n", "line 2"),
    ("edges", "e.npy", npy(np.zeros((0, 2), np.int64)), "no arc"),
    ("rdf", "t.nt", "# nothing\n", "t.nt"),
    ("gin", "g.zip", gin("0\n"), "G.txt"),
    ("tu", "t.zip", tu(A="", graph_indicator="", graph_labels=""), "T_"),
    ("npz", "a.npz", npz(adj_shape=np.array([0, 0]), adj_indptr=np.array([0])), "adj"),
    # Archives and files that unpack to far more than they are, made by the test that takes them.
    ("tu", "t.zip", lambda: tu(A=b"1, 2\n" * 20_000_000), "unpack"),
    ("gin", "g.zip", lambda: gin("0" * 100_000_000), "unpack"),
    ("npz", "a.npz", lambda: npz(labels=np.zeros(2 * 10**7, np.int64)), "labels"),
    ("snap", "e.txt.gz", lambda: gz(b"0" * 50_000_000), "longer than"),
    ("matrix_market", "m.mtx.gz", lambda: gz(MTX.encode() + b" " * 50_000_000), "longer than"),
    ("rdf", "t.nt.gz", lambda: gz(b"<" + b"a" * 50_000_000), "longer than"),
    ("table", "t.csv.gz", lambda: gz(b"source,target\n" + b"1" * 50_000_000), "longer than"),
    ("ogb", None, lambda: ogb() | {"raw/edge.csv.gz": gz(b"7" * 50_000_000)}, "longer than"),
]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> Callable[[list[str]], tuple[int, str]]:
    """``run(arguments)``: exit code and what was said on standard error."""

    def call(arguments: list[str]) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["mgg", *arguments])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return int(left.value.code or 0), capsys.readouterr().err

    monkeypatch.chdir(tmp_path)
    return call


@pytest.mark.parametrize(
    ("loader", "name", "content", "words"), CASES, ids=[f"{k}-{c[0]}" for k, c in enumerate(CASES)]
)
def test_bad_input_is_one_line_that_names_the_place(tmp_path, run, loader, name, content, words):
    given, content = tmp_path / (name or "folder"), content() if callable(content) else content
    for file, data in ({".": content} if name else content).items():
        (given / file).parent.mkdir(parents=True, exist_ok=True)
        (given / file).write_bytes(data.encode() if isinstance(data, str) else data)
    code, said = run(["graph", given.name, "--out", "out", "--loader", loader, "--memory", "2GiB"])
    assert code == 2, said
    assert said.count("\n") == 1, said
    assert "Traceback" not in said
    assert given.name in said or re.search(r"\w+\.txt", said), said
    assert words in said
    assert sorted(path.name for path in tmp_path.iterdir()) == [given.name], "nothing may be left"


@pytest.mark.parametrize("loader", ["snap", "matrix_market", "table", "rdf"])
@pytest.mark.parametrize("mess", ["crlf", "blank lines", "repeats and loops"])
def test_what_is_untidy_is_read_all_the_same(tmp_path, run, loader, mess):
    arcs = {
        "snap": ["0 1", "1 0"],
        "matrix_market": ["1 2", "2 1"],
        "table": ["0,1", "1,0"],
        "rdf": ["<http://a/a> <http://a/p> <http://a/b> .", "<http://a/b> <http://a/p> <http://a/a> ."],
    }[loader]
    loop = {"snap": "1 1", "matrix_market": "2 2", "table": "1,1", "rdf": "<http://a/b> <http://a/p> <http://a/b> ."}
    if mess == "repeats and loops":
        arcs = [*arcs, *arcs, loop[loader]]
    head = {"matrix_market": [MTX.strip(), f"2 2 {len(arcs)}"], "table": ["source,target"]}.get(loader, [])
    lines = [*head, *([""] if mess == "blank lines" else []), *arcs, *([""] if mess == "blank lines" else [])]
    ending = "\r\n" if mess == "crlf" else "\n"
    (tmp_path / "given").write_bytes((ending.join(lines) + ending).encode())
    code, said = run(["graph", "given", "--out", "out", "--loader", loader, "--memory", "2GiB"])
    assert code == 0, said
    manifest = (tmp_path / "out" / "manifest.yaml").read_text()
    stored = 4 if loader == "rdf" else 2  # inverse arcs, of a type of their own
    loops = (mess == "repeats and loops") * stored // 2
    kept = loops if loader == "matrix_market" else 0  # a matrix keeps its diagonal
    assert f"\narcs: {stored + kept}\n" in manifest
    assert f"\ndropped_loops: {loops - kept}\n" in manifest
