"""A PE's arcs in the form that vertex programs use: by target row, and by source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba
import numpy as np

from mgg.errors import InputError
from mgg.graph.csr import Csr, index_dtype
from mgg.layout import Product
from mgg.layout.split import transposed_places
from mgg.vertex.ir import D, E, R, S, Space, T

#: Allocates an array that is not initialized, by shape and dtype.
Empty = Callable[[Any, Any], np.ndarray]


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
        empty: allocates arrays with an entry per arc, by shape and dtype: these lists, and values of arcs on CPU PEs.
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
    empty: Empty = np.empty

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
        found = self.empty(len(self.ends), np.int64)
        _number(self.runs, found)
        return found

    @classmethod
    def of(
        cls, product: Product, ids: np.ndarray, types: int = 0, *, loops: bool = False, empty: Empty = np.empty
    ) -> ArcTables:
        """Return the arcs of ``product``. Beside the lists this takes 16 bytes per source.

        Args:
            product: the forward product.
            ids: int64 [rows + halo].
            types: number of arc types in the graph; 0: types are ignored.
            loops: give every row exactly one arc from itself, whose weight is 1 plus the weights of the graph's own
                loops there, so that the matrix is A + I.
            empty: allocates the arrays with an entry per arc.

        Raises:
            InputError: ``loops`` for a graph whose arcs have types.
        """
        if loops and types:
            raise InputError(
                "loops=True: the arcs of this graph have types; add what a vertex gives itself as a term"
            ).on_every_pe()
        local, remote = product.local, product.remote
        own = np.zeros(product.rows, np.int64)
        if loops:
            _count_loops(local.indptr, local.indices, own)
        ptr = np.zeros(product.rows + 1, np.int64)
        np.cumsum(np.diff(local.indptr) + np.diff(remote.indptr) - own + loops, out=ptr[1:])
        arcs = int(ptr[-1])
        given = [csr.weights.dtype for csr in (local, remote) if csr.weights is not None]
        kind, weighted = np.result_type(*given, np.float32), bool(given) or bool(own.any())
        typed = bool(types) and any(csr.types is not None for csr in (local, remote))
        ends = empty(arcs, index_dtype(len(ids)))
        weights = empty(arcs, kind) if weighted else None
        kinds = empty(arcs, np.int32) if typed else None
        rank = np.empty(len(ids), np.int64)
        rank[np.argsort(ids, kind="stable")] = np.arange(len(ids))
        longest = int(np.diff(ptr).max(initial=0)) + int(own.max(initial=0))
        _fill_rows(
            ptr, *_lists(local), *_lists(remote), rank, loops, longest, ends, _or_none(weights, kind),
            _or_none(kinds, np.int32),
        )  # fmt: skip
        firsts, row_runs = _runs(ptr, kinds)
        out_ptr, out_ends, out_arcs = transposed_places(Csr(ptr, ends, None, len(ids)), empty)
        return cls(
            rows=product.rows,
            sources=len(ids),
            ptr=ptr,
            ends=ends,
            weights=weights,
            types=kinds,
            runs=np.append(firsts, arcs),
            row_runs=row_runs,
            out_ptr=out_ptr,
            out_ends=out_ends,
            out_arcs=out_arcs,
            ids=np.asarray(ids, np.int64),
            type_count=max(types, 1),
            empty=empty,
        )


def _or_none(values: np.ndarray | None, dtype: Any) -> np.ndarray:
    """Return ``values``, or an empty array, which means none to compiled functions."""
    return np.empty(0, dtype) if values is None else values


def _lists(csr: Csr) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    weights, types = _or_none(csr.weights, np.float32), _or_none(csr.types, np.int32)
    return csr.indptr, csr.indices, weights, types


@numba.njit(cache=True, nogil=True)
def _count_loops(indptr, indices, counts):  # type: ignore[no-untyped-def]
    for row in range(counts.size):
        for at in range(indptr[row], indptr[row + 1]):
            counts[row] += indices[at] == row


@numba.njit(cache=True, nogil=True)
def _fill_rows(  # type: ignore[no-untyped-def]
    ptr, local_ptr, local_ends, local_weights, local_types, remote_ptr, remote_ends, remote_weights, remote_types,
    rank, loops, longest, ends, weights, types,
):  # fmt: skip
    """Write the arcs of each row, sorted by (type, rank of the source); equal arcs keep their order.

    ``longest`` is the most arcs that a row has with the loops that ``loops`` joins into one.
    """
    rows, sources = ptr.size - 1, rank.size
    source, kind = np.empty(longest, np.int64), np.zeros(longest, np.int64)
    weight, keys = np.ones(longest, weights.dtype), np.empty(longest, np.int64)
    for row in range(rows):
        count, of_loops = 0, np.float64(0)
        for at in range(local_ptr[row], local_ptr[row + 1]):
            given = local_weights[at] if local_weights.size else np.float32(1)
            if loops and local_ends[at] == row:
                of_loops += given
                continue
            source[count], weight[count] = local_ends[at], given
            kind[count] = local_types[at] if types.size and local_types.size else 0
            count += 1
        for at in range(remote_ptr[row], remote_ptr[row + 1]):
            source[count] = rows + remote_ends[at]
            weight[count] = remote_weights[at] if remote_weights.size else np.float32(1)
            kind[count] = remote_types[at] if types.size and remote_types.size else 0
            count += 1
        if loops:
            source[count], weight[count], kind[count] = row, 1 + of_loops, 0
            count += 1
        for n in range(count):
            keys[n] = kind[n] * sources + rank[source[n]]
        first = ptr[row]
        for n, place in enumerate(np.argsort(keys[:count], kind="mergesort")):
            ends[first + n] = source[place]
            if weights.size:
                weights[first + n] = weight[place]
            if types.size:
                types[first + n] = kind[place]


def _runs(ptr: np.ndarray, types: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return where each run begins, int64 [runs], and where the runs of each row begin, int64 [rows + 1]."""
    counts = np.diff(ptr)
    if types is None:
        counts = (counts > 0).astype(np.int64)
        firsts = ptr[:-1][counts > 0]
    else:
        _count_runs(ptr, types, counts)
        firsts = np.empty(int(counts.sum()), np.int64)
        _place_runs(ptr, types, firsts)
    return firsts, np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


