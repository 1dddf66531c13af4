"""This PE's typed arcs, type by type."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mgg.backend.api import Array
from mgg.graph.csr import Csr
from mgg.layout import Product
from mgg.model.arcs import ArcList, ArcLists
from mgg.model.arrays import Arrays


@dataclass(frozen=True)
class Relation(ArcLists):
    """The arcs of one type that end at this PE's rows; lists have no entries for nodes without such arcs.

    Attributes:
        type: number of the type.
        rows: int64 [k], the rows, ascending: node i of the list by target, and an end i of that by source, is
            ``rows[i]``.
        begins: int64 [m], the sources, ascending: node i of the list by source is ``begins[i]``; ends of the list by
            target are sources themselves.
    """

    type: int
    rows: Array
    begins: Array


def relations_of(product: Product, places: np.ndarray, relations: int, arrays: Arrays, dtype: Any) -> list[Relation]:
    """The types that have arcs here, each arc weighing 1 / (number of the type's arcs that end at its row).

    Args:
        product: the forward one, with types.
        places: int64 [rows + halo], what to call the source at each position.
        relations: number of types; an arc from each row to itself is one of type ``relations``.
        arrays: of the PE's device.
        dtype: of the weights.
    """
    rows, positions, types = _listed(product)
    count = product.rows
    rows = np.concatenate([rows, np.arange(count)])
    sources = np.concatenate([places[positions], places[:count]])
    types = np.concatenate([types, np.full(count, relations)])
    order = np.lexsort((sources, rows, types))
    rows, sources, types = rows[order], sources[order], types[order]
    present, first = np.unique(types, return_index=True)
    return [
        _relation(int(kind), rows[a:b], sources[a:b], arrays, dtype)
        for kind, (a, b) in zip(present, pairwise([*first, len(types)]), strict=True)
    ]


def _listed(product: Product) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, position and type of every arc."""
    parts: list[tuple[Csr, int]] = [(product.local, 0), (product.remote, product.rows)]
    rows = [np.repeat(np.arange(csr.rows), np.diff(csr.indptr)) for csr, _ in parts]
    positions = [csr.indices.astype(np.int64) + first for csr, first in parts]
    types = [np.zeros(0, np.int64) if csr.types is None else csr.types for csr, _ in parts]
    return np.concatenate(rows), np.concatenate(positions), np.concatenate(types)


def _relation(kind: int, rows: np.ndarray, sources: np.ndarray, arrays: Arrays, dtype: Any) -> Relation:
    distinct, targets, counts = np.unique(rows, return_inverse=True, return_counts=True)
    begins, source_counts = np.unique(sources, return_counts=True)
    order = np.argsort(sources, kind="stable")
    weights = (1 / counts[targets])[:, None].astype(dtype)
    width = np.int32 if int(begins[-1]) < 2**31 else np.int64
    return Relation(
        by_target=ArcList(_pointers(counts), sources.astype(width), False, weights).on(arrays),
        by_source=ArcList(_pointers(source_counts), targets[order].astype(np.int32), True, weights[order]).on(arrays),
        type=kind,
        rows=arrays.upload(distinct),
        begins=arrays.upload(begins),
    )


def _pointers(counts: np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
