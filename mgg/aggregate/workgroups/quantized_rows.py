"""Rows quantized to fewer bits than the embeddings have, where they cross between workgroups (``mgg.kernel.wire``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mgg.aggregate.memory_model import FLOAT
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.workgroups.outbox import Outbox
from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
from mgg.errors import InputError
from mgg.kernel.random import STREAMS, Draws
from mgg.kernel.wire import GROUP, HALF, step_bound, words
from mgg.layout import PeLayout

WireType = Literal["fp32", "bf16", "int8", "int4", "int2"]
_BITS = {"bf16": HALF, "int8": 8, "int4": 4, "int2": 2}
#: Random numbers use other seeds than dropout's. Ids of sums lie beyond all node ids, in a range per PE.
_SEED, _SUMS = 0x77697265, 1 << 40


def bits_of(options: TechniqueOptions, dtype: str) -> int | None:
    """Return the bits per value when embeddings of ``dtype`` cross; None: they cross unpacked.

    Raises:
        InputError: the option asks for more bits than the embeddings have.
    """
    wire = getattr(options, "wire", None)
    if wire in (None, dtype):
        return None
    if wire not in _BITS:
        raise InputError(
            f"technique halo: option wire: {wire} is wider than embeddings, which are {dtype}: leave it out"
        ).on_every_pe()
    return _BITS[wire]


def crossing_bytes(options: TechniqueOptions, dtype: str, rows: int, dim: int) -> int | None:
    """Return the bytes of ``rows`` as they cross, including scales; None: they cross as embeddings."""
    bits = bits_of(options, dtype)
    return None if bits is None else FLOAT * int(rows) * words(dim, bits)


def rounding_bound(
    layout: PeLayout, direction: str, halo: np.ndarray, members: int, bits: int, dtype: str
) -> np.ndarray:
    """Bound the error of a product whose rows of other workgroups cross with fewer bits, float64 [rows, D].

    Each value is off by less than one step of its group, which ``step_bound`` bounds. So a product is off by at most
    sum_k |w_k| bound_k over its arcs to rows of other workgroups. If sums of rows cross, the bound of a sum is at most
    the same expression over its arcs.

    Args:
        layout, direction: select the product.
        halo: float32 [halo, D], the rows of other PEs.
    """
    product, dim = layout.product(direction), halo.shape[1]
    values = halo.astype(np.float64)
    largest, spread = np.abs(values), np.zeros_like(values)
    for first in range(0, dim if bits != HALF else 0, GROUP):
        group = slice(first, first + GROUP)
        spread[:, group] = np.ptp(values[:, group], axis=1, keepdims=True)
        largest[:, group] = largest[:, group].max(axis=1, keepdims=True)
    # With bfloat16 embeddings, the packed values are already rounded.
    spread += largest * 2.0**-7 if dtype == "bf16" else 0
    bound = step_bound(spread, largest, bits)
    owners = np.repeat(np.arange(layout.size), np.diff(product.halo_ptr))
    bound[owners // members == layout.rank // members] = 0
    return np.asarray(abs(product.remote.to_scipy(np.float64)) @ bound)


@dataclass(frozen=True)
class PackedRows:
    """Memory layout of packed rows, one after the other; a ``Form``."""

    bits: int

    def floats(self, rows: int, dim: int) -> int:
        """Return how many floats take as much memory as ``rows`` of ``dim`` columns."""
        return rows * words(dim, self.bits)

    def matrix(self, array: SymmetricArray, rows: int, dim: int) -> SymmetricArray:
        """Return the beginning of ``array`` as uint32 [rows, words]; see ``Form``."""
        return array.view(rows, words(dim, self.bits), np.uint32)


class Wire:
    """Packs and unpacks the rows of one plan, with random numbers for the rounding.

    The random numbers depend on the seed, the epoch, the position of the product in its training pass, the row's id in
    the graph's source, and the column. All products outside of training, including evaluations, use those of epoch 0.

    Args:
        sums: number of sums that this PE stores behind its rows.
    """

    def __init__(self, world: World, layout: PeLayout, direction: str, bits: int, sums: int) -> None:
        self._world, self._bits, self._turned = world, bits, direction != "forward"
        self._ids = np.concatenate([layout.source_ids, np.arange(sums) + (layout.rank + 1) * _SUMS])
        self._seed, self._epoch, self._number = 0, world.upload(np.zeros(1)), 0
        self._none, self._training = self._epoch, False
        self.form = PackedRows(bits)

    def begin(self, seed: int, epoch: Array | None) -> None:
        """Start a pass: of training ``epoch``, float64 [1] on the device, or outside of training."""
        self._seed, self._training, self._number = seed, epoch is not None, 0
        self._epoch = self._none if epoch is None else epoch

    def outbox(self, lists: Mapping[int, np.ndarray], memory: SymmetricArray) -> Outbox:
        """Return an ``Outbox`` that sends packed rows."""
        return _PackedOutbox(self._world, lists, memory, self)

    def ids(self, rows: np.ndarray) -> Array:
        """Return, on the device, the ids that select the random numbers of ``rows``."""
        return self._world.upload(self._ids[rows])

    def pack(self, source: Array, rows: Array, ids: Array, out: Array) -> None:
        """Pack ``source[rows]`` for the next product of the pass."""
        draws = Draws(self._seed ^ _SEED, self._epoch, (2 * self._number + self._turned) % STREAMS)
        self._number += self._training
        if len(rows):
            self._world.operators.pack_rows(source, rows, ids, draws, self._bits, out)

    def unpack(self, packed: Array, out: Array) -> None:
        """Unpack as many rows of ``packed`` as ``out`` has into ``out``."""
        self._world.operators.unpack_rows(packed[: len(out)], self._bits, out)


class _PackedOutbox(Outbox):
    def __init__(self, world: World, lists: Mapping[int, np.ndarray], memory: SymmetricArray, wire: Wire) -> None:
        super().__init__(world, lists, memory, wire.form)
        self._wire, self._ids = wire, wire.ids(np.concatenate([*lists.values()]))

    def pack(self, world: World, source: Array) -> None:
        self._wire.pack(source, self._rows, self._ids, self._packed(source.shape[1]))
