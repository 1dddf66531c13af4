"""Halo exchange as products: with the matrix that selects a PE's halo rows, and with its transpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mgg.graph.csr import Csr, index_dtype
from mgg.layout.parts import PeLayout, Product
from mgg.layout.store import Direction


def selection(layout: PeLayout) -> PeLayout:
    """Return the layout of S, which selects the forward product's halo: row h of S X is the row that halo row h copies.

    S is not square: PEs own the rows of X as before, and PE p's rows of S X are its halo. The layout has no transposed
    product; ``returning`` makes it.
    """
    own = layout.forward
    ends = np.arange(own.halo + 1, dtype=np.int64)
    matrix = Product(
        local=Csr(np.zeros(own.halo + 1, np.int64), own.local.indices[:0], None, layout.rows),
        remote=Csr(ends, ends[:-1].astype(own.remote.indices.dtype), None, own.halo),
        halo_ptr=own.halo_ptr,
        halo_rows=own.halo_rows,
        send_ptr=own.send_ptr,
        send_rows=own.send_rows,
        send_first=own.send_first,
    )
    copies = layout.manifest.forward.halo_rows
    return _alone(layout, matrix, layout.manifest.bounds, copies)


def returning(layout: PeLayout, sent: Sequence[np.ndarray]) -> PeLayout:
    """Return the transpose of ``selection``: row r of S^T G sums the rows of G whose halo row is a copy of row r.

    PEs own the rows of G that correspond to their halos; PE p's rows of S^T G are its nodes.

    Args:
        layout: layout of this PE.
        sent: ``send_ptr`` of every PE's forward product.
    """
    own, rows = layout.forward, layout.rows
    # This product fetches the copies of this PE's rows, in the order of the PEs that have them.
    counts, dtype = np.diff(own.send_ptr), np.promote_types(own.remote.indices.dtype, index_dtype(len(own.send_rows)))
    places = np.arange(len(own.send_rows)) - np.repeat(own.send_ptr[:-1] - own.send_first, counts)
    order = np.argsort(own.send_rows, kind="stable")
    ends = np.concatenate(([0], np.cumsum(np.bincount(own.send_rows, minlength=rows)))).astype(np.int64)
    matrix = Product(
        local=Csr(np.zeros(rows + 1, np.int64), np.zeros(0, dtype), None, own.halo),
        remote=Csr(ends, order.astype(dtype), None, len(order)),
        halo_ptr=own.send_ptr,
        halo_rows=places.astype(own.halo_rows.dtype),
        send_ptr=own.halo_ptr,
        send_rows=np.arange(own.halo).astype(own.send_rows.dtype),
        send_first=np.array([ptr[layout.rank] for ptr in sent], np.int64),
    )
    bounds = np.concatenate(([0], np.cumsum(layout.manifest.forward.halo_rows))).tolist()
    return _alone(layout, matrix, bounds, [int(ptr[-1]) for ptr in sent])


def flipped(layout: PeLayout) -> PeLayout:
    """Return ``layout`` with its directions exchanged: it fetches the rows at which this PE's out-arcs end."""
    facts = layout.manifest
    manifest = facts.model_copy(update={"forward": facts.transpose, "transpose": facts.forward})
    return replace(layout, manifest=manifest, forward=layout.transpose, transpose=layout.forward)


def dealt(layout: PeLayout, received: np.ndarray, sent: Sequence[np.ndarray]) -> PeLayout:
    """Return a layout of a many-to-many exchange: its rows are grouped by receiver, its halo is what this PE receives.

    Args:
        layout: layout of this PE.
        received: first received row from each PE, int64 [P + 1].
        sent: for every PE, its first row for each PE, int64 [P + 1].
    """
    rank, rows = layout.rank, int(sent[layout.rank][-1])
    firsts = np.array([ptr[rank] for ptr in sent], np.int64)
    halo, counts = int(received[-1]), np.diff(received)
    dtype = index_dtype(max(int(ptr[-1]) for ptr in sent) + halo)
    none = np.zeros(0, dtype)
    matrix = Product(
        local=Csr(np.zeros(rows + 1, np.int64), none, None, rows),
        remote=Csr(np.zeros(rows + 1, np.int64), none, None, halo),
        halo_ptr=received,
        halo_rows=(np.arange(halo) + np.repeat(firsts - received[:-1], counts)).astype(dtype),
        send_ptr=sent[rank],
        send_rows=np.arange(rows).astype(dtype),
        send_first=np.zeros(len(sent), np.int64),
    )
    bounds = np.concatenate(([0], np.cumsum([int(ptr[-1]) for ptr in sent]))).tolist()
    copies = [sum(int(ptr[pe + 1] - ptr[pe]) for ptr in sent) for pe in range(len(sent))]
    return _alone(layout, matrix, bounds, copies)


def _alone(layout: PeLayout, matrix: Product, bounds: list[int], copies: list[int]) -> PeLayout:
    """Return a layout of ``matrix`` alone; its arcs, ``copies`` per PE, are all remote, each with its own column."""
    counts = Direction(arcs=copies, remote_arcs=copies, halo_rows=copies)
    manifest = layout.manifest.model_copy(
        update={
            "nodes": bounds[-1], "arcs": sum(copies), "bounds": bounds, "forward": counts, "transpose": counts,
            "symmetric": False, "weighted": False, "features": 0, "classes": 0, "tasks": 0, "relations": 0,
            "splits": False, "ids": False, "permuted": False,
        }
    )  # fmt: skip
    return PeLayout(manifest, layout.rank, matrix, matrix, None, None, None)
