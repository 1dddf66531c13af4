"""A World without transfers, to time what a technique computes apart from what it sends (MGG arXiv, figure 2)."""

from __future__ import annotations

from typing import Any

from mgg.backend import World


class MutedWorld:
    """``world`` whose transfers of embeddings do nothing; everything else, barriers too, is as it was.

    Results are wrong and times are right: the same launches on arrays of the same shapes. What a technique fetches
    inside its own kernels, or through an object made before, still moves, and is counted.
    """

    def __init__(self, world: World):
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def get_rows(self, *_: Any) -> None:
        """Fetch nothing."""

    def put_rows(self, *_: Any, **__: Any) -> None:
        """Write nothing."""

    def broadcast(self, *_: Any, **__: Any) -> None:
        """Copy nothing."""

    def shift(self, *_: Any) -> None:
        """Send nothing."""
