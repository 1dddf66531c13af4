"""The graph for vertex programs: arcs, degrees, and other PEs' rows with as many columns as a program fetches."""

from __future__ import annotations

from typing import Any

from mgg.backend import World
from mgg.layout import PeLayout
from mgg.model.neighborhood import Neighborhood, halo_by


class Neighborhoods:
    """One PE's neighborhood per number type, prepared when a program first needs it.

    Args:
        world, layout: the PEs and this PE's part of the layout.
        technique, options: how other PEs' rows are fetched.
        dtype: type in which rows are sent: ``fp32`` (unchanged) or ``bf16``.
    """

    def __init__(self, world: World, layout: PeLayout, technique: str, options: dict[str, Any], dtype: str) -> None:
        self._world, self._layout = world, layout
        self._technique, self._options, self._dtype = technique, options, dtype
        self._made: dict[type, tuple[int, Neighborhood]] = {}

    def of(self, real: type, columns: int) -> Neighborhood:
        """Return the neighborhood that computes in ``real`` and fetches rows of up to ``columns`` (collective).

        Every PE must ask for the same. All widths share one object; a wider halo replaces the previous one.

        Args:
            real: float32 or float64.
            columns: 1 or more.

        Raises:
            InputError: float64 with another technique than ``halo`` in one workgroup.
        """
        width, found = self._made.get(real, (0, None))
        if found is not None and width >= columns:
            return found
        if found is None:
            found = Neighborhood.prepare(
                self._world, self._layout, self._technique, self._options, 0, columns, self._dtype, real
            )
        else:
            found.halo.close()
            found.halo = halo_by(
                self._world, self._layout, self._technique, self._options, columns, self._dtype, found.arrays, real
            )
        self._made[real] = columns, found
        return found

    def close(self) -> None:
        """Free the symmetric memory (collective)."""
        while self._made:
            self._made.popitem()[1][1].close()
