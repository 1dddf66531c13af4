"""Technique ``halo`` on CPU ranks: a PE fetches the rows that it needs from its mates, then computes."""

from __future__ import annotations

from mgg.aggregate.embeddings import Embeddings
from mgg.aggregate.plan import uploaded_csr
from mgg.aggregate.workgroups.intra_inter_group import GroupArcs
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray


class FetchedHaloProduct:
    """One part of one PE's product; callers ensure that all rows are written before and stay valid until the end.

    Args:
        matrix: the symmetric matrix of the rows to multiply.
        rows: height of that matrix.
        accumulate: add to the output.
    """

    def __init__(
        self, world: World, part: GroupArcs, matrix: SymmetricArray, rows: int, embeddings: Embeddings, max_dim: int,
        accumulate: bool = False,
    ) -> None:  # fmt: skip
        self._part, self._matrix, self._height = part, matrix, rows
        self._embeddings, self._accumulate = embeddings, accumulate
        self._local, self._remote = uploaded_csr(world, part.local), uploaded_csr(world, part.remote)
        self._rows = world.upload(part.halo_rows)
        self._halo = world.xp.empty(part.halo * max_dim, embeddings.element)

    def reweigh(self, local: Array, remote: Array) -> None:
        """See ``Plan``; the part is the whole product."""
        for csr, given in ((self._local, local), (self._remote, remote)):
            weights: Array = csr.weights
            weights[...] = given

    def __call__(self, world: World, sums: Array, step: str = "all") -> None:
        """Write or add the product with all PEs' matrices [*, D] to ``sums`` [rows, D]; ``step`` is always ``all``."""
        assert step == "all"
        part, dim, local, remote = self._part, sums.shape[1], self._local, self._remote
        source = self._embeddings.matrix(self._matrix, self._height, dim)
        halo = self._halo[: part.halo * dim].reshape(part.halo, dim)
        # Each PE starts with its right neighbor, so that no PE is everyone's first source.
        me, count = part.pes.index(world.rank), len(part.pes)
        for other in ((me + step) % count for step in range(1, count)):
            span = slice(*(int(position) for position in part.halo_ptr[other : other + 2]))
            world.get_rows(source, part.pes[other], self._rows[span], halo[span])
        world.operators.spmm_rows(local.indptr, local.indices, local.weights, source.local, sums, self._accumulate)
        if part.halo:
            world.operators.spmm_rows(remote.indptr, remote.indices, remote.weights, halo, sums, True)
