"""Split a PE's arcs by the owner of their column, or merge them with global node numbers."""

from __future__ import annotations

import numpy as np

from mgg.graph.csr import Csr, index_dtype
from mgg.layout import PeLayout, Product


def by_owner(product: Product, *, halo_columns: bool) -> list[Csr]:
    """Return one CSR per owner, each with all of this PE's rows; this PE's own CSR is empty.

    Args:
        halo_columns: columns count from the owner's first halo row (for packed rows); else they are offsets in the
            owner's rows (if all of its rows arrive).
    """
    remote = product.remote
    owners = len(product.halo_ptr) - 1
    rows = np.repeat(np.arange(remote.rows), np.diff(remote.indptr))
    parts = []
    for owner in range(owners):
        first, last = product.halo_ptr[owner], product.halo_ptr[owner + 1]
        mine = (remote.indices >= first) & (remote.indices < last)
        columns = remote.indices[mine]
        indptr = np.zeros(remote.rows + 1, np.int64)
        np.cumsum(np.bincount(rows[mine], minlength=remote.rows), out=indptr[1:])
        parts.append(
            Csr(
                indptr,
                columns - columns.dtype.type(first) if halo_columns else product.halo_rows[columns],
                None if remote.weights is None else remote.weights[mine],
                int(last - first) if halo_columns else int(product.halo_rows[columns].max(initial=-1)) + 1,
            )
        )
    return parts


def global_columns(product: Product, layout: PeLayout) -> Csr:
    """Return all arcs of a PE's rows; columns are nodes of the graph, ascending in each row."""
    local, remote = product.local, product.remote
    owners = np.repeat(layout.bounds[:-1], np.diff(product.halo_ptr))
    halo = product.halo_rows + owners
    rows = np.concatenate([np.repeat(np.arange(csr.rows), np.diff(csr.indptr)) for csr in (local, remote)])
    columns = np.concatenate([local.indices + layout.lo, halo[remote.indices]])
    order = np.lexsort((columns, rows))
    weights = None
    if local.weights is not None and remote.weights is not None:
        weights = np.concatenate([local.weights, remote.weights])[order]
    nodes = int(layout.bounds[-1])
    return Csr(local.indptr + remote.indptr, columns[order].astype(index_dtype(nodes)), weights, nodes)
