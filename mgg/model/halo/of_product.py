"""Rows of other PEs by any technique, for models that work arc by arc: the rows are a product of the technique.

A technique computes A B for any A that is distributed by rows. If A selects this PE's halo, the product is the halo.
The product with the transpose gives each row's owner the sum over all PEs' copies. So rows are transferred as the
technique transfers them, whatever the model does with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgg.aggregate import TechniqueOptions, prepare
from mgg.aggregate.neighbor_partitions.settings import untuned
from mgg.aggregate.workgroups import members_of
from mgg.backend.api import Array, World
from mgg.layout import PeLayout
from mgg.layout.halo_matrix import returning, selection
from mgg.model.arrays import Arrays
from mgg.model.halo import Halo, host_halo, widened


def takes_product(technique: str, options: TechniqueOptions, layout: PeLayout) -> bool:
    """Return whether the halo is a product: always, except with technique halo in one workgroup."""
    return technique != "halo" or members_of(options, layout) < layout.size


class ProductHalo(Halo):
    """The halo of one PE of several, at least one of which has halo rows; see ``Halo``."""

    def __init__(
        self, world: World, layout: PeLayout, technique: str, options: dict[str, Any], width: int, dtype: str,
        arrays: Arrays, *, returns: bool = True,
    ) -> None:  # fmt: skip
        """Prepare both products for up to ``width`` columns, fetched as ``dtype`` (collective).

        Without ``returns``, gradients cannot be returned.

        Raises:
            InputError: ``aggregate.prepare`` refuses the arguments.
            MachineError: a GPU has too little memory left.
        """
        self._world, self._arrays = world, arrays
        self._product, self._rows = layout.forward, layout.rows
        self._rounded = dtype == "bf16"
        self._return: Any = None
        options = untuned(options)
        self._bring = prepare(technique, world, selection(layout), "forward", width, options, dtype)
        self.plans = [self._bring]
        if returns:
            back = returning(layout, world.gather(layout.forward.send_ptr))
            self._return = prepare(technique, world, back, "forward", width, options)
            self.plans.append(self._return)

    def fetch(self, x: Array) -> Array:
        """See ``Halo``."""
        columns, rows = x.shape[1], self._rows
        everything = self._world.xp.empty((rows + self._product.halo, columns), np.float32)
        self._bring.write(columns, x)
        # If embeddings are bf16, other PEs get rounded rows, so this PE's own are rounded as well.
        everything[:rows] = widened(self._world, self._bring.input(columns)) if self._rounded else x
        self._bring(columns, everything[rows:])
        return everything

    def start_return(self, gradient: Array) -> Array:
        """Return ``gradient`` itself: the technique transfers and sums at once."""
        return gradient

    def finish_return(self, started: Array) -> Array:
        """See ``Halo``."""
        gradient, columns = started, started.shape[1]
        self._return.write(columns, gradient[self._rows :])
        return self._arrays.combined(gradient[: self._rows], 1, self._return(columns), 1)

    def host(self, values: np.ndarray) -> np.ndarray:
        """See ``Halo``."""
        return host_halo(self._world, self._product, values)

    def close(self) -> None:
        """Free the symmetric arrays (collective)."""
        self._bring.close()
        if self._return is not None:
            self._return.close()
