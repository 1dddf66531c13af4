import io
import os
import pickle
import warnings
import zipfile

import numpy as np
import pytest
from graph_helpers import Runs, boxed
from numpy.lib import format as npy
from scipy import sparse
from text_helpers import arcs_of, exhaust, features_of, refused

from mgg.errors import InputError
from mgg.graph.io import npz as archive
from mgg.graph.sources import find_loader, npz, scipy_npz

MATRIX = sparse.csr_matrix((np.array([1, 2.5, 1, -3]), np.array([1, 2, 2, 0]), np.array([0, 2, 3, 4])), shape=(3, 3))
ARCS = [(1, 0, 1), (2, 0, 2.5), (2, 1, 1), (0, 2, -3)]
ATTRIBUTES = np.array([[0, 1.5], [0, 0], [2, 0]])
LABELS = np.array([1, 0, -1])


def flat(prefix, matrix, **changes):
    parts = {
        "data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": np.array(matrix.shape)
    } | changes  # fmt: skip
    return {prefix + part: np.asarray(values) for part, values in parts.items()}


def save(path, **members):
    np.savez_compressed(path, **members)
    return path


@pytest.mark.parametrize(
    "members",
    [
        flat("adj_", MATRIX) | flat("attr_", sparse.csr_matrix(ATTRIBUTES)) | {"labels": LABELS},
        flat("adj_matrix.", MATRIX) | flat("attr_matrix.", sparse.csr_matrix(ATTRIBUTES)) | {"labels": LABELS},
        flat("adj_", MATRIX) | {"attr_matrix": ATTRIBUTES, "labels": LABELS, "class_names": boxed(["ignored"])},
        flat("adj_", MATRIX) | {"attr_matrix": np.asfortranarray(ATTRIBUTES.astype(">f8")), "labels": LABELS},
        {"adj_matrix": boxed(MATRIX), "node_attr": boxed(sparse.csr_matrix(ATTRIBUTES)), "node_label": LABELS},
        {"adj_matrix": boxed(MATRIX), "node_attr": boxed(ATTRIBUTES), "node_label": boxed(LABELS)},
    ],
)
def test_every_kind_of_file_matches_a_hand_written_graph(tmp_path, monkeypatch, members):
    monkeypatch.setattr(npz, "CHUNK_ARCS", 3)
    monkeypatch.setattr(npz, "BLOCK_VALUES", 4)
    graph = find_loader("npz")(save(tmp_path / "graph.npz", **members))
    for _ in range(2):
        assert arcs_of(graph.arcs) == ARCS
        assert features_of(graph).tolist() == ATTRIBUTES.tolist()
    assert graph.arcs.nodes == 3
    assert graph.labels.tolist() == LABELS.tolist()
    assert graph.splits.tolist() == [0, 0, 0]


def test_split_takes_20_and_30_nodes_of_each_large_class(tmp_path):
    labels = np.repeat([0, 1, 2, -1], [60, 51, 50, 9])
    path = save(tmp_path / "graph.npz", **flat("adj_", sparse.csr_matrix((170, 170))), labels=labels)
    splits = find_loader("npz")(path).splits
    found = {label: np.bincount(splits[labels == label], minlength=4).tolist() for label in (0, 1, 2, -1)}
    assert found == {0: [0, 20, 30, 10], 1: [0, 20, 30, 1], 2: [50, 0, 0, 0], -1: [9, 0, 0, 0]}
    assert np.array_equal(find_loader("npz")(path).splits, splits)
    assert np.flatnonzero(splits == 1).tolist() != list(range(20))


