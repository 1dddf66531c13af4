"""A PE's arcs in the form that vertex programs use: by target row, and by source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np

from mgg.errors import InputError
from mgg.graph.csr import Csr, index_dtype
from mgg.layout import Product
from mgg.layout.split import transposed
from mgg.vertex.ir import D, E, R, S, Space, T


@dataclass(frozen=True, eq=False)
class ArcTables:
    """The arcs that end at one PE's rows; each row's are sorted by (type, id of the source), for any partition.

    So the arcs of a row are summed in the same order on any number of PEs, and of equal values the first has the lowest
    source id. Arrays are on the host.

    Attributes:
        rows: number of rows of D, this PE's vertices.
        sources: number of rows of S: this PE's vertices, then its halo, in the layout's order.
        ptr: int64 [rows + 1], where the arcs of each row begin.
        ends: int32 or int64 [arcs], the source of each arc, a row of S.
        weights: float32 [arcs]; None if all are 1.
        types: int32 [arcs]; None if arcs have no types.
        runs: int64 [runs + 1], where each run begins: the arcs of one type that end at one row. Without types, each row
            with arcs is one run.
        row_runs: int64 [rows + 1], where the runs of each row begin.
        out_ptr: int64 [sources + 1], where the arcs of each source begin.
        out_ends: int32 [arcs], the target of each arc by source, a row of D.
        out_arcs: int64 [arcs], the number by target of each arc by source.
        ids: int64 [sources], the original ids of the vertices.
        type_count: number of arc types; 1 if arcs have no types.
    """

    rows: int
    sources: int
    ptr: np.ndarray
    ends: np.ndarray
    weights: np.ndarray | None
    types: np.ndarray | None
    runs: np.ndarray
    row_runs: np.ndarray
    out_ptr: np.ndarray
    out_ends: np.ndarray
    out_arcs: np.ndarray
    ids: np.ndarray
    type_count: int

    def rows_of(self, space: Space) -> int:
        """Return the number of rows of ``space``: D, S, R or E."""
        return {D: self.rows, S: self.sources, R: len(self.runs) - 1, E: len(self.ends)}[space]

    @cached_property
    def run_targets(self) -> np.ndarray:
        """int64 [runs], the row of each run."""
        return np.repeat(np.arange(self.rows), np.diff(self.row_runs))

    @cached_property
    def run_types(self) -> np.ndarray:
        """int32 [runs], the type of each run; 0 if arcs have no types."""
        return np.zeros(len(self.runs) - 1, np.int32) if self.types is None else self.types[self.runs[:-1]]

    @cached_property
    def targets(self) -> np.ndarray:
        """int32 [arcs], the target of each arc, a row of D."""
        return np.repeat(np.arange(self.rows, dtype=np.int32), np.diff(self.ptr))

    @cached_property
    def arc_types(self) -> np.ndarray:
        """int32 [arcs], the type of each arc; 0 if arcs have no types."""
        return np.zeros(len(self.ends), np.int32) if self.types is None else self.types

    def owners(self, finer: Space, coarser: Space) -> np.ndarray:
        """Return integers [rows of ``finer``], the row of ``coarser`` of each arc (E) or run (R), always one array."""
        name = {
            (E, S): "ends", (E, D): "targets", (E, R): "arc_runs", (E, T): "arc_types",
            (R, D): "run_targets", (R, T): "run_types",
        }[finer, coarser]  # fmt: skip
        found: np.ndarray = getattr(self, name)
        return found

    @cached_property
    def by_type(self) -> dict[Space, list[tuple[int, np.ndarray]]]:
        """The numbers, int64, of the arcs (E) and of the runs (R) of each type that occurs."""
        return {space: _by_value(self.owners(space, T)) for space in (E, R)}

    @cached_property
    def arc_runs(self) -> np.ndarray:
        """int64 [arcs], the run of each arc."""
        return np.repeat(np.arange(len(self.runs) - 1), np.diff(self.runs))

    @classmethod
    def of(cls, product: Product, ids: np.ndarray, types: int = 0, *, loops: bool = False) -> ArcTables:
        """Return the arcs of ``product``.

        Args:
            product: the forward product.
            ids: int64 [rows + halo].
            types: number of arc types in the graph; 0: types are ignored.
            loops: give every row exactly one arc from itself, whose weight is 1 plus the weights of the graph's own
                loops there, so that the matrix is A + I.

        Raises:
            InputError: ``loops`` for a graph whose arcs have types.
        """
        rows = product.rows
        parts = [(product.local, 0), (product.remote, rows)]
        targets = np.concatenate([np.repeat(np.arange(rows), np.diff(csr.indptr)) for csr, _ in parts])
        ends = np.concatenate([csr.indices.astype(np.int64) + first for csr, first in parts])
        weights = _joined([csr.weights for csr, _ in parts], [csr.arcs for csr, _ in parts], np.float32(1))
        kinds = _joined([csr.types for csr, _ in parts], [csr.arcs for csr, _ in parts], np.int32(0)) if types else None
        if loops:
            if types:
                raise InputError(
                    "loops=True: the arcs of this graph have types; add what a vertex gives itself as a term"
                ).on_every_pe()
            own, everyone = ends == targets, np.arange(rows)
            if weights is None and own.any():
                weights = np.ones(len(ends), np.float32)
            if weights is not None:
                of_loops = 1 + np.bincount(targets[own], weights[own], rows)
                weights = np.concatenate([weights[~own], of_loops.astype(np.float32)])
            targets, ends = np.concatenate([targets[~own], everyone]), np.concatenate([ends[~own], everyone])
        # Sort by target, then each row by (type, id).
        order = np.argsort(targets, kind="stable")
        rank = np.empty(len(ids), np.int64)
        rank[np.argsort(ids, kind="stable")] = np.arange(len(ids))
        keys = rank[ends] if kinds is None else kinds * np.int64(len(ids)) + rank[ends]
        ptr = pointers(targets, rows)
        sort_rows(ptr, keys, order)
        targets, ends = targets[order], ends[order].astype(index_dtype(len(ids)))
        weights, kinds = (None if values is None else values[order] for values in (weights, kinds))
        begins = np.ones(len(ends), bool)  # of runs
        begins[1:] = np.diff(targets) != 0
        if kinds is not None:
            begins[1:] |= np.diff(kinds) != 0
        firsts = np.flatnonzero(begins)
        out = transposed(Csr(ptr, ends, None, len(ids)))
        return cls(
            rows=rows,
            sources=len(ids),
            ptr=ptr,
            ends=ends,
            weights=weights,
            types=kinds,
            runs=np.append(firsts, len(ends)),
            row_runs=pointers(targets[firsts], rows),
            out_ptr=out.csr.indptr,
            out_ends=out.csr.indices,
            out_arcs=out.forward,
            ids=np.asarray(ids, np.int64),
            type_count=max(types, 1),
        )


@numba.njit(cache=True, nogil=True)
def sort_rows(ptr, keys, order):  # type: ignore[no-untyped-def]
    """Sort the items of each row, ``order[ptr[row] : ptr[row + 1]]``, by their keys; equal ones keep their order."""
    for row in range(ptr.size - 1):
        mine = order[ptr[row] : ptr[row + 1]]
        mine[:] = mine[np.argsort(keys[mine], kind="mergesort")]


def _joined(parts: list[np.ndarray | None], counts: list[int], default: np.generic) -> np.ndarray | None:
    """Join a property of local and remote arcs; None if neither have it."""
    if all(part is None for part in parts):
        return None
    return np.concatenate(
        [np.full(count, default) if part is None else part for part, count in zip(parts, counts, strict=True)]
    )


def pointers(rows: np.ndarray, count: int) -> np.ndarray:
    """Return int64 [count + 1], where each of ``count`` rows begins in the ascending ``rows``."""
    return np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=count)))).astype(np.int64)


def _by_value(kinds: np.ndarray) -> list[tuple[int, np.ndarray]]:
    order = np.argsort(kinds, kind="stable")
    found, firsts = np.unique(kinds[order], return_index=True)
    # Without items, there is one part and no value.
    return list(zip(found.tolist(), np.split(order, firsts[1:]), strict=False))
