"""The arcs that begin at a PE's rows, wherever they end: tables of the *turned* schedule (``mgg.vertex.turned``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgg.graph.csr import index_dtype
from mgg.layout import Product
from mgg.vertex.arcs import ArcTables, pointers, sort_rows


@dataclass(frozen=True, eq=False)
class Crossing:
    """Transfer of arc values from the PE of the target to the PE of the source, each arc once.

    On both sides, the arcs that two PEs share are in the order of the layout's numbers of the forward arcs.

    Attributes:
        send_ptr: int64 [P + 1]; PE q gets the arcs ``send[send_ptr[q] : send_ptr[q + 1]]``.
        send: int64, arc numbers in ``ArcTables``.
        receive_ptr: int64 [P + 1], where the values from each PE begin.
    """

    send_ptr: np.ndarray
    send: np.ndarray
    receive_ptr: np.ndarray

    @classmethod
    def of(cls, tables: ArcTables, forward: Product, transpose: Product | None) -> Crossing:
        """Return the transfers of the PE whose in-arcs are ``tables``; without ``transpose`` it is the only PE."""
        places, owners = _remote_places(tables, forward), _owners(forward)
        by_owner = np.argsort(owners, kind="stable")
        pes = len(forward.halo_ptr) - 1
        received = np.zeros(0, np.int64) if transpose is None else _owners(transpose)
        return cls(pointers(owners, pes), places[by_owner], pointers(np.sort(received), pes))


def out_arcs(tables: ArcTables, transpose: Product | None, ids: np.ndarray) -> ArcTables:
    """Return the arcs that begin at this PE's rows, as ``ArcTables`` for units over out-arcs.

    S is this PE's rows, D is these followed by the halo of the transpose. Arcs are numbered as in ``tables``; arcs that
    end elsewhere follow, by PE and the layout's number there, and each of them is a run of its own. The arcs of a row
    are sorted by (type, id of the target), so the PE and partition of a target do not matter.

    Args:
        tables: the arcs that end at this PE's rows.
        transpose: the transpose of the layout; None: there is one PE.
        ids: int64 [rows of D], the original ids of these rows.
    """
    rows, count = tables.rows, len(tables.ends)
    inside = np.flatnonzero(tables.ends < rows)
    sources, arcs = tables.ends[inside].astype(np.int64), inside
    ends = np.repeat(np.arange(rows), np.diff(tables.ptr))[inside]
    weights, types, foreign = tables.weights, tables.types, 0
    if transpose is not None:
        number, remote = _numbers(transpose), transpose.remote
        foreign = remote.arcs
        sources = np.concatenate([sources, np.repeat(np.arange(rows), np.diff(remote.indptr))])
        ends = np.concatenate([ends, rows + remote.indices.astype(np.int64)])
        arcs = np.concatenate([arcs, count + number])
        if weights is not None or remote.weights is not None:
            theirs = np.ones(foreign, np.float32) if remote.weights is None else remote.weights
            weights = np.concatenate([np.ones(count, np.float32) if weights is None else weights, _put(theirs, number)])
        if types is not None:
            kinds = np.zeros(foreign, np.int32) if remote.types is None else remote.types
            types = np.concatenate([types, _put(kinds, number)])
    order = np.argsort(sources, kind="stable")
    rank = np.empty(len(ids), np.int64)
    rank[np.argsort(ids, kind="stable")] = np.arange(len(ids))
    keys = rank[ends] if types is None else types[arcs] * np.int64(len(ids)) + rank[ends]
    ptr = pointers(sources, rows)
    sort_rows(ptr, keys, order)
    none = np.zeros(len(ids) + 1, np.int64)
    return ArcTables(
        rows=len(ids),
        sources=rows,
        ptr=none,
        ends=np.broadcast_to(np.zeros((), index_dtype(len(ids))), (count + foreign,)),
        weights=weights,
        types=types,
        runs=np.concatenate([tables.runs, count + 1 + np.arange(foreign)]),
        row_runs=none,
        out_ptr=ptr,
        out_ends=ends[order].astype(index_dtype(len(ids))),
        out_arcs=arcs[order],
        ids=np.asarray(ids, np.int64),
        type_count=tables.type_count,
    )


def _put(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    result = np.empty_like(values)
    result[places] = values
    return result


def _numbers(transpose: Product) -> np.ndarray:
    """Return the number of each remote arc of ``transpose`` in the order by (owner, number of the forward arc).

    There, the halo is sorted by owner and row, and a row's forward arcs by source and type, like the rows here.
    """
    number = np.empty(transpose.remote.arcs, np.int64)
    number[np.argsort(transpose.remote.indices, kind="stable")] = np.arange(len(number))
    return number


def _owners(product: Product) -> np.ndarray:
    """Return the PE at the other end of each remote arc."""
    of_halo = np.repeat(np.arange(len(product.halo_ptr) - 1), np.diff(product.halo_ptr))
    return of_halo[product.remote.indices]


def _remote_places(tables: ArcTables, forward: Product) -> np.ndarray:
    """Return the position in ``tables`` of each remote arc of the layout; both sort the arcs of a row alike."""
    remote, ids = forward.remote, tables.ids
    rank = np.empty(len(ids), np.int64)
    rank[np.argsort(ids, kind="stable")] = np.arange(len(ids))
    keys = rank[forward.rows + remote.indices.astype(np.int64)]
    if tables.types is not None and remote.types is not None:
        keys = remote.types * np.int64(len(ids)) + keys
    order = np.arange(remote.arcs)
    sort_rows(np.asarray(remote.indptr, np.int64), keys, order)
    places = np.empty(remote.arcs, np.int64)
    places[order] = np.flatnonzero(tables.ends >= tables.rows)
    return places