class Pair:
    """A tiny Reddit: 7 nodes, 30 arcs with repeats and self-loops."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.graph = dict(zip(("row", "col"), rng.integers(0, 7, (2, 30), dtype=np.int32), strict=True))
        self.graph |= {"data": np.ones(30), "shape": np.array([7, 7]), "format": np.array(b"coo")}
        self.data = {
            "feature": rng.standard_normal((7, 3)),
            "label": rng.integers(0, 4, 7),
            "node_types": np.array([1, 1, 2, 3, 3, 2, 1]),
            "node_ids": np.arange(7),
        }

    def write(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        save(folder / "reddit_graph.npz", **self.graph)
        save(folder / "reddit_data.npz", **self.data)
        return folder


def test_reddit_files_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "CHUNK_ARCS", 7)
    monkeypatch.setattr(scipy_npz, "CHUNK_ARCS", 7)
    monkeypatch.setattr(npz, "BLOCK_VALUES", 6)
    pair = Pair()
    pair.write(tmp_path / "reddit")
    graph = find_loader("npz")(tmp_path)
    for _ in range(2):
        assert arcs_of(graph.arcs) == list(zip(pair.graph["col"].tolist(), pair.graph["row"].tolist(), strict=True))
        assert np.array_equal(features_of(graph), pair.data["feature"].astype(np.float32))
    assert graph.arcs.nodes == 7
    assert graph.labels.tolist() == pair.data["label"].tolist()
    assert graph.splits.tolist() == [1, 1, 2, 3, 3, 2, 1]


def change(part, key, value):
    return lambda pair: getattr(pair, part).__setitem__(key, value)


def put(part, key, index, value):
    return lambda pair: getattr(pair, part)[key].__setitem__(index, value)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("graph", "row", 25, 7), r"reddit_graph\.npz: arc 25: node id 7 is outside 0\.\.6"),
        (change("graph", "col", np.full(30, 2**63, np.uint64)), r"arc 0: node id 9223372036854775808"),
        (change("graph", "row", np.zeros(29, int)), r"reddit_graph\.npz: expected row and col integers.*\(29,\)"),
        (change("graph", "data", np.ones(31)), r"reddit_graph\.npz: expected row and col.*\(31,\)"),
        (put("graph", "data", 29, 1e300), r"reddit_graph\.npz: weight of arc 29 is 1e\+300, not a finite float32"),
        (change("graph", "shape", np.array([7, 8])), r"reddit_graph\.npz: the adjacency matrix has shape \[7, 8\]"),
        (change("graph", "shape", np.array([2**62, 2**62])), r"reddit_data\.npz: feature has shape \(7, 3\)"),
        (lambda pair: pair.graph.pop("data"), r"reddit_graph\.npz: has no member data\.npy; found col, format"),
        (lambda pair: pair.data.pop("label"), r"reddit_data\.npz: has no member label\.npy"),
        (put("data", "feature", (5, 1), np.inf), r"reddit_data\.npz: feature of node 5, column 1 is inf"),
        (change("data", "feature", np.zeros((6, 3))), r"reddit_data\.npz: feature has shape \(6, 3\); expected 7 rows"),
        (change("data", "feature", np.zeros((7, 3), order="F")), r"feature\.npy: shape \(7, 3\) cannot be read row by"),
        (change("data", "feature", np.full((7, 3), "x")), r"reddit_data\.npz: feature\.npy: expected numbers"),
        (put("data", "node_types", 2, 4), r"reddit_data\.npz: node_types: split of node 2 is 4"),
        (put("data", "label", 2, -5), r"reddit_data\.npz: label: label of node 2 is -5"),
        (change("data", "label", np.zeros(7)), r"reddit_data\.npz: label: labels must be 7 integers"),
    ],
)
def test_mismatched_reddit_files_are_named(tmp_path, monkeypatch, edit, message):
    monkeypatch.setattr(npz, "CHUNK_ARCS", 7)
    monkeypatch.setattr(scipy_npz, "CHUNK_ARCS", 7)
    monkeypatch.setattr(npz, "BLOCK_VALUES", 6)
    pair = Pair()
    edit(pair)
    refused("npz", pair.write(tmp_path), message)


GOOD = flat("adj_", MATRIX) | {"attr_matrix": ATTRIBUTES, "labels": LABELS}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (flat("adj_", MATRIX, indices=[1, 2, 3, 0]), "adj_indptr and the like are no CSR matrix"),
        (flat("adj_", MATRIX, indices=[1.0, 2.0, 2.0, 0.0]), "adj_indptr and the like"),
        (flat("adj_", MATRIX, indptr=[0, 3, 2, 4]), "adj_indptr and the like"),
        (flat("adj_", MATRIX, data=[1.0, 1.0]), "adj_indptr and the like"),
        (flat("adj_", MATRIX, data=["1", "1", "1", "x"]), r"adj_data\.npy: expected numbers, found dtype <U1"),
        (flat("adj_", MATRIX, data=[1, 1, np.inf, 1]), "weight of arc 2 is inf"),
        (flat("adj_", MATRIX, shape=[3, 4]), "adjacency matrix is a csr_matrix of shape \\(3, 4\\); expected a square"),
        (flat("adj_", MATRIX, shape=[3]), "adj_indptr and the like"),
        (flat("adj_", sparse.csr_matrix((0, 0))), "expected a square"),
        ({"adj_matrix": MATRIX.toarray()}, "the adjacency matrix is a ndarray of shape"),
        ({"adj_matrix": boxed({"a": 1})}, "the adjacency matrix is a dict"),
        ({"labels": LABELS}, "holds no adjacency matrix; found labels"),
        (GOOD | {"labels": np.array([0, 1])}, r"labels must be 3 integers, found int64 of shape \(2,\)"),
        (GOOD | {"labels": np.array([-1, -1, -1])}, "labels without a class"),
        (GOOD | {"labels": boxed(MATRIX)}, "labels is a csr_matrix"),
        (GOOD | {"attr_matrix": ATTRIBUTES[:2]}, r"features are a ndarray of shape \(2, 2\); expected 3 rows"),
        (GOOD | {"attr_matrix": np.full((3, 1), np.nan)}, "feature of node 0, column 0 is nan"),
        (flat("adj_", MATRIX) | flat("attr_", MATRIX, shape=[3, 2**40]), "features are a csr_matrix of shape"),
    ],
)
def test_mismatched_files_are_named(tmp_path, members, message):
    refused("npz", save(tmp_path / "graph.npz", **members), rf"graph\.npz: .*{message}")


def member(header, data=b""):
    """The bytes of a .npy file with any header."""
    file = io.BytesIO()
    npy.write_array_header_1_0(file, header)
    return file.getvalue() + data


def zipped(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for key, data in members.items():
            file.writestr(f"{key}.npy", data)
    return path


def raw_members(**changes):
    members = {}
    for key, values in GOOD.items():
        file = io.BytesIO()
        np.save(file, values)
        members[key] = file.getvalue()
    return members | changes


def header(*shape, descr="<f8"):
    return {"descr": descr, "fortran_order": False, "shape": shape}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (member(header(4), bytes(31)), "its header promises 32 bytes .*it holds 31"),
        (member(header(2**50), bytes(32)), "its header promises 9007199254740992 bytes"),
        (member(header(-4), bytes(32)), "its header promises"),
        (member(header(4, descr="|V8"), bytes(32)), "expected numbers"),
        (b"\x93NUMPY\x03\x00" + member(header(4), bytes(32))[8:], r"version \(3, 0\)"),
        (b"\x93NUMPY\x01\x00\xff\xff{", "EOF|expected 65535 bytes"),
        (b"text, not an array", "magic string"),
    ],
)
def test_false_headers_are_refused_before_allocation(tmp_path, data, message):
    path = zipped(tmp_path / "graph.npz", **raw_members(adj_data=data))
    refused("npz", path, rf"graph\.npz: adj_data\.npy: .*({message})")


@pytest.mark.parametrize("pickled", [False, True])
def test_decompression_bomb_is_refused_unopened(tmp_path, monkeypatch, pickled):
    monkeypatch.setattr(archive, "SPARE_BYTES", 2**10)
    zeros = np.zeros(2**20)
    bomb = {"adj_matrix": boxed(zeros)} if pickled else GOOD | {"adj_data": zeros}
    with pytest.raises(InputError, match=r"graph\.npz: adj_(data|matrix)\.npy: unpacks to 8\d+ bytes, at most \d+ are"):
        exhaust("npz", save(tmp_path / "graph.npz", **bomb))


@pytest.mark.parametrize("key", ["adj_matrix", "node_attr", "node_label"])
def test_pickles_that_run_code_are_refused(tmp_path, monkeypatch, key):
    monkeypatch.chdir(tmp_path)
    members = {"adj_matrix": boxed(MATRIX), "node_attr": boxed(ATTRIBUTES), "node_label": boxed(LABELS)}
    files = {}
    for name, value in members.items():
        file = io.BytesIO()
        np.save(file, value)
        files[name] = file.getvalue()
    attack = member(header(descr="|O"), pickle.dumps(boxed(Runs(os.system, "touch ran"))))
    path = zipped(tmp_path / "graph.npz", **files | {key: attack})
    refused("npz", path, rf"graph\.npz: {key}\.npy: refused: this pickle asks for .*\.system")
    assert not (tmp_path / "ran").exists()


def test_every_truncation_and_every_changed_byte_is_reported_or_harmless(tmp_path):
    path = save(tmp_path / "good.npz", **GOOD)
    whole = path.read_bytes()
    broken = tmp_path / "graph.npz"
    for length in range(0, len(whole), 31):
        broken.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"graph\.npz: "):
            exhaust("npz", broken)
    rng = np.random.default_rng(0)
    for at in range(0, len(whole), 23):
        data = bytearray(whole)
        data[at] ^= 1 << rng.integers(8)
        broken.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # zipfile grumbles about names that occur twice
            try:
                graph = find_loader("npz")(broken)
            except InputError as error:
                assert "\n" not in str(error)
                continue
            assert arcs_of(graph.arcs) == ARCS


@pytest.mark.parametrize("content", [b"", b"PK", b"<html>404</html>", b"\x93NUMPY"])
def test_file_that_is_no_archive_is_named(tmp_path, content):
    (tmp_path / "graph.npz").write_bytes(content)
    refused("npz", tmp_path / "graph.npz", r"graph\.npz: not a whole \.npz")


def test_folder_with_several_files_needs_a_name(tmp_path):
    refused("npz", tmp_path, r"expected one \.npz file.*found 0")
    refused("npz", tmp_path / "nothing.npz", r"nothing\.npz: No such file")
    save(tmp_path / "a.npz", **GOOD)
    save(tmp_path / ".hidden.npz", **GOOD)
    exhaust("npz", tmp_path)
    save(tmp_path / "b.npz", **GOOD)
    refused("npz", tmp_path, r"expected one \.npz file.*found 2")
