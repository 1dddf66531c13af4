"""Rows of other PEs for models that work arc by arc: each row is fetched once, in bulk, and its gradient given back.

Both ways follow the scheme of technique ``halo``. Owners sum gradients in the order of the PEs, so the same inputs give
the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from mgg.backend.api import Array, SideWork, SymmetricArray, World
from mgg.kernel.bf16 import ELEMENTS
from mgg.layout import PeLayout, Product


class Halo(Protocol):
    """This PE's rows followed by its halo, the rows of other PEs at which its arcs begin, in the layout's order."""

    def fetch(self, x: Array) -> Array:
        """Return this PE's own rows followed by the halo's (collective).

        Args:
            x: [rows, D].

        Returns:
            [rows + halo, D], owned by the caller. If embeddings are bf16, all rows are rounded, so that the numbers do
            not depend on the number of PEs.
        """

    def start_return(self, gradient: Array) -> Any:
        """Start to return the halo's rows of ``gradient`` to their owners (collective).

        Only these rows must be complete: work on the first rows may follow. The PE calls no other method, and changes
        none of the halo's rows, before ``finish_return``; it may start further returns.

        Args:
            gradient: [rows + halo, D].
        """

    def finish_return(self, started: Any) -> Array:
        """Return the gradient by the argument of ``fetch``: the sum over all PEs' copies of each row (collective).

        Summands and sums have the type of the computation, float32 or float64; rounding counts as the identity.

        Args:
            started: result of ``start_return``; its gradient is changed.

        Returns:
            [rows, D].
        """

    def give_back(self, gradient: Array) -> Array:
        """Start and finish a return; ``gradient`` is changed."""
        return self.finish_return(self.start_return(gradient))

    def host(self, values: np.ndarray) -> np.ndarray:
        """Return ``fetch`` of a vector in host memory with one entry per row, of any type (collective)."""

    def close(self) -> None:
        """Free the symmetric array (collective)."""


class NoHalo(Halo):
    """The halo of a PE without remote arcs, such as a single PE: no rows."""

    def __init__(self, world: World | None = None, dtype: str = "fp32") -> None:
        """Initialize; ``world`` rounds for ``dtype`` bf16."""
        self._rounding = world if dtype == "bf16" else None

    def fetch(self, x: Array) -> Array:
        """Return ``x`` itself, or a rounded copy."""
        if self._rounding is None:
            return x
        bits = self._rounding.xp.empty(x.shape, np.uint16)
        self._rounding.operators.write(x, bits)
        return widened(self._rounding, bits)

    def start_return(self, gradient: Array) -> Array:
        """Return ``gradient`` itself."""
        return gradient

    def finish_return(self, started: Array) -> Array:
        """Return the gradient itself."""
        return started

    def host(self, values: np.ndarray) -> np.ndarray:
        """Return ``values`` themselves."""
        return values

    def close(self) -> None:
        """Do nothing."""


class _Returned(NamedTuple):
    """A return under way: the gradient, the rows that others return, and the transfer."""

    gradient: Array
    rows: Array
    work: SideWork


class FetchedHalo(Halo):
    """The halo of one PE of several."""

    def __init__(
        self, world: World, layout: PeLayout, width: int, dtype: str = "fp32", real: type = np.float32
    ) -> None:
        """Allocate for up to ``width`` columns of ``real``, fetched unchanged or as ``dtype`` bf16 (collective)."""
        self._real, self._element = real, real if dtype == "fp32" else ELEMENTS[dtype]
        self._world, self._product, self._rows = world, layout.forward, layout.rows
        product = self._product
        # One array serves both ways, so it has as many rows as the largest PE or halo.
        self._height = max(int(np.diff(layout.bounds).max()), *world.gather(product.halo))
        self._shared = world.symmetric(self._height * width * np.dtype(real).itemsize // 4)
        self._views: dict[tuple[int, type], SymmetricArray] = {}
        # Each PE starts with its right neighbor, so that no PE is everyone's first source.
        self._others = [(world.rank + step) % world.size for step in range(1, world.size)]
        self._wanted = {pe: world.upload(np.ascontiguousarray(product.halo_of(pe))) for pe in self._others}
        #: This PE's rows in the halo of each other PE, which has each of them once.
        self._lent = {pe: world.upload(product.sends_to(pe)) for pe in range(world.size) if pe != world.rank}

    def fetch(self, x: Array) -> Array:
        """See ``Halo``."""
        columns, product = x.shape[1], self._product
        view = self._view(columns, self._element)
        everything = self._world.xp.empty((self._rows + product.halo, columns), self._element)
        self._world.operators.write(x, everything[: self._rows])
        view.local[: self._rows] = everything[: self._rows]
        self._world.barrier()
        for pe in self._others:
            first, last = (self._rows + int(place) for place in product.halo_ptr[pe : pe + 2])
            self._world.get_rows(view, pe, self._wanted[pe], everything[first:last])
        self._world.barrier()
        return everything if self._element is self._real else widened(self._world, everything)

    def start_return(self, gradient: Array) -> _Returned:
        """See ``Halo``; the transfer runs beside later work."""
        columns, product = gradient.shape[1], self._product
        view = self._view(columns, self._real)
        # Allocated here, because the memory of a side stream would be used again before this stream has read it.
        rows = self._world.xp.empty((len(product.send_rows), columns), self._real)
        with self._world.side_stream() as work:
            self._world.operators.write(gradient[self._rows :], view.local[: product.halo])
            self._world.barrier()
            for pe in self._others:
                first = int(product.send_first[pe])
                there = range(first, first + len(self._lent[pe]))
                self._world.get_rows(view, pe, there, self._of(rows, pe))
            self._world.barrier()
        return _Returned(gradient, rows, work)

    def finish_return(self, started: _Returned) -> Array:
        """See ``Halo``."""
        started.work.wait()
        mine = started.gradient[: self._rows]
        for pe, places in self._lent.items():
            self._world.operators.add_rows(self._of(started.rows, pe), places, mine)
        return mine

    def _of(self, returned: Array, pe: int) -> Array:
        """Return the rows that PE ``pe`` returns."""
        first, last = (int(place) for place in self._product.send_ptr[pe : pe + 2])
        return returned[first:last]

    def host(self, values: np.ndarray) -> np.ndarray:
        """See ``Halo``."""
        return host_halo(self._world, self._product, values)

    def close(self) -> None:
        """Free the symmetric array (collective)."""
        self._views.clear()
        self._world.free(self._shared)

    def _view(self, columns: int, element: type) -> SymmetricArray:
        key = columns, element
        if key not in self._views:
            self._views[key] = self._shared.view(self._height, columns, element)
        return self._views[key]


def host_halo(world: World, product: Product, values: np.ndarray) -> np.ndarray:
    """Return ``values`` (one entry per row, in host memory) followed by those of ``product``'s halo (collective)."""
    received = world.exchange([values[product.sends_to(pe)] for pe in range(world.size)])
    return np.concatenate([values, *received])


def widened(world: World, bits: Array) -> Array:
    """Return the float32 numbers of bfloat16 ``bits``, uint16 of any shape."""
    values = world.xp.empty(bits.shape, np.float32)
    world.operators.widen_bf16(bits, values)
    return values
