"""Checks that every graph must pass before it is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.graph.csr import Csr

#: An unknown yes-or-no label of a node.
UNKNOWN = 255
#: Values of a node's split; 0: none.
SPLITS = {"train": 1, "validation": 2, "test": 3}
#: float32 holds all whole numbers up to this one.
_EXACT_FLOAT32 = 2**24
#: Error for a nonzero weight that would become 0.
TOO_SMALL = "too small for a float32, which would hold 0"
_NOT_ZERO = re.compile(r"[^eE]*[1-9]")
#: Labels are stored as int32.
MOST_CLASSES = 2**31


def check_csr(csr: Csr, name: str) -> None:
    """Raise InputError unless ``csr`` is square with ascending, unique, valid ids in each row and finite weights."""
    if csr.rows < 1 or csr.rows != csr.columns:
        raise InputError(f"{name}: the adjacency matrix is {csr.rows} x {csr.columns}; it must be square, not empty")
    degrees = np.diff(csr.indptr)
    if csr.indptr[0] != 0 or csr.indptr[-1] != csr.arcs or (degrees < 0).any():
        raise InputError(f"{name}: row offsets do not ascend from 0 to {csr.arcs}")
    check_ids(csr.indices, csr.columns, name)
    ascends = csr.indices[1:] > csr.indices[:-1]
    if csr.types is not None:
        if len(csr.types) != csr.arcs or (csr.types < 0).any():
            raise InputError(f"{name}: {len(csr.types)} arc types for {csr.arcs} arcs, or negative ones")
        ascends |= (csr.indices[1:] == csr.indices[:-1]) & (csr.types[1:] > csr.types[:-1])
    starts = csr.indptr[1:-1]
    ascends[starts[(starts > 0) & (starts < csr.arcs)] - 1] = True
    if not ascends.all():
        arc = int(np.argmin(ascends)) + 1
        row = int(np.searchsorted(csr.indptr, arc, side="right")) - 1
        raise InputError(f"{name}: neighbors of node {row} do not ascend or repeat")
    if csr.weights is not None:
        if len(csr.weights) != csr.arcs:
            raise InputError(f"{name}: {len(csr.weights)} weights for {csr.arcs} arcs")
        bad = np.flatnonzero(~np.isfinite(csr.weights))
        if bad.size:
            raise InputError(f"{name}: weight of arc {bad[0]} is {csr.weights[bad[0]]}")


def check_weights(values: np.ndarray, error: Callable[[int, str], InputError]) -> np.ndarray:
    """Check and return ``values``, numbers [arcs], which become float32 when they are spooled.

    Raises:
        InputError: ``error(arc, problem)`` for the first that is not finite as float32, or nonzero but 0 as float32.
    """
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32, copy=False)
    lost = (narrow == 0) & (values != 0)
    bad = np.flatnonzero(lost | ~np.isfinite(narrow))
    if bad.size:
        at = int(bad[0])
        problem = TOO_SMALL if lost[at] else "not a finite float32"
        raise error(at, f"is {values[at]}, {problem}")
    return values


class Narrowed:
    """Converts weights to float32, and counts whole numbers that float32 rounds: they may be ids by mistake.

    Attributes:
        count: number of rounded whole numbers.
        error: their largest relative error.
    """

    def __init__(self) -> None:
        self.count, self.error = 0, 0.0

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return the rounded values, float32 [arcs]."""
        narrow = values.astype(np.float32, copy=False)
        if (
            values.size
            and values.dtype != np.float32
            and (values.max() > _EXACT_FLOAT32 or values.min() < -_EXACT_FLOAT32)
        ):
            exact, rounded = (each.astype(np.longdouble) for each in (values, narrow))  # longdouble holds all int64
            lost = (exact != rounded) & (exact == np.floor(exact))
            if lost.any():
                self.count += int(lost.sum())
                self.error = max(self.error, float((np.abs(rounded - exact) / np.abs(exact))[lost].max()))
        return narrow


def underflows(text: str) -> bool:
    """Return whether a decimal number that float64 reads as 0 is not zero: 1e-400 is not, 0e5 is."""
    return _NOT_ZERO.match(text) is not None


