"""Cut a graph into what each PE needs: local and remote CSR, halo, send lists, and the map of transposed arcs.

PEs are cut one after the other, so that the whole graph is held once in each direction, and of what was cut only the
halos are kept until the send lists are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np

from mgg.graph.csr import Csr


@dataclass(frozen=True)
class Arcs:
    """A transpose, with the forward number of every arc.

    Attributes:
        csr: the transpose.
        forward: int64 [arcs], position of each transposed arc in the forward CSR.
    """

    csr: Csr
    forward: np.ndarray


@dataclass(frozen=True)
class Cut:
    """One PE's part of a direction of the graph, without the send lists: fields of ``Product``."""

    local: Csr
    remote: Csr
    halo_ptr: np.ndarray
    halo_rows: np.ndarray
    arc_owner: np.ndarray | None = None
    arc_position: np.ndarray | None = None


@dataclass(frozen=True)
class Sends:
    """What the other PEs ask of one PE: fields of ``Product``."""

    send_ptr: np.ndarray
    send_rows: np.ndarray
    send_first: np.ndarray


def transposed(csr: Csr) -> Arcs:
    """The transpose of a CSR by one counting sort, rows ascending, with the position of each arc in ``csr``."""
    offsets = _offsets_of_columns(csr)
    rows = np.empty_like(csr.indices)
    forward = np.empty(csr.arcs, np.int64)
    _scatter(csr.indptr, csr.indices, offsets[:-1].copy(), rows, forward)
    weights, types = (None if values is None else values[forward] for values in (csr.weights, csr.types))
    return Arcs(Csr(offsets, rows, weights, csr.rows, types), forward)


@numba.njit(cache=True)
def _scatter(indptr, indices, cursor, rows, forward):  # type: ignore[no-untyped-def]
    for row in range(indptr.size - 1):
        for k in range(indptr[row], indptr[row + 1]):
            at = cursor[indices[k]]
            cursor[indices[k]] = at + 1
            rows[at] = row
            forward[at] = k


@dataclass(frozen=True)
class Mapped:
    """The transpose of a partitioned graph.

    Attributes:
        csr: global rows and columns.
        position: int64 [arcs], the number of each arc's forward arc on its owner (local CSR first, then remote CSR).
    """

    csr: Csr
    position: np.ndarray


def mapped(csr: Csr, bounds: np.ndarray, local_arcs: Sequence[int]) -> Mapped:
    """The transpose of the whole graph by one counting sort, in 12 bytes an arc beside ``csr`` (32-bit ids).

    Args:
        csr: the adjacency.
        bounds: int64 [P + 1], row ranges of the PEs.
        local_arcs: arcs of each PE's rows whose column it owns.
    """
    offsets = _offsets_of_columns(csr)
    rows, position = np.empty_like(csr.indices), np.empty(csr.arcs, np.int64)
    weights, types = (None if values is None else np.empty_like(values) for values in (csr.weights, csr.types))
    _scatter_numbered(
        csr.indptr, csr.indices, _or_none(csr.weights, np.float32), _or_none(csr.types, np.int32), bounds,
        np.asarray(local_arcs, np.int64), offsets[:-1].copy(), rows, position, _or_none(weights, np.float32),
        _or_none(types, np.int32),
    )  # fmt: skip
    return Mapped(Csr(offsets, rows, weights, csr.rows, types), position)


def _offsets_of_columns(csr: Csr) -> np.ndarray:
    offsets = np.zeros(csr.columns + 1, np.int64)
    np.cumsum(np.bincount(csr.indices, minlength=csr.columns), out=offsets[1:])
    return offsets


def _or_none(values: np.ndarray | None, dtype: type) -> np.ndarray:
    """``values``, or an empty array, which stands for none in compiled loops."""
    return np.empty(0, dtype) if values is None else values


@numba.njit(cache=True, nogil=True)
def _scatter_numbered(  # type: ignore[no-untyped-def]
    indptr, indices, weights, types, bounds, local_arcs, cursor, rows, position, new_weights, new_types
):
    for pe in range(bounds.size - 1):
        lo, hi = bounds[pe], bounds[pe + 1]
        local, remote = 0, local_arcs[pe]
        for row in range(lo, hi):
            for k in range(indptr[row], indptr[row + 1]):
                column = indices[k]
                at = cursor[column]
                cursor[column] = at + 1
                rows[at] = row
                if lo <= column < hi:
                    position[at] = local
                    local += 1
                else:
                    position[at] = remote
                    remote += 1
                if weights.size:
                    new_weights[at] = weights[k]
                if types.size:
                    new_types[at] = types[k]


