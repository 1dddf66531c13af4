"""Technique ``zero_copy``: embeddings stay in host memory, from which the GPU reads them (MGG 7).

DGL with unified virtual addressing and PyTorch-Direct feed a GPU this way: page-locked memory and one warp per row. The
warp fetches every row, local or remote, over the bus when it needs it and caches none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mgg.aggregate.arc_weights import Reordered, numbered
from mgg.aggregate.memory_model import MemoryCase, PlanMemory
from mgg.aggregate.neighbor_partitions.on_cpus import Blocks, blocks_cost
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.plan import Plan
from mgg.backend.api import Array, SymmetricArray
from mgg.cost.product import Cost, MachineModel, Workload, meetings, slowest
from mgg.layout import PeLayout, Product

#: Where PEs do not share memory, remote rows arrive in chunks of about this many rows.
_ROWS_A_CHUNK, _ARCS_A_PARTITION = 4096, 32
#: Floats that a thread reads or writes at once if they are aligned.
_VECTOR = 4


class ZeroCopy(Plan):
    """One row-wise product over local and remote arcs, whose columns are rows of memory shared by all PEs."""

    name = "zero_copy"
    pitched = False
    sums_apart = False  # threads see all rows as one matrix

    @classmethod
    def need(cls, case: MemoryCase) -> PlanMemory:
        """Return the memory without the input, which is in host memory; each width keeps its own column array."""
        product = case.product
        arcs = product.local.arcs + product.remote.arcs
        columns = product.local.indices.dtype.itemsize * (case.widths - 1)
        made = case.pointers(case.rows) + (case.arc + columns) * arcs
        lengths = np.diff(product.local.indptr) + np.diff(product.remote.indptr)
        return PlanMemory(0, case.matrix(case.rows), made, case.row_wise(lengths))

    @classmethod
    def cost(cls, work: Workload, machine: MachineModel) -> Cost | None:
        """Return the time of fetching a row per arc over the bus, or from the shared memory of CPU PEs in one process.

        None for GPUs in several workgroups, because no bus reaches another host's memory.
        """
        split = work.split
        if machine.gpu and split.groups > 1:
            return None
        if not (machine.gpu or machine.whole):
            share = _ROWS_A_CHUNK // _ARCS_A_PARTITION
            return blocks_cost(
                work, machine, ps=_ARCS_A_PARTITION, remote=_ARCS_A_PARTITION, share=share, interleave=False
            )
        sums = machine.rates["rows"].seconds(split.arcs, split.rows, work.moved, work.summed)
        fetched = machine.links["pcie"].seconds(split.arcs, work.moved) if machine.gpu else 0
        return slowest(sums, fetched, meetings(split, machine), machine.exposed)

    def _build(self) -> None:
        if self._input.whole is None:
            self._blocks: Blocks | None = Blocks(
                self.world, self.host, self.max_dim,
                ps=_ARCS_A_PARTITION, remote=_ARCS_A_PARTITION, share=_ROWS_A_CHUNK // _ARCS_A_PARTITION,
                interleave=False,
            )  # fmt: skip
            return
        self._blocks = None
        self._arcs = merged(self.host, self.world.rank)
        self._indptr = self.world.upload(self._arcs.indptr)
        self._weights = None if self._arcs.weights is None else self.world.upload(self._arcs.weights)
        self._columns: dict[int, Array] = {}
        self._reordered: Reordered | None = None

    @classmethod
    def reweighs(cls, layout: PeLayout, options: TechniqueOptions) -> bool:
        """Return True: the order of the merged arcs is known."""
        return True

    def reweigh(self, local: Array, remote: Array) -> None:
        """See ``Plan``."""
        if self._blocks is not None:
            super().reweigh(local, remote)
            return
        if self._reordered is None:
            mine, theirs = numbered(self.host.local, self.host.remote)
            order = merged(replace(self.host, local=mine, remote=theirs), self.world.rank).weights
            assert order is not None
            self._reordered = Reordered(self.world, order)
        self._reordered(local, remote, self._weights)

    def _allocate_input(self, elements: int) -> SymmetricArray:
        # Reserve space so that each PE's first row begins at a multiple of any width and of 16 bytes.
        self._stride = elements + _VECTOR * self.max_dim
        return self.world.host_symmetric(self._stride)

    def _input_view(self, dim: int) -> SymmetricArray:
        view = super()._input_view(dim)
        if self._input.whole is None:
            return view
        rows = self.world.size * self._stride // dim
        whole = self._input.whole[: rows * dim].reshape(rows, dim)
        first = self._first_rows(dim).tolist()
        peers = {pe: whole[row : row + self._max_rows] for pe, row in enumerate(first)}
        return SymmetricArray(self.world.rank, peers, whole=whole)

    def _first_rows(self, dim: int) -> np.ndarray:
        """Return each PE's first row in the shared memory seen as a matrix of ``dim`` columns: int64 [P]."""
        return -(-np.arange(self.world.size, dtype=np.int64) * self._stride // (_VECTOR * dim)) * _VECTOR

    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        dim = out.shape[1]
        if self._blocks is not None:
            self._blocks(source, self.accumulator(dim), out)
            return
        assert source.whole is not None
        self.world.operators.spmm_rows(self._indptr, self._columns_for(dim), self._weights, source.whole, out, False)
        self.world.counters.add("get", 4 * self.host.remote.arcs * dim)

    def forget(self, dim: int) -> None:
        """Free the column array of this width."""
        if self._blocks is None:
            self._columns.pop(dim, None)

    def _columns_for(self, dim: int) -> Array:
        """Return the row of the shared memory that each arc multiplies; built at the first product of each width."""
        if dim not in self._columns:
            columns = self._first_rows(dim)[self._arcs.owner] + self._arcs.row
            narrow = self.world.size * self._stride // dim < 2**31
            self._columns[dim] = self.world.upload(columns.astype(np.int32) if narrow else columns)
        return self._columns[dim]


@dataclass(frozen=True)
class Merged:
    """Local and remote arcs of a PE's rows in one CSR; in each row the local arcs come first.

    Attributes:
        indptr: int64 [rows + 1].
        owner: uint16 [arcs], the PE that owns each arc's column.
        row: int32 or int64 [arcs], the column's offset in its owner's rows.
        weights: [arcs], of the product's type, or None.
    """

    indptr: np.ndarray
    owner: np.ndarray
    row: np.ndarray
    weights: np.ndarray | None


def merged(product: Product, rank: int) -> Merged:
    """Merge the local and remote arcs of a product; ``rank`` is its PE."""
    local, remote = product.local, product.remote
    lengths = np.column_stack((np.diff(local.indptr), np.diff(remote.indptr))).reshape(-1)
    is_local = np.repeat(np.tile([True, False], local.rows), lengths)
    owners = np.repeat(np.arange(len(product.halo_ptr) - 1, dtype=np.uint16), np.diff(product.halo_ptr))

    def mixed(of_local: np.ndarray | int, of_remote: np.ndarray, dtype: np.dtype | type) -> np.ndarray:
        values = np.empty(len(is_local), dtype)
        values[is_local], values[~is_local] = of_local, of_remote
        return values

    return Merged(
        indptr=local.indptr + remote.indptr,
        owner=mixed(rank, owners[remote.indices], np.uint16),
        row=mixed(local.indices, product.halo_rows[remote.indices], local.indices.dtype),
        weights=None
        if local.weights is None or remote.weights is None
        else mixed(local.weights, remote.weights, local.weights.dtype),
    )
