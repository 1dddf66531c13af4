"""The order of work of technique cola's kernel (kernels/aggregate/cola.cu), computed once per product."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgg.graph.csr import Csr
from mgg.kernel.schedule import task_size, tasks_of

#: Columns with at least this many arcs are hubs: their row is copied, and warps share their arcs. A warp adds an arc in
#: about ten cycles, so the longest column of a single warp takes about ten microseconds.
HUB_ARCS = 1024


@dataclass(frozen=True)
class ColumnSchedule:
    """A CSC in the order of work: columns of single warps first, then hubs. No column is empty.

    Attributes:
        begin: int64 [columns + 1], first arc of each column, and the end.
        rows: integers [arcs], row of C of each arc.
        weights: float32 [arcs] in that order, or None.
        sources: uint64 [columns], location of each column's row: holder << 48 | row there.
        tasks: int32 [tasks, 2], first column and number of columns, at most 32; excludes hubs.
        light: number of columns that are not hubs; they come first.
    """

    begin: np.ndarray
    rows: np.ndarray
    weights: np.ndarray | None
    sources: np.ndarray
    tasks: np.ndarray
    light: int

    @property
    def hubs(self) -> int:
        """Number of columns of ``HUB_ARCS`` arcs or more."""
        return len(self.sources) - self.light


def column_schedule(columns: Csr, chosen: np.ndarray, sources: np.ndarray) -> ColumnSchedule:
    """Order the work on some columns of a matrix.

    Args:
        columns: the matrix's transpose: its rows are columns, its indices rows of C.
        chosen: integers [k], the columns, in the order in which their rows are fetched.
        sources: uint64 [k], location of each column's row.
    """
    lengths = np.diff(columns.indptr)[chosen]
    light, hubs = np.flatnonzero((lengths > 0) & (lengths < HUB_ARCS)), np.flatnonzero(lengths >= HUB_ARCS)
    order = np.concatenate((light, hubs))
    lengths, first = lengths[order], columns.indptr[chosen[order]]
    begin = np.zeros(len(order) + 1, np.int64)
    np.cumsum(lengths, out=begin[1:])
    arcs = np.repeat(first - begin[:-1], lengths) + np.arange(begin[-1])
    weights = None if columns.weights is None else columns.weights[arcs]
    ends = begin[: len(light) + 1]
    tasks = tasks_of(ends, task_size(int(ends[-1]), len(light)))
    return ColumnSchedule(begin, columns.indices[arcs], weights, sources[order], tasks, len(light))
