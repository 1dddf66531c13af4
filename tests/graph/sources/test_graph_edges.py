import numpy as np
import pytest

from mgg.errors import InputError
from mgg.graph.build import build
from mgg.graph.sources import edges, find_loader
from mgg.graph.store import Graph

PAIRS = np.array([[0, 1], [1, 2], [2, 0], [2, 2], [0, 1]])


@pytest.mark.parametrize("dtype", ["<i4", "<i8", "<u4", "<u8", ">i4", ">i8"])
@pytest.mark.parametrize("shape", ["pairs", "columns", "fortran"])
def test_every_form_of_a_pair_array_is_read(tmp_path, monkeypatch, dtype, shape):
    monkeypatch.setattr(edges, "CHUNK_ARCS", 2)
    values = PAIRS.astype(dtype)
    np.save(
        tmp_path / "edges.npy",
        {"pairs": values, "columns": values.T.copy(), "fortran": np.asfortranarray(values)}[shape],
    )
    chunks = list(find_loader("edges")(tmp_path / "edges.npy").arcs.read())
    assert np.array_equal(np.concatenate([chunk.sources for chunk in chunks]), PAIRS[:, 0])
    assert np.array_equal(np.concatenate([chunk.targets for chunk in chunks]), PAIRS[:, 1])
    assert build(tmp_path / "edges.npy", tmp_path / "graph").arcs == 3
    assert Graph.open(tmp_path / "graph").rows(0, 3).indices.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((3, 3), np.int64), r"expected 32 or 64-bit integers of shape \[arcs, 2\]"),
        (np.zeros(6, np.int64), "expected 32 or 64-bit integers"),
        (np.zeros((3, 2)), "expected 32 or 64-bit integers"),
        (np.zeros((3, 2), np.int16), "expected 32 or 64-bit integers"),
        (np.array([[0, -1]]), r"byte 136: node id -1 is outside 0\.\.9223372036854775807"),
        (np.array([[0, -1]], np.int32), "byte 132: node id -1 is outside"),
        (np.array([[0, 2**63]], np.uint64), "byte 136: node id 9223372036854775808 is outside"),
        (np.array([[0, 1, 2], [0, 1, 2**63]], np.uint64), "byte 168: node id 9223372036854775808 is outside"),
        (np.array([[0, 1], [2, 3], [2**63, 2]], np.uint64, order="F"), "byte 144: node id 9223372036854775808 is"),
        (np.zeros((0, 2), np.int64), "holds no arc"),
        (np.array([[None, 1]]), "expected 32 or 64-bit integers"),
    ],
)
def test_arrays_without_edges_are_refused(tmp_path, values, message):
    np.save(tmp_path / "edges.npy", values, allow_pickle=True)
    with pytest.raises(InputError, match=message):
        build(tmp_path / "edges.npy", tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


def test_truncated_files_are_refused(tmp_path):
    np.save(tmp_path / "whole.npy", PAIRS)
    data = (tmp_path / "whole.npy").read_bytes()
    for size in range(0, len(data), 7):
        (tmp_path / "cut.npy").write_bytes(data[:size])
        with pytest.raises(InputError, match=r"cut\.npy"):
            build(tmp_path / "cut.npy", tmp_path / "graph")


@pytest.mark.parametrize("columns", [False, True])
def test_id_out_of_range_in_a_later_chunk_is_located(tmp_path, monkeypatch, columns):
    monkeypatch.setattr(edges, "CHUNK_ARCS", 7)
    values = np.arange(200).reshape(2, 100) if columns else np.arange(200).reshape(100, 2)
    values.ravel()[189] = -4
    np.save(tmp_path / "edges.npy", values)
    assert (tmp_path / "edges.npy").read_bytes()[128 + 189 * 8 :][:8] == np.int64(-4).tobytes()
    with pytest.raises(InputError) as caught:
        list(find_loader("edges")(tmp_path / "edges.npy").arcs.read())
    message = f"{tmp_path / 'edges.npy'}: byte {128 + 189 * 8}: node id -4 is outside 0..9223372036854775807"
    assert str(caught.value) == message


def test_two_pairs_are_rows(tmp_path):
    np.save(tmp_path / "edges.npy", np.array([[0, 1], [2, 1]]))
    (chunk,) = find_loader("edges")(tmp_path / "edges.npy").arcs.read()
    assert (chunk.sources.tolist(), chunk.targets.tolist()) == ([0, 2], [1, 1])
