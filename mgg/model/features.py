"""Input features in the form that the first layer takes."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from mgg.backend.api import Array, SideWork, World
from mgg.kernel.operators import Operators
from mgg.model.module import Features

#: Features with a smaller share of nonzero entries, such as bags of words, are stored as CSR: then the sparse product
#: costs less than the dense one, and dropout draws far fewer numbers. The largest published case is Pubmed's 10 %.
SPARSE_BELOW = 0.25
#: Most entries of an array that CuPy can write by an index array: its kernel counts them in int32, ``put`` does not.
INDEXED = 2**31 - 1
#: Bytes of a block of features outside the device, which takes long enough to copy at the full rate of the bus, and the
#: fewest rows that a product computes at once without losing speed.
BLOCK_BYTES, BLOCK_ROWS = 4 << 20, 1024
#: The fewest blocks of a matrix, and how many a device has room for: one is multiplied while the next is copied.
_BLOCKS, _ROOMS = 8, 2


def prepare_features(features: np.ndarray, *, as_sparse: bool, row_normalize: bool) -> Features:
    """Return ``features`` [rows, columns], as CSR if ``as_sparse``, and row-normalized if ``row_normalize``.

    Row normalization divides each row by the sum of its absolute values; a zero row stays.
    """
    x: Any = sparse.csr_array(features) if as_sparse else np.ascontiguousarray(features)
    if not row_normalize:
        return x
    sums = abs(x).sum(axis=1, dtype=np.float64)
    scale = np.divide(1, sums, out=np.zeros(len(sums)), where=sums > 0).astype(features.dtype)
    if sparse.issparse(x):
        return sparse.csr_array((x.data * np.repeat(scale, np.diff(x.indptr)), x.indices, x.indptr), shape=x.shape)
    return x * scale[:, None]


@dataclass(frozen=True)
class DeviceCsr:
    """Sparse features on a GPU, stored in both orientations, so that each product is row-wise.

    Attributes:
        shape: rows and columns.
        indptr, indices, values: CSR, int64, int32 and float32.
        node_ids: int64, the node id of each entry's row.
        transposed: indptr and indices of the transpose.
        order: int64, the position in ``values`` of each entry of the transpose.
        operators: the device's operators.
        xp: the device's array module.
    """

    shape: tuple[int, int]
    indptr: Array
    indices: Array
    values: Array
    node_ids: Array
    transposed: tuple[Array, Array]
    order: Array
    operators: Operators
    xp: Any

    def product(self, weight: Array) -> Array:
        """Return X W, float32 [rows, columns of weight]."""
        out = self.xp.empty((self.shape[0], weight.shape[1]), np.float32)
        self.operators.spmm_rows(self.indptr, self.indices, self.values, weight, out, False)
        return out

    def transposed_product(self, gradient: Array) -> Array:
        """Return X^T G, float32 [columns, columns of gradient]."""
        out = self.xp.empty((self.shape[1], gradient.shape[1]), np.float32)
        self.operators.spmm_rows(*self.transposed, self.values[self.order], gradient, out, False)
        return out

    def with_values(self, values: Array) -> DeviceCsr:
        """Return the same entries with other values."""
        return replace(self, values=values)

    def toarray(self) -> Array:
        """Return X as a dense array, float32 [rows, columns]."""
        places = self.xp.searchsorted(self.indptr[1:], self.xp.arange(len(self.values)), side="right")  # rows
        places *= self.shape[1]
        places += self.indices
        out = self.xp.zeros(self.shape, np.float32)
        flat = out.reshape(-1)
        if flat.size <= INDEXED:
            flat[places] = self.values
        else:
            flat.put(places, self.values, mode="wrap")
        return out


def dense_bytes(entries: int) -> int:
    """Return the bytes that ``DeviceCsr.toarray`` needs besides its result: int64 numbers and places of the entries."""
    return 2 * 8 * entries


class StreamedRows:
    """Dense features [rows, columns] in page-locked memory, of which a GPU's products read one block of rows at a time.

    Args:
        world: the PE's world.
        x: float32 features in host memory, which are copied.

    Attributes:
        shape: rows and columns.
        mask: what the device applies to each block, None: nothing.
    """

    def __init__(self, world: World, x: np.ndarray) -> None:
        self.shape, self.mask, self._world = x.shape, None, world
        self._memory = world.outside(max(x.nbytes, 1))
        np.copyto(self._memory.bytes[: x.nbytes].view(x.dtype).reshape(x.shape), x)
        self._rows = block_rows(*x.shape)
        self._rooms = [world.xp.empty((self._rows, x.shape[1]), x.dtype) for _ in range(_ROOMS)]

    def masked(self, mask: Any) -> StreamedRows:
        """Return the same features with another mask."""
        masked = copy(self)
        masked.mask = mask
        return masked

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Yield each block's rows and its values, unmasked, in memory that the block after the next overwrites."""
        firsts = range(0, self.shape[0], max(self._rows, 1))
        ahead = [self._brought(first) for first in firsts[:1]]
        for place in range(1, len(firsts) + 1):
            rows, copying, values = ahead.pop()
            # The copy waits for all work so far, so for the block that was in its place, but not for this one.
            ahead += [self._brought(first) for first in firsts[place : place + 1]]
            copying.wait()
            yield rows, values

    def _brought(self, first: int) -> tuple[slice, SideWork, Array]:
        """Start to copy the block that begins with row ``first``; return its rows, the copy, and its values."""
        room = self._rooms[first // self._rows % _ROOMS]
        rows = slice(first, min(first + self._rows, self.shape[0]))
        with self._world.side_stream() as copying:
            self._world.transfer(room, self._memory.bytes[rows.start * room.strides[0] : rows.stop * room.strides[0]])
        return rows, copying, room[: rows.stop - rows.start]

    def close(self) -> None:
        """Free the page-locked memory; no submitted work may be left."""
        self._memory.close()


def block_rows(rows: int, columns: int) -> int:
    """Return the rows of a block of ``StreamedRows``."""
    return min(-(-rows // _BLOCKS), max(BLOCK_ROWS, BLOCK_BYTES // max(np.dtype(np.float32).itemsize * columns, 1)))


def streamed_bytes(rows: int, columns: int) -> int:
    """Return the bytes that ``StreamedRows`` takes on the device."""
    return _ROOMS * np.dtype(np.float32).itemsize * block_rows(rows, columns) * columns


def on_device(world: World, x: Features, node_ids: np.ndarray) -> Features:
    """Move ``x`` of ``prepare_features`` to this PE's device: SciPy's CSR stays on CPUs, GPUs get a ``DeviceCsr``.

    Args:
        world: the PEs.
        x: the features of this PE's nodes.
        node_ids: int64 [rows], the ids of these nodes for dropout.
    """
    if not sparse.issparse(x):
        return world.upload(x)
    if world.xp is np:
        return x
    # Number the entries and transpose the numbers, to see where each entry goes.
    numbered = sparse.csr_array((np.arange(x.nnz), x.indices, x.indptr), shape=x.shape)
    transposed = sparse.csr_array(numbered.T)
    upload = world.upload
    return DeviceCsr(
        shape=x.shape,
        indptr=upload(x.indptr.astype(np.int64)),
        indices=upload(x.indices.astype(np.int32)),
        values=upload(x.data),
        node_ids=upload(np.repeat(node_ids, np.diff(x.indptr))),
        transposed=(upload(transposed.indptr.astype(np.int64)), upload(transposed.indices.astype(np.int32))),
        order=upload(transposed.data.astype(np.int64)),
        operators=world.operators,
        xp=world.xp,
    )
