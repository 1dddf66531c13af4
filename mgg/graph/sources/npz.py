"""Graphs in ``.npz`` archives: the gnn-benchmark kind, SciPy's own, and the Reddit data set of PyG and DGL.

gnn-benchmark (O. Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018): CoraFull, Coauthor, Amazon. The
file is the adjacency matrix A: entry (i, j) is row i (target), column j (source).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # its subpackages load at first use

from mgg.errors import InputError
from mgg.graph.check import check_labels, check_splits, finite_rows, split_vector
from mgg.graph.io.columns import what_is_read
from mgg.graph.io.npz import Npz
from mgg.graph.io.unpickle import csr_of
from mgg.graph.sources import AS_MATRIX, CHUNK_ARCS, Arcs, ArcStream, FeatureStream, StreamedGraph, loader
from mgg.graph.sources.npz_edges import edges, has_edges
from mgg.graph.sources.scipy_npz import MEMBERS, finite_weights, has_matrix, matrix_arcs

TRAIN_PER_CLASS = 20
VALIDATION_PER_CLASS = 30
SPLIT_SEED = 0
#: float32 values per block of features: 16 MiB.
BLOCK_VALUES = 2**22
#: A file with more columns counts as damaged: one row would take 4 MiB.
MOST_COLUMNS = 2**20

_ADJACENCY = ("adj_", "adj_matrix.")
_ATTRIBUTES = ("attr_", "attr_matrix.")
_PARTS = ("data", "indices", "indptr", "shape")
_DENSE = ("attr_matrix", "node_attr")
_LABELS = ("labels", "node_label")


@loader("npz", ".npz")
def load(path: Path) -> StreamedGraph:
    """Read one ``.npz`` file, a folder that holds one, or a folder with ``NAME_graph.npz`` and ``NAME_data.npz``.

    A file of ``scipy.sparse.save_npz``, in any format, is a matrix (scipy_npz.py). Other files have the adjacency as
    the parts of a CSR matrix (``adj_data``, ``adj_indices``, ``adj_indptr``, ``adj_shape``; also ``adj_matrix.data``
    and so on) or as a pickled SciPy CSR matrix (``adj_matrix``, read by the restricted unpickler). Features
    (``attr_...``, ``node_attr``, in the same forms or dense) and integer labels (``labels``, ``node_label``) are
    optional. The stored entries are the arcs, with weights unless all are 1; if the file has a matrix only, repeated
    entries are summed and the diagonal stays, as in SciPy. These files have no split; it is drawn with seed 0 as in the
    paper: of each class 20 nodes for training and 30 others for validation, all others for testing. Nodes of classes
    with less than 51 nodes are in no split.

    Lists of edges come from heterophilous graphs, GNNAdvisor and PyTorch Geometric's ``Data`` (npz_edges.py).

    A pair (Reddit) has the arcs as a COO matrix of ``scipy.sparse.save_npz``, and ``feature``, ``label`` and
    ``node_types`` (1 train, 2 validation, 3 test) in the other file. Its arcs and features are read block by block.

    Raises:
        InputError: names the file and member that is missing, truncated, absurdly large, refused or does not fit.
    """
    graph, data = _find(path)
    if data is None:
        return _benchmark(graph)
    with Npz(graph) as file:
        others = [f"{graph.name}: {key}" for key in sorted(file.keys - MEMBERS)]
    return _with_data(matrix_arcs(graph), data, others)


def _find(path: Path) -> tuple[Path, Path | None]:
    if not path.is_dir():
        return path, None
    files = sorted(file for file in path.rglob("*.npz") if file.is_file() and not file.name.startswith("."))
    graphs = [file for file in files if file.name.endswith("_graph.npz")]
    if len(graphs) == 1:
        data = graphs[0].with_name(graphs[0].name.removesuffix("_graph.npz") + "_data.npz")
        if data in files:
            return graphs[0], data
    if len(files) != 1:
        raise InputError(
            f"{path}: expected one .npz file, or NAME_graph.npz and NAME_data.npz; found {len(files)} files"
        )
    return files[0], None


def _benchmark(path: Path) -> StreamedGraph:
    with Npz(path) as file:
        if has_matrix(file):
            columns = what_is_read(members={"ignored": sorted(file.keys - MEMBERS)})
            return StreamedGraph(replace(matrix_arcs(path), **AS_MATRIX), columns=columns)
        if has_edges(file):
            return edges(path)
        matrix = _matrix(file, _ADJACENCY, ("adj_matrix",))
        if matrix is None:
            if "indptr" in file.keys:
                raise InputError(f"{path}: has no member format.npy, so csr, csc or bsr? scipy.sparse.save_npz says it")
            raise InputError(f"{path}: holds no adjacency matrix; found {', '.join(sorted(file.keys)) or 'nothing'}")
        if not scipy.sparse.issparse(matrix) or matrix.shape[0] != matrix.shape[1] or not matrix.shape[0]:
            raise InputError(f"{path}: the adjacency matrix is {_kind(matrix)}; expected a square sparse one")
        nodes = matrix.shape[0]
        features = _features(file, nodes)
        label = next((key for key in _LABELS if key in file.keys), "")
        labels = _integers(file, label, nodes) if label else None
        kinds = [_members(file, *kind) for kind in ((_ADJACENCY, ("adj_matrix",)), (_ATTRIBUTES, _DENSE))]
        left = file.keys - {label}.union(*kinds)
        columns = what_is_read(
            nodes={"label": label, "split": f"seed {SPLIT_SEED}" if label else ""}, members={"ignored": sorted(left)}
        )
    splits = None if labels is None else random_split(labels, str(path))
    arcs = _csr_arcs(matrix, path)
    alone = features is None and labels is None
    return StreamedGraph(replace(arcs, **AS_MATRIX) if alone else arcs, features, labels, splits, columns=columns)


def _members(file: Npz, prefixes: tuple[str, ...], keys: tuple[str, ...]) -> set[str]:
    for prefix in prefixes:
        if f"{prefix}indptr" in file.keys:
            return {prefix + part for part in _PARTS}
    return {next((key for key in keys if key in file.keys), "")}


def _matrix(file: Npz, prefixes: tuple[str, ...], keys: tuple[str, ...]) -> Any:
    """Return a CSR matrix from parts or a pickle, a dense array, or None if the file has neither."""
    for prefix in prefixes:
        if f"{prefix}indptr" in file.keys:
            parts = {part: file.array(prefix + part) for part in _PARTS}
            try:
                return csr_of(**parts)
            except (ValueError, TypeError, OverflowError) as error:
                raise InputError(f"{file.path}: {prefix}indptr and the like are no CSR matrix: {error}") from None
    return next((file.value(key) for key in keys if key in file.keys), None)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__} of shape {getattr(value, 'shape', '?')}"


def _csr_arcs(matrix: scipy.sparse.csr_matrix, path: Path) -> ArcStream:
    weights = finite_weights(matrix.data, 0, path)
    weighted = bool((weights != 1).any())

    def read() -> Iterator[Arcs]:
        for lo in range(0, matrix.nnz, CHUNK_ARCS):
            hi = min(lo + CHUNK_ARCS, matrix.nnz)
            rows = np.searchsorted(matrix.indptr, np.arange(lo, hi), side="right") - 1
            yield Arcs(rows, matrix.indices[lo:hi], weights[lo:hi] if weighted else None)

    return ArcStream(read, matrix.shape[0], weighted)


def _features(file: Npz, nodes: int) -> FeatureStream | None:
    matrix = _matrix(file, _ATTRIBUTES, _DENSE)
    if matrix is None:
        return None
    shape: tuple[int, ...] = getattr(matrix, "shape", ())
    if len(shape) != 2 or shape[0] != nodes or not 1 <= shape[1] <= MOST_COLUMNS:
        raise InputError(
            f"{file.path}: the features are {_kind(matrix)}; expected {nodes} rows, 1..{MOST_COLUMNS} columns"
        )
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"{file.path}: the features are of type {matrix.dtype}")
    path, rows = file.path, max(1, BLOCK_VALUES // shape[1])

    def read() -> Iterator[np.ndarray]:
        for lo in range(0, nodes, rows):
            block = matrix[lo : lo + rows]
            yield finite_rows(block.toarray() if scipy.sparse.issparse(block) else block, lo, path)

    return FeatureStream(read, shape[1])


def _integers(file: Npz, key: str, nodes: int) -> np.ndarray:
    labels = file.value(key)
    if not isinstance(labels, np.ndarray):
        raise InputError(f"{file.path}: {key} is {_kind(labels)}; expected {nodes} integers")
    check_labels(labels, nodes, None, f"{file.path}: {key}")
    return labels


def random_split(labels: np.ndarray, name: str, seed: int = SPLIT_SEED) -> np.ndarray:
    """Draw a split as in the paper, uint8 [nodes]: of each class, 20 nodes train and 30 validate."""
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(labels))
    train: list[np.ndarray] = []
    validation: list[np.ndarray] = []
    test: list[np.ndarray] = []
    for label in np.unique(labels[labels >= 0]):
        members = order[labels[order] == label]
        cuts = np.split(members, [TRAIN_PER_CLASS, TRAIN_PER_CLASS + VALIDATION_PER_CLASS])
        if len(cuts[2]):
            for part, cut in zip((train, validation, test), cuts, strict=True):
                part.append(cut)
    empty = np.empty(0, np.int64)
    parts = {"train": train, "validation": validation, "test": test}
    return split_vector(len(labels), name, **{key: np.concatenate([empty, *ids]) for key, ids in parts.items()})


def _with_data(arcs: ArcStream, path: Path, others: list[str]) -> StreamedGraph:
    """Add the node data of a pair to its arcs; ``others`` are ignored members of the file with the arcs."""
    nodes = arcs.nodes
    assert nodes is not None
    with Npz(path) as file:
        header = file.header("feature")
        shape = header.shape
        if len(shape) != 2 or shape[0] != nodes or not 1 <= shape[1] <= MOST_COLUMNS:
            raise InputError(f"{path}: feature has shape {shape}; expected {nodes} rows, 1..{MOST_COLUMNS} columns")
        labels, splits = _integers(file, "label", nodes), file.array("node_types")
        check_splits(splits, nodes, f"{path}: node_types")
        others = [*others, *sorted(file.keys - {"feature", "label", "node_types"})]

    def read() -> Iterator[np.ndarray]:
        lo = 0
        with Npz(path) as file:
            for block in file.blocks("feature", max(1, BLOCK_VALUES // shape[1])):
                yield finite_rows(block, lo, path)
                lo += len(block)

    columns = what_is_read(
        nodes={"label": "label", "split": "node_types", "features": "feature"}, members={"ignored": others}
    )
    return StreamedGraph(arcs, FeatureStream(read, shape[1]), labels, splits.astype(np.uint8), columns=columns)