def check_ids(ids: np.ndarray, n: int, name: str | Path, first: int = 0) -> None:
    """Raise InputError, naming the first, if an id of arcs ``first`` and on is outside 0..n-1."""
    if ids.size and (ids.min() < 0 or ids.max() >= n):
        arc = int(np.flatnonzero((ids < 0) | (ids >= n))[0])
        raise InputError(f"{name}: arc {first + arc}: node id {ids[arc]} is outside 0..{n - 1}")


def finite_rows(block: np.ndarray, first: int, name: str | Path) -> np.ndarray:
    """Return the features of nodes ``first`` and on as float32; InputError names the first that is not finite."""
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(block, np.float32)
    if not np.isfinite(values).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
        value = block[row, column]
        raise InputError(f"{name}: feature of node {first + row}, column {column} is {value}, not a finite float32")
    return values


def check_features(features: np.ndarray, nodes: int, name: str) -> None:
    """Raise InputError unless ``features`` is [nodes, >= 1] and finite as float32; names the first bad one."""
    if features.ndim != 2 or len(features) != nodes or features.shape[1] < 1:
        raise InputError(f"{name}: features have shape {features.shape}, expected {nodes} rows")
    for lo in range(0, nodes, 2**16):
        finite_rows(features[lo : lo + 2**16], lo, name)


def check_labels(labels: np.ndarray, nodes: int, classes: int | None, name: str) -> int:
    """Raise InputError unless ``labels`` is [nodes] of -1 (unlabeled) or 0..classes-1.

    Returns:
        The number of classes; the largest label + 1 if ``classes`` is None.
    """
    _check_vector(labels, nodes, "labels", name)
    classes = min(int(labels.max()) + 1, MOST_CLASSES) if classes is None else classes
    if classes < 1:
        raise InputError(f"{name}: labels without a class")
    bad = np.flatnonzero((labels < -1) | (labels >= classes))
    if bad.size:
        raise InputError(f"{name}: label of node {bad[0]} is {labels[bad[0]]}; classes are 0..{classes - 1}, -1: none")
    return classes


def check_tasks(tasks: np.ndarray, nodes: int, name: str) -> None:
    """Raise InputError unless ``tasks`` is uint8 [nodes, >= 1] of 0, 1 and 255 (unknown)."""
    if tasks.ndim != 2 or len(tasks) != nodes or tasks.shape[1] < 1 or tasks.dtype != np.uint8:
        raise InputError(f"{name}: tasks must be {nodes} rows of bytes, found {tasks.dtype} of shape {tasks.shape}")
    bad = np.argwhere((tasks > 1) & (tasks != UNKNOWN))
    if bad.size:
        node, task = (int(i) for i in bad[0])
        raise InputError(f"{name}: task {task} of node {node} is {tasks[node, task]}; expected 0, 1 or 255")


def check_splits(splits: np.ndarray, nodes: int, name: str) -> None:
    """Raise InputError unless ``splits`` is [nodes] of 0 none, 1 train, 2 validation, 3 test."""
    _check_vector(splits, nodes, "splits", name)
    bad = np.flatnonzero((splits < 0) | (splits > 3))
    if bad.size:
        raise InputError(f"{name}: split of node {bad[0]} is {splits[bad[0]]}; expected one of 0..3")


def split_vector(nodes: int, name: str, **members: np.ndarray) -> np.ndarray:
    """Make a split, uint8 [nodes], from lists of ids: ``split_vector(n, name, train=..., validation=..., test=...)``.

    Raises:
        InputError: a list names a node that does not exist, or a node is in two lists or twice in one.
    """
    splits = np.zeros(nodes, np.uint8)
    for split, ids in members.items():
        bad = np.flatnonzero((ids < 0) | (ids >= nodes))
        if bad.size:
            raise InputError(f"{name}: the {split} split names node {ids[bad[0]]}; nodes are 0..{nodes - 1}")
        taken = ids[splits[ids] != 0]
        unique, counts = np.unique(ids, return_counts=True)
        repeated = taken if taken.size else unique[counts > 1]
        if repeated.size:
            raise InputError(f"{name}: the {split} split names node {repeated[0]}, which is already in a split")
        splits[ids] = SPLITS[split]
    return splits


def _check_vector(values: np.ndarray, nodes: int, what: str, name: str) -> None:
    if values.shape != (nodes,) or values.dtype.kind not in "iu":
        raise InputError(f"{name}: {what} must be {nodes} integers, found {values.dtype} of shape {values.shape}")
