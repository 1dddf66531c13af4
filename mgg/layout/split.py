"""Cut a graph into each PE's parts: local and remote CSR, halo and send lists.

Rows arrive in blocks and are written to the disk at once. One bit per node marks the halo of a PE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np

from mgg.graph.csr import Csr
from mgg.graph.external import kernels
from mgg.graph.manifest import Manifest
from mgg.layout.store import Direction, Growing, pe_folder, save

#: Words of halo bits unpacked at a time.
WORDS = 2**14


@dataclass(frozen=True)
class TransposedArcs:
    """A transpose, with the forward position of every arc.

    Attributes:
        csr: the transpose.
        forward: int64 [arcs], position of each transposed arc in the forward CSR.
    """

    csr: Csr
    forward: np.ndarray


def transposed(csr: Csr) -> TransposedArcs:
    """Transpose a CSR by one counting sort, rows ascending, with each arc's position in ``csr``."""
    offsets, rows, forward = transposed_places(csr)
    weights, types = (None if values is None else values[forward] for values in (csr.weights, csr.types))
    return TransposedArcs(Csr(offsets, rows, weights, csr.rows, types), forward)


def transposed_places(
    csr: Csr, empty: Callable[[Any, Any], np.ndarray] = np.empty
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Transpose a CSR by one counting sort, without weights and types.

    Args:
        csr: any matrix.
        empty: allocates the arrays with an entry per arc, by shape and dtype.

    Returns:
        Offsets, int64 [columns + 1]; rows by column, ascending, [arcs] of the type of ``csr.indices``; and each arc's
        position in ``csr``, int64 [arcs].
    """
    offsets = np.zeros(csr.columns + 1, np.int64)
    rows, forward = empty(csr.arcs, csr.indices.dtype), empty(csr.arcs, np.int64)
    _count(csr.indices, offsets[1:])
    np.cumsum(offsets, out=offsets)
    _scatter(csr.indptr, csr.indices, offsets[:-1].copy(), rows, forward)
    return offsets, rows, forward


@numba.njit(cache=True, nogil=True)
def _count(indices, counts):  # type: ignore[no-untyped-def]
    for column in indices:
        counts[column] += 1


@numba.njit(cache=True, nogil=True)
def _scatter(indptr, indices, cursor, rows, forward):  # type: ignore[no-untyped-def]
    for row in range(indptr.size - 1):
        for k in range(indptr[row], indptr[row + 1]):
            at = cursor[indices[k]]
            cursor[indices[k]] = at + 1
            rows[at] = row
            forward[at] = k


def save_product(
    folder: Path, direction: str, blocks: Iterable[tuple[int, Csr]], facts: Manifest, bounds: np.ndarray
) -> Direction:
    """Write one direction into the existing folders of the PEs, and return its counts.

    Args:
        folder: the new layout.
        direction: ``forward`` or ``transpose``.
        blocks: all rows of that direction's matrix in order, each block with its first row.
        facts: manifest of the graph.
        bounds: int64 [P + 1], row ranges of the PEs.
    """
    counts = Direction(arcs=[], remote_arcs=[], halo_rows=[])
    pieces, halos, ptrs = _dealt(blocks, bounds), [], []
    owner, piece = next(pieces, (None, None))
    for pe in range(len(bounds) - 1):
        cutter = _Cutter(folder / pe_folder(pe) / direction, facts, bounds, pe)
        while owner == pe:
            assert piece is not None
            cutter.add(piece)
            owner, piece = next(pieces, (None, None))
        ptrs.append(cutter.finish())
        halos.append(cutter.halo)
        counts.arcs.append(cutter.local["indices"].rows + cutter.remote["indices"].rows)
        counts.remote_arcs.append(cutter.remote["indices"].rows)
        counts.halo_rows.append(cutter.halo.rows)
    for pe in range(len(bounds) - 1):
        _save_sends(folder / pe_folder(pe) / direction, halos, np.array(ptrs), pe, facts.index_dtype)
    return counts


def _dealt(blocks: Iterable[tuple[int, Csr]], bounds: np.ndarray) -> Iterator[tuple[int, Csr]]:
    """Cut blocks at the bounds of PEs, and yield each piece with its PE."""
    for first, block in blocks:
        pe = int(np.searchsorted(bounds, first, side="right")) - 1
        while bounds[pe] < first + block.rows:
            lo, hi = max(first, int(bounds[pe])) - first, min(first + block.rows, int(bounds[pe + 1])) - first
            if lo < hi:
                begin, end = (int(block.indptr[at]) for at in (lo, hi))
                weights, types = (None if each is None else each[begin:end] for each in (block.weights, block.types))
                yield (
                    pe,
                    Csr(block.indptr[lo : hi + 1] - begin, block.indices[begin:end], weights, block.columns, types),
                )
            pe += 1
            if pe == len(bounds) - 1:
                break


class _Cutter:
    """Writer of one PE's part of a direction; takes a quarter byte per node of the graph, and a few blocks."""

    def __init__(self, prefix: Path, facts: Manifest, bounds: np.ndarray, pe: int) -> None:
        self._bounds, self._lo, self._hi = bounds, int(bounds[pe]), int(bounds[pe + 1])
        self._words = np.zeros(facts.nodes // 64 + 1, np.uint64)
        self._prefix = prefix
        dtypes = {"indptr": "<i8", "indices": facts.index_dtype}
        dtypes |= {"weights": "<f4"} if facts.weighted else {}
        dtypes |= {"types": "<i4"} if facts.relations else {}
        self.local, self.remote = (
            {name: Growing(_named(prefix, f"{part}.{name}"), dtype) for name, dtype in dtypes.items()}
            for part in ("local", "remote")
        )
        self.halo = Growing(_named(prefix, "halo_rows"), facts.index_dtype)
        for part in (self.local, self.remote):
            part["indptr"].add(np.zeros(1, np.int64))

    def add(self, block: Csr) -> None:
        inside, near = np.empty(block.arcs, np.bool_), np.empty(block.rows, np.int64)
        _divide(block.indptr, block.indices, self._lo, self._hi, self._words, inside, near)
        far = np.diff(block.indptr) - near
        for part, chosen, counts, base in ((self.local, inside, near, self._lo), (self.remote, ~inside, far, 0)):
            part["indptr"].add(part["indices"].rows + np.cumsum(counts))
            part["indices"].add(block.indices[chosen] - block.indices.dtype.type(base))
            for name, values in (("weights", block.weights), ("types", block.types)):
                if values is not None:
                    part[name].add(values[chosen])

    def finish(self) -> np.ndarray:
        """Write the halo, and remote columns as positions in it; return ``halo_ptr``."""
        words, before = self._words, kernels.bits_before(self._words)
        halo_ptr = self._bounds.copy()
        _rank(halo_ptr, words, before)
        self.remote["indices"].change(lambda columns: _rank(columns, words, before))
        used = np.flatnonzero(words)
        for lo in range(0, len(used), WORDS):
            at = used[lo : lo + WORDS]
            word, bit = np.unpackbits(words[at].view(np.uint8), bitorder="little").reshape(-1, 64).nonzero()
            nodes = at[word] * 64 + bit
            self.halo.add(nodes - self._bounds[np.searchsorted(self._bounds, nodes, side="right") - 1])
        save(_named(self._prefix, "halo_ptr"), halo_ptr)
        for array in (*self.local.values(), *self.remote.values(), self.halo):
            array.end()
        return halo_ptr


def _named(prefix: Path, name: str) -> Path:
    return prefix.with_name(f"{prefix.name}.{name}.npy")


@numba.njit(cache=True, nogil=True)
def _divide(indptr, indices, lo, hi, words, inside, near):  # type: ignore[no-untyped-def]
    """Find the arcs with columns lo..hi-1, count them per row, and set the bits of the other arcs' columns."""
    for row in range(indptr.size - 1):
        count = 0
        for k in range(indptr[row], indptr[row + 1]):
            column = indices[k]
            inside[k] = lo <= column < hi
            if inside[k]:
                count += 1
            else:
                words[column >> 6] |= np.uint64(1) << np.uint64(column & 63)
        near[row] = count


@numba.njit(cache=True, nogil=True)
def _rank(values, words, before):  # type: ignore[no-untyped-def]
    """Replace every value by the number of bits set below it."""
    for k in range(values.size):
        values[k] = kernels.rank(words, before, np.uint64(values[k]))


def _save_sends(prefix: Path, halos: list[Growing], ptrs: np.ndarray, pe: int, dtype: str) -> None:
    """Write the send lists of PE ``pe``; ``ptrs`` int64 [P, P + 1] are the ``halo_ptr`` of every PE."""
    firsts, lasts = ptrs[:, pe], ptrs[:, pe + 1]
    rows = Growing(_named(prefix, "send_rows"), dtype)
    for other in np.flatnonzero(lasts > firsts):
        for piece in halos[other].pieces(int(firsts[other]), int(lasts[other])):
            rows.add(piece)
    rows.end()
    save(_named(prefix, "send_ptr"), np.concatenate(([0], np.cumsum(lasts - firsts))))
    save(_named(prefix, "send_first"), firsts)
