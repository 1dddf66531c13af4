"""Embedding lookups on CPU ranks; ``mgg.kernel.cuda.lookups`` has the same functions for GPUs.

Sums are computed in float64, in the order of a bag's rows, and rounded once. Rows of all tables have consecutive
numbers; a *key* is such a row ordered by owner: owner * height + row there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def _pool(places: np.ndarray, own: np.ndarray, other: np.ndarray, out: np.ndarray) -> None:
    sums = np.empty(out.shape[1], np.float64)
    for bag in range(places.shape[0]):
        sums[:] = 0
        for k in range(places.shape[1]):
            place = places[bag, k]
            source, row = (own, place) if place >= 0 else (other, ~place)
            for column in range(sums.size):
                sums[column] += source[row, column]
        for column in range(sums.size):
            out[bag, column] = np.float32(sums[column])


@numba.njit(cache=True, nogil=True)
def _add_owned(ids: np.ndarray, pes: int, pe: int, source: np.ndarray, sums: np.ndarray) -> None:
    for bag in range(ids.shape[0]):
        for k in range(ids.shape[1]):
            if ids[bag, k] % pes == pe:
                row = ids[bag, k] // pes
                for column in range(sums.shape[1]):
                    sums[bag, column] += source[row, column]


def keys(ids: np.ndarray, pes: int, height: int) -> np.ndarray:
    """Return int32 keys of ``ids`` int32, of the same shape: row r is row r div ``pes`` of PE r mod ``pes``."""
    return ids % np.int32(pes) * np.int32(height) + ids // np.int32(pes)


def rows(keys: np.ndarray, height: int) -> np.ndarray:
    """Return the row of each key in its owner's memory, int32."""
    return keys % np.int32(height)


def by_owner(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``keys`` int32 [n] sorted, in stable order; and the position of each in the result, int64 [n]."""
    order = np.argsort(keys, kind="stable")
    place = np.empty(len(keys), np.int64)
    place[order] = np.arange(len(keys))
    return keys[order], place


def distinct(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct ``keys`` of int32 [n], sorted; and the position of each key among them, int64 [n]."""
    found, place = np.unique(keys, return_inverse=True)
    return found, place


def ends(keys: np.ndarray, pes: int, height: int) -> list[int]:
    """Return where each owner's keys begin in sorted ``keys``, and where the last one's end: [pes + 1], on the host."""
    found: list[int] = np.searchsorted(keys, np.arange(pes + 1) * height).tolist()
    return found


def places(keys: np.ndarray, fetched: np.ndarray, pe: int, height: int) -> np.ndarray:
    """Return int32 places for ``pool``: the row for keys of PE ``pe`` itself, ``~fetched`` for the other keys."""
    row = keys - np.int32(pe * height)
    return np.where((row >= 0) & (row < height), row, ~fetched.reshape(keys.shape)).astype(np.int32)


def pool(places: np.ndarray, own: np.ndarray, other: np.ndarray, out: np.ndarray) -> None:
    """Set ``out[b]`` to the sum over k of ``own[p]``, p = ``places[b, k]``, or of ``other[~p]`` where p is negative.

    Args:
        places: int32 [bags, k].
        own, other: float32 [*, D].
        out: float32 [bags, D].
    """
    _pool(places, own, other, out)


def peers(copies: Mapping[int, np.ndarray]) -> Mapping[int, np.ndarray]:
    """Return the rows of all PEs, by PE, in the form that ``direct`` takes."""
    return copies


def direct(ids: np.ndarray, peers: Mapping[int, np.ndarray], out: np.ndarray) -> None:
    """Set ``out[b]`` to the sum of the rows ``ids[b]``, read in place and added owner by owner.

    Args:
        ids: int32 [bags, k], rows of all PEs.
        peers: all PEs' rows by PE, float32 [*, D].
        out: float32 [bags, D].
    """
    sums = np.zeros(out.shape)
    for pe, source in sorted(peers.items()):
        _add_owned(ids, len(peers), pe, source, sums)
    out[...] = sums