class Splitter:
    """Cuts one direction of a whole graph for one PE after the other.

    Args:
        csr: global rows and columns.
        bounds: int64 [P + 1], row ranges of the PEs.
        position: of the transpose, as in ``Mapped``; None of the forward direction.
    """

    def __init__(self, csr: Csr, bounds: np.ndarray, position: np.ndarray | None = None) -> None:
        self._csr, self._bounds, self._position = csr, bounds, position
        self._owners = (
            None if position is None else np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
        )
        # The last PE that was found to need a column, and the column's place in that PE's halo.
        self._seen = np.full(csr.columns, -1, np.int32)
        self._place = np.empty_like(csr.indices, shape=csr.columns)

    def cut(self, pe: int) -> Cut:
        """PE ``pe``'s local and remote CSR and halo, and of the transpose the map of its arcs."""
        csr, lo, hi = self._csr, int(self._bounds[pe]), int(self._bounds[pe + 1])
        local_ptr, remote_ptr = np.zeros((2, hi - lo + 1), np.int64)
        arcs = int(csr.indptr[hi] - csr.indptr[lo])
        found = np.empty_like(csr.indices, shape=min(arcs, csr.columns))
        count = _needed(csr.indptr, csr.indices, lo, hi, pe, self._seen, local_ptr, remote_ptr, found)
        halo = np.sort(found[:count])
        del found
        self._place[halo] = np.arange(count, dtype=halo.dtype)
        local, remote = (np.empty_like(csr.indices, shape=int(ends[-1])) for ends in (local_ptr, remote_ptr))
        _divide(csr.indptr, csr.indices, lo, hi, self._place, local, remote)
        weights, types = self._values(csr.weights, lo, hi), self._values(csr.types, lo, hi)
        halo_ptr = np.searchsorted(halo, self._bounds).astype(np.int64)
        first = np.repeat(self._bounds[:-1], np.diff(halo_ptr))
        return Cut(
            Csr(local_ptr, local, weights[0], hi - lo, types[0]),
            Csr(remote_ptr, remote, weights[1], count, types[1]),
            halo_ptr,
            (halo - first).astype(halo.dtype),
            *self._map(lo, hi, len(local)),
        )

    def _values(self, values: np.ndarray | None, lo: int, hi: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Those of the local and of the remote arcs of rows lo..hi-1."""
        if values is None:
            return None, None
        span = slice(self._csr.indptr[lo], self._csr.indptr[hi])
        columns = self._csr.indices[span]
        local = (columns >= lo) & (columns < hi)
        return values[span][local], values[span][~local]

    def _map(self, lo: int, hi: int, local: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Owner and number of the forward arc of each arc of rows lo..hi-1, ``local`` ones first."""
        if self._position is None:
            return None, None
        arcs = int(self._csr.indptr[hi] - self._csr.indptr[lo])
        owner, position = np.empty(arcs, np.int32), np.empty(arcs, np.int64)
        _map(self._csr.indptr, self._csr.indices, lo, hi, local, self._owners, self._position, owner, position)
        return owner, position


@numba.njit(cache=True, nogil=True)
def _needed(indptr, indices, lo, hi, pe, seen, local_ptr, remote_ptr, found):  # type: ignore[no-untyped-def]
    """Row pointers of local and remote arcs, and the columns of the latter, each once; returns how many these are."""
    count = 0
    for row in range(lo, hi):
        inside = 0
        for k in range(indptr[row], indptr[row + 1]):
            column = indices[k]
            if lo <= column < hi:
                inside += 1
            elif seen[column] != pe:
                seen[column] = pe
                found[count] = column
                count += 1
        r = row - lo
        local_ptr[r + 1] = local_ptr[r] + inside
        remote_ptr[r + 1] = remote_ptr[r] + indptr[row + 1] - indptr[row] - inside
    return count


@numba.njit(cache=True, nogil=True)
def _divide(indptr, indices, lo, hi, place, local, remote):  # type: ignore[no-untyped-def]
    near = far = 0
    for k in range(indptr[lo], indptr[hi]):
        column = indices[k]
        if lo <= column < hi:
            local[near] = column - lo
            near += 1
        else:
            remote[far] = place[column]
            far += 1


@numba.njit(cache=True, nogil=True)
def _map(indptr, indices, lo, hi, local, owners, position, arc_owner, arc_position):  # type: ignore[no-untyped-def]
    near, far = 0, local
    for k in range(indptr[lo], indptr[hi]):
        column = indices[k]
        if lo <= column < hi:
            at = near
            near += 1
        else:
            at = far
            far += 1
        arc_owner[at] = owners[column]
        arc_position[at] = position[k]


def sends(halos: Sequence[tuple[np.ndarray, np.ndarray]], pe: int) -> Sends:
    """What the other PEs ask of PE ``pe``.

    Args:
        halos: ``halo_ptr`` and ``halo_rows`` of every PE, of one direction.
        pe: the PE.
    """
    wanted = [rows[ptr[pe] : ptr[pe + 1]] for ptr, rows in halos]
    return Sends(
        np.concatenate(([0], np.cumsum([len(rows) for rows in wanted]))).astype(np.int64),
        np.concatenate(wanted),
        np.array([ptr[pe] for ptr, _ in halos], np.int64),
    )
