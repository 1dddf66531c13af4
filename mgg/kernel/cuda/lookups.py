"""Embedding lookups on a GPU: the functions of ``mgg.kernel.cpu.lookups``, and kernels that read other PEs' rows.

Everything runs on CuPy's current stream. Sums are float32, in an order that depends only on the bag. ``ends`` and
``distinct`` wait for the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import cupy as cp
import numpy as np

from mgg.kernel.compile import build_of
from mgg.kernel.cuda import CudaOperators
from mgg.kernel.cuda.arguments import column_tiles, index_bits, row_stride, vector_width

#: Warps per block: kWarps in kernels/lookup/bags.cu.
_WARPS = 4
#: Threads per block, one per id, of lookup_group.
_GROUPING = 128
_KEYS = cp.ElementwiseKernel(
    "int32 id, int32 pes, int32 height", "int32 key", "key = id % pes * height + id / pes", "mgg_lookup_keys"
)
_ROWS = cp.ElementwiseKernel("int32 key, int32 height", "int32 row", "row = key % height", "mgg_lookup_rows")
_PLACES = cp.ElementwiseKernel(
    "int32 key, int64 fetched, int32 first, int32 height", "int32 place",
    "int row = key - first; place = row >= 0 && row < height ? row : ~static_cast<int>(fetched)", "mgg_lookup_places",
)  # fmt: skip


@dataclass(frozen=True)
class Peers:
    """All PEs' rows: ``addresses`` uint64 [P] in device memory, and ``any`` PE's matrix, for the common stride."""

    addresses: cp.ndarray
    any: cp.ndarray


class CudaLookups:
    """The functions of ``mgg.kernel.cpu.lookups`` for the device of ``operators``, and ``mgg``."""

    def __init__(self, operators: CudaOperators):
        self._operators = operators

    def keys(self, ids: cp.ndarray, pes: int, height: int) -> cp.ndarray:
        """Return the keys of ``ids``."""
        made = cp.empty(ids.shape, np.int32)
        _KEYS(ids, np.int32(pes), np.int32(height), made)
        return made

    def rows(self, keys: cp.ndarray, height: int) -> cp.ndarray:
        """Return the row of each key in its owner's memory."""
        made = cp.empty(keys.shape, np.int32)
        _ROWS(keys, np.int32(height), made)
        return made

    def group(self, ids: cp.ndarray, pes: int, pe: int, numbers: cp.ndarray, counts: cp.ndarray) -> cp.ndarray:
        """Group ``ids`` of PE ``pe`` by owner, without a wait for the GPU.

        Args:
            ids: n integers, in any shape.
            pes: number of PEs.
            pe: this PE.
            numbers: [at least pes * n], of the type of ``ids``; rows of PE q go to ``numbers[q * n :]``, in any order.
            counts: int32 [pes], zeros; gets the number of these rows, for this PE itself 0.

        Returns:
            places for ``pool``: own rows, or ``~`` the place of the row in ``numbers``.
        """
        places = cp.empty(ids.shape, ids.dtype)
        if ids.size:
            self._operators.kernel(build_of("bags", index_bits(ids)), "lookup_group")(
                (-(-ids.size // _GROUPING),), (_GROUPING,),
                (ids, np.int32(ids.size), np.int32(pes), np.int32(pe), numbers, counts, places),
            )  # fmt: skip
        return places

    def distinct(self, keys: cp.ndarray) -> tuple[cp.ndarray, cp.ndarray]:
        """Return the distinct ``keys``, and the position of each key among them."""
        found, place = cp.unique(keys, return_inverse=True)
        return found, place

    def ends(self, keys: cp.ndarray, pes: int, height: int) -> list[int]:
        """Return where each owner's keys begin, and where the last one's end."""
        edges = cp.asarray(np.arange(pes + 1, dtype=np.int64) * height)
        found: list[int] = cp.asnumpy(cp.searchsorted(keys, edges)).tolist()
        return found

    def places(self, keys: cp.ndarray, fetched: cp.ndarray, pe: int, height: int) -> cp.ndarray:
        """Return places for ``pool``: own rows, or ``~fetched``."""
        made = cp.empty(keys.shape, np.int32)
        _PLACES(keys, fetched.reshape(*keys.shape), np.int32(pe * height), np.int32(height), made)
        return made

    def pool(self, places: cp.ndarray, own: cp.ndarray, other: cp.ndarray, out: cp.ndarray) -> None:
        """Sum rows of two matrices of this GPU."""
        matrices = own, row_stride(own), other, row_stride(other)
        self._launch("lookup_pool", places, vector_width(own, other), matrices, out)

    def peers(self, copies: Mapping[int, cp.ndarray]) -> Peers:
        """Return the rows of all PEs, by PE, in the form that ``direct`` and ``mgg`` take."""
        addresses = [copies[pe].data.ptr for pe in range(len(copies))]
        return Peers(cp.asarray(np.array(addresses, np.uint64)), copies[0])

    def direct(self, ids: cp.ndarray, peers: Peers, out: cp.ndarray) -> None:
        """Sum rows that are read in place by loads."""
        self._of_peers("lookup_direct", ids, 0, peers, out)

    def mgg(self, ids: cp.ndarray, rank: int, peers: Peers, out: cp.ndarray) -> None:
        """As ``direct``, but copy other PEs' rows to shared memory while ``rank``'s own rows are summed (MGG 5)."""
        self._of_peers("lookup_mgg", ids, rank, peers, out)

    def _of_peers(self, name: str, ids: cp.ndarray, rank: int, peers: Peers, out: cp.ndarray) -> None:
        count, stride = np.int32(len(peers.addresses)), row_stride(peers.any)
        copies = peers.addresses, count, np.int32(rank), stride
        self._launch(name, ids, vector_width(peers.any), copies, out)

    def _launch(self, name: str, ids: cp.ndarray, vector: int, rows: tuple[object, ...], out: cp.ndarray) -> None:
        """Launch one warp per bag and tile of columns."""
        bags, size = ids.shape
        columns, build = out.shape[1], build_of("bags", index_bits(ids))
        if not bags:
            return
        for lanes, first, tiles in column_tiles(columns, vector, narrowest=4):
            kernel = self._operators.kernel(build, f"{name}_{lanes}_{vector}")
            kernel(
                (-(-bags // _WARPS), tiles), (32 * _WARPS,),
                (
                    ids, np.int64(bags), np.int32(size), *rows, out, row_stride(out), np.int32(first),
                    np.int32(columns),
                ),
            )  # fmt: skip