@numba.njit(cache=True, nogil=True)
def _count_runs(ptr, types, counts):  # type: ignore[no-untyped-def]
    for row in range(counts.size):
        counts[row] = 0
        for at in range(ptr[row], ptr[row + 1]):
            counts[row] += at == ptr[row] or types[at] != types[at - 1]


@numba.njit(cache=True, nogil=True)
def _place_runs(ptr, types, firsts):  # type: ignore[no-untyped-def]
    run = 0
    for row in range(ptr.size - 1):
        for at in range(ptr[row], ptr[row + 1]):
            if at == ptr[row] or types[at] != types[at - 1]:
                firsts[run] = at
                run += 1


@numba.njit(cache=True, nogil=True)
def _number(begins, numbers):  # type: ignore[no-untyped-def]
    """Write the number of the stretch that each entry lies in; ``begins`` has one entry more than stretches."""
    for stretch in range(begins.size - 1):
        numbers[begins[stretch] : begins[stretch + 1]] = stretch


@numba.njit(cache=True, nogil=True)
def sort_rows(ptr, keys, order):  # type: ignore[no-untyped-def]
    """Sort the items of each row, ``order[ptr[row] : ptr[row + 1]]``, by their keys; equal ones keep their order."""
    for row in range(ptr.size - 1):
        mine = order[ptr[row] : ptr[row + 1]]
        mine[:] = mine[np.argsort(keys[mine], kind="mergesort")]


def pointers(rows: np.ndarray, count: int) -> np.ndarray:
    """Return int64 [count + 1], where each of ``count`` rows begins in the ascending ``rows``."""
    return np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=count)))).astype(np.int64)


def _by_value(kinds: np.ndarray) -> list[tuple[int, np.ndarray]]:
    order = np.argsort(kinds, kind="stable")
    found, firsts = np.unique(kinds[order], return_index=True)
    # Without items, there is one part and no value.
    return list(zip(found.tolist(), np.split(order, firsts[1:]), strict=False))
