"""The seam between whoever wants A B and the techniques that compute it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from mgg.backend import World
from mgg.backend.api import Array, SymmetricArray
from mgg.errors import MggError
from mgg.graph.csr import Csr
from mgg.layout import PeLayout, Product


class TechniqueOptions(BaseModel):
    """Options of a technique; each has a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Plan(ABC):
    """One technique, ready for one layout and direction.

    The plan alone synchronizes. ``plan.input(D)`` may be written as soon as ``plan(D)`` has returned, and ``plan(D)``
    sees what every PE wrote before it called it; callers never add barriers.

    Attributes:
        name: config value of the technique.
        deterministic: the same inputs and P give the same bits.
        single_pe: runs on one PE alone.
        one_process: on GPUs its PEs are threads of one process.
        host: the product's arrays as the layout has them; plans are worked out from these.
        product: the same arrays on the PE's device, for the operators; the map of transposed arcs stays behind.
    """

    name: ClassVar[str]
    deterministic: ClassVar[bool] = True
    single_pe: ClassVar[bool] = False
    one_process: ClassVar[bool] = False
    #: The technique reads other PEs' input rows, so it must wait until all are written.
    reads_inputs: ClassVar[bool] = True
    Options: ClassVar[type[TechniqueOptions]] = TechniqueOptions

    def __init__(self, world: World, layout: PeLayout, direction: str, max_dim: int, options: TechniqueOptions):
        self.world = world
        self.host = layout.product(direction)
        self.layout = layout
        self.max_dim = max_dim
        self.options = options
        self._check()
        self.product = uploaded_product(world, self.host)
        self._sums: Array | None = None
        # Every PE allocates as many rows as the largest one, because symmetric arrays have one size.
        self._max_rows = int(np.diff(layout.bounds).max())
        self._input = self._allocate_input(self._max_rows * max_dim)
        self._symmetric = [self._input]
        try:
            self._build()
        except MggError as error:
            # Freeing is collective: an error of one PE alone ends the job instead.
            if error.everywhere:
                self.close()
            raise

    def input(self, dim: int) -> Array:
        """This PE's rows of the symmetric input on its device, float32 [rows, dim]: write B here before the call.

        Raises:
            ValueError: ``dim`` is not in 1..max_dim.
        """
        return self._input_view(dim).local[: self.layout.rows]

    def __call__(self, dim: int, out: Array | None = None) -> Array:
        """Aggregate (collective).

        Args:
            dim: embedding columns, as in ``input``; the same on every PE.
            out: float32 [rows, dim] on the PE's device to write into; a new array without it.

        Returns:
            This PE's rows of A B (forward) or A^T B (transpose), float32 [rows, dim], on its device.
        """
        source = self._input_view(dim)
        if out is None:
            out = self.world.xp.empty((self.layout.rows, dim), np.float32)
        if self.reads_inputs:
            self.world.barrier()
        self._aggregate(source, out)
        self.world.barrier()
        return out

    def close(self) -> None:
        """Free the symmetric arrays (collective)."""
        while self._symmetric:
            self.world.free(self._symmetric.pop())

    def accumulator(self, dim: int) -> Array:
        """An uninitialized accumulator [rows, dim], the same memory every time."""
        if self._sums is None:
            self._sums = self.world.operators.accumulator(self.layout.rows, self.max_dim)
        return self._sums.reshape(-1)[: self.layout.rows * dim].reshape(self.layout.rows, dim)

    def _input_view(self, dim: int) -> SymmetricArray:
        if not 1 <= dim <= self.max_dim:
            raise ValueError(f"{dim} columns asked of a plan made for 1..{self.max_dim}")
        return self._input.view(self._max_rows, dim)

    def _allocate_input(self, elements: int) -> SymmetricArray:
        """The symmetric input of ``elements`` floats (collective); for techniques that keep it elsewhere."""
        return self.world.symmetric(elements)

    def _check(self) -> None:  # noqa: B027
        """Refuse what the technique cannot run, on every PE alike, before anything is allocated."""

    def _build(self) -> None:  # noqa: B027
        """Make what products need beside the input (collective); arrays in ``_symmetric`` are freed with the plan."""

    @abstractmethod
    def _aggregate(self, source: SymmetricArray, out: Array) -> None:
        """Compute ``out`` [rows, D] from the inputs of all PEs, ``source`` [max rows, D]; no barriers needed."""


def uploaded_csr(world: World, csr: Csr) -> Csr:
    """``csr`` with its arrays on the PE's device; arc types stay behind."""
    weights = None if csr.weights is None else world.upload(csr.weights)
    return Csr(world.upload(csr.indptr), world.upload(csr.indices), weights, csr.columns)


def uploaded_product(world: World, product: Product) -> Product:
    """``product`` with its arrays on the PE's device, but for the map of transposed arcs."""
    return replace(
        product,
        local=uploaded_csr(world, product.local),
        remote=uploaded_csr(world, product.remote),
        halo_ptr=world.upload(product.halo_ptr),
        halo_rows=world.upload(product.halo_rows),
        send_ptr=world.upload(product.send_ptr),
        send_rows=world.upload(product.send_rows),
        send_first=world.upload(product.send_first),
        arc_owner=None,
        arc_position=None,
    )
