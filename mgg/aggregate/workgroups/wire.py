"""Rows of a plan that cross between workgroups in fewer bits than embeddings have (``mgg.kernel.wire``)."""

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
#: Numbers are drawn by other seeds than those of dropout; ids of sums are beyond those of nodes, by PE.
_SEED, _SUMS = 0x77697265, 1 << 40


def bits_of(options: TechniqueOptions, dtype: str) -> int | None:
    """Bits in which embeddings of ``dtype`` cross; None: as they are.

    Raises:
        InputError: more than they have.
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
    """Bytes of ``rows`` as they cross, scales included; None: they cross as embeddings."""
    bits = bits_of(options, dtype)
    return None if bits is None else FLOAT * int(rows) * words(dim, bits)


def rounding_bound(
    layout: PeLayout, direction: str, halo: np.ndarray, members: int, bits: int, dtype: str
) -> np.ndarray:
    """By how much a product may differ as rows of other workgroups cross in fewer bits, float64 [rows, D].

    A value is off by less than a step of its group, for which ``step_bound`` gives a bound; so a product is off by at
    most sum_k |w_k| bound_k over its arcs to rows of other workgroups. Where sums of rows cross, the bound of a sum is
    at most the same sum over its arcs.

    Args:
        layout, direction: of the product.
        halo: float32 [halo, D], the rows of other PEs.
        members: PEs of a workgroup.
        bits: of a code.
        dtype: of the embeddings.
    """
    product, dim = layout.product(direction), halo.shape[1]
    values = halo.astype(np.float64)
    largest, spread = np.abs(values), np.zeros_like(values)
    for first in range(0, dim if bits != HALF else 0, GROUP):
        group = slice(first, first + GROUP)
        spread[:, group] = np.ptp(values[:, group], axis=1, keepdims=True)
        largest[:, group] = largest[:, group].max(axis=1, keepdims=True)
    # Embeddings of bfloat16 are the rounded ones.
    spread += largest * 2.0**-7 if dtype == "bf16" else 0
    bound = step_bound(spread, largest, bits)
    owners = np.repeat(np.arange(layout.size), np.diff(product.halo_ptr))
    bound[owners // members == layout.rank // members] = 0
    return np.asarray(abs(product.remote.to_scipy(np.float64)) @ bound)


@dataclass(frozen=True)
class Packed:
    """How packed rows lie in memory: one after the other. As ``Embeddings``."""

    bits: int

    def floats(self, rows: int, dim: int) -> int:
        """Floats that take as much memory as ``rows`` of ``dim`` columns."""
        return rows * words(dim, self.bits)

    def matrix(self, array: SymmetricArray, rows: int, dim: int) -> SymmetricArray:
        """The beginning of ``array`` as uint32 [rows, words]; see ``Form``."""
        return array.view(rows, words(dim, self.bits), np.uint32)


class Wire:
    """What one plan packs and unpacks, and the random numbers that it rounds by.

    They depend on the seed, the epoch, which product of its training pass it is, what the graph's source calls the row,
    and the column. All products outside of trainings, evaluations among them, have those of epoch 0.

    Args:
        world: the PEs.
        layout: what this PE holds.
        direction: of the plan.
        bits: of a code.
        sums: that this PE makes behind its rows.
    """

    def __init__(self, world: World, layout: PeLayout, direction: str, bits: int, sums: int) -> None:
        self._world, self._bits, self._turned = world, bits, direction != "forward"
        self._ids = np.concatenate([layout.source_ids, np.arange(sums) + (layout.rank + 1) * _SUMS])
        self._seed, self._epoch, self._number = 0, world.upload(np.zeros(1)), 0
        self._none, self._training = self._epoch, False
        self.form = Packed(bits)

    def begin(self, seed: int, epoch: Array | None) -> None:
        """A pass begins: of a training in ``epoch``, float64 [1] on the device, or of none."""
        self._seed, self._training, self._number = seed, epoch is not None, 0
        self._epoch = self._none if epoch is None else epoch

    def outbox(self, lists: Mapping[int, np.ndarray], memory: SymmetricArray) -> Outbox:
        """See ``Outbox``; what it sends is packed."""
        return _PackedOutbox(self._world, lists, memory, self)

    def ids(self, rows: np.ndarray) -> Array:
        """What numbers of ``rows`` are drawn by, on the device."""
        return self._world.upload(self._ids[rows])

    def pack(self, source: Array, rows: Array, ids: Array, out: Array) -> None:
        """Pack ``source[rows]`` for the next product of the pass."""
        draws = Draws(self._seed ^ _SEED, self._epoch, (2 * self._number + self._turned) % STREAMS)
        self._number += self._training
        if len(rows):
            self._world.operators.pack_rows(source, rows, ids, draws, self._bits, out)

    def unpack(self, packed: Array, out: Array) -> None:
        """Write what ``packed`` stands for into ``out``, as many rows as that has."""
        self._world.operators.unpack_rows(packed[: len(out)], self._bits, out)


class _PackedOutbox(Outbox):
    def __init__(self, world: World, lists: Mapping[int, np.ndarray], memory: SymmetricArray, wire: Wire) -> None:
        super().__init__(world, lists, memory, wire.form)
        self._wire, self._ids = wire, wire.ids(np.concatenate([*lists.values()]))

    def pack(self, world: World, source: Array) -> None:
        self._wire.pack(source, self._rows, self._ids, self._packed(source.shape[1]))
