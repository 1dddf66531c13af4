"""The products that bring halo rows and give their gradients back."""

from itertools import pairwise

import numpy as np
from support.graphs import build_layout, random_csr

from mgg.layout import load
from mgg.layout.halo_matrix import returning, selection

PES = 3


def rows_read(product, arrays, rank):
    """What a product computes on PE ``rank`` of the single column ``arrays[pe]`` of every PE."""
    halo = np.concatenate([arrays[pe][product.halo_of(pe)] for pe in range(PES)])
    return product.local.to_scipy() @ arrays[rank] + product.remote.to_scipy() @ halo


def test_halo_matrix_fetches_rows_and_returns_gradients(tmp_path):
    folder = build_layout(tmp_path, random_csr(40, 300), PES)
    layouts = [load(folder, rank) for rank in range(PES)]
    bounds = layouts[0].bounds
    wanted = [
        np.concatenate([bounds[pe] + layout.forward.halo_of(pe) for pe in range(PES)]).astype(int)
        for layout in layouts
    ]  # fmt: skip
    assert max(np.bincount(np.concatenate(wanted))) == PES - 1  # some row is in the halo of every other PE
    values = np.random.default_rng(0).normal(size=bounds[-1])
    mine = [values[a:b] for a, b in pairwise(bounds)]
    gradients = [np.random.default_rng(1 + pe).normal(size=len(wanted[pe])) for pe in range(PES)]
    expected = np.zeros(bounds[-1])
    for rows, gradient in zip(wanted, gradients, strict=True):
        expected[rows] += gradient
    sent = [layout.forward.send_ptr for layout in layouts]
    for layout in layouts:
        brought = rows_read(selection(layout).forward, mine, layout.rank)
        assert np.allclose(brought, values[wanted[layout.rank]])
        back = rows_read(returning(layout, sent).forward, gradients, layout.rank)
        assert np.allclose(back, expected[layout.lo : layout.hi])
