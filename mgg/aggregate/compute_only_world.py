"""A World without transfers, to time a technique's computation separately (MGG arXiv, figure 2)."""

from __future__ import annotations

from typing import Any

from mgg.backend import World


class MutedWorld:
    """``world`` with transfers of embeddings that do nothing; everything else, including barriers, works as before.

    Results are wrong but times are right: the launches are the same, on arrays of the same shapes. Fetches inside a
    technique's kernels, or through an object made earlier, still move data and are counted.
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
