"""Files as other programs write them, one case a file: what MGG reads is what pandas or NumPy reads, or is refused."""

from __future__ import annotations

import codecs

import numpy as np
import pytest
from text_helpers import PACK, arcs_of, exhaust, load

from mgg.errors import InputError
from mgg.graph import text
from mgg.graph.build import build

ARCS = [(5, 1), (1, 5), (5, 5)]
LINES = "5 1\n1 5\n5 5\n"


@pytest.fixture
def write(tmp_path):
    def write(content, name="edges.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize("size", [1, 3, 7, 10**6])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("loader", ["table", "snap"])
def test_encodings_and_ends_of_lines(write, monkeypatch, loader, encoding, ends, size):
    monkeypatch.setattr(text, "BLOCK", size)
    content = LINES if loader == "snap" else "source,target\n" + LINES.replace(" ", ",")
    mark = codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b""
    path = write(mark + content.replace("\n", ends).encode(encoding))
    assert arcs_of(load(loader, path).arcs) == ARCS


@pytest.mark.parametrize("suffix", PACK)
def test_utf16_that_is_compressed(write, suffix):
    assert arcs_of(load("snap", write(PACK[suffix](LINES.encode("utf-16")))).arcs) == ARCS


def test_lines_of_cr_are_counted(write):
    with pytest.raises(InputError, match="line 3: target is 'x', not a whole number"):
        exhaust("table", write("source,target\r1,2\r3,x\r"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LINES.encode("utf-16-le"), "looks like UTF-16 without a byte order mark: save it as UTF-8"),
        (codecs.BOM_UTF16_LE + b"1\x00 \x002", "begins as utf-16.* and is none"),
        (codecs.BOM_UTF16_LE + b"\x00\xdc1\x002\x00", "begins as utf-16.* and is none"),
    ],
)
def test_what_is_no_utf16_is_refused(write, content, message):
    with pytest.raises(InputError, match=message):
        exhaust("snap", write(content))


def test_weights_that_float32_would_hold_as_0(write):
    with pytest.raises(InputError, match=r"edges\.csv: line 3: weight is 1e-50, too small for a float32"):
        exhaust("table", write("source,target,weight\n0,1,0\n1,0,1e-50\n"))
    banner = "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 0\n2 1 -1e-50\n"
    with pytest.raises(InputError, match=r"a\.mtx: line 4: value is -1e-50, too small for a float32"):
        exhaust("matrix_market", write(banner, "a.mtx"))
    smallest = float(np.finfo(np.float32).smallest_subnormal)
    graph = load("table", write(f"source,target,weight\n0,1,0\n1,0,{smallest}\n"))
    assert arcs_of(graph.arcs) == [(0, 1, 0), (1, 0, smallest)]


def test_weights_of_an_npz_that_float32_would_hold_as_0(tmp_path):
    np.savez(
        tmp_path / "a.npz",
        adj_data=np.array([1, 1e-50]), adj_indices=[1, 0], adj_indptr=[0, 1, 2], adj_shape=[2, 2],
    )  # fmt: skip
    with pytest.raises(InputError, match=r"a\.npz: weight of arc 1 is 1e-50, too small"):
        exhaust("npz", tmp_path / "a.npz")


def test_a_path_that_does_not_exist_is_told_first(tmp_path):
    with pytest.raises(InputError, match=r"^kora: no such file or folder, and unknown data set 'kora'; did you mean"):
        build("kora", tmp_path / "graph")
