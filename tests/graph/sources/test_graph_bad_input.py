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


#: Loader, name of the file or None for a folder, its content or files, what the line must say beside the path. Which
#: lines a loader refuses is tested beside the loader.
CASES: list[tuple[str, str | None, bytes | str | dict[str, bytes], str]] = [
    ("snap", "e.txt.gz", gz(b"0 1\n" * 5000)[:-20], "cut off or corrupt gzip"),
    ("snap", "e.txt", "# Nodes: 7 Edges: 2\n0 1\n1 0\n", "line 1: announces 7 nodes, but the arcs join 2"),
    ("matrix_market", "m.mtx", MTX + f"2 2 2\n1 2\n1 {HUGE}\n", "line 4"),
    ("table", "t.csv", "source,target\n0,1\none,2\n", "line 3"),
    ("rdf", "t.nt", NT + "<http://a/s> no .\n", "line 2"),
    ("ogb", None, ogb() | {"raw/edge.csv.gz": gz(b"0,1\n" * 5000)[:-20]}, "cut off or corrupt gzip"),
    ("ogb", None, ogb(num_node_list="1\n"), "line 2"),
    ("digits", "digits.csv.gz", gz(b"a," * 64 + b"1\n"), "digits"),
    ("tu", "t.zip", tu()[:-30], "zip"),
    ("tu", "t.zip", tu(A="1, 2\n0, 1\n"), "T_A.txt: line 2"),
    ("gin", "g.zip", gin(GIN)[:-30], "zip"),
    ("gin", "g.zip", gin("1\n3 0\n0 1 1\n0 1 0\n"), "line"),
    ("npz", "a.npz", npz()[:-30], "npz"),
    ("npz", "a.npz", npz(adj_indices=np.array([1, 2**31])), "adj"),
    ("edges", "e.npy", npy(np.array([[0, 2**63]], np.uint64)), "node id 9223372036854775808"),
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
    given = tmp_path / (name or "folder")
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
