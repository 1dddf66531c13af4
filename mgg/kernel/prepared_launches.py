"""A cache of prepared launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

#: Number of products whose launches are kept: preparing them in Python takes longer than a small product runs.
KEPT = 64

L = TypeVar("L")


class Prepared(Generic[L]):
    """Launches of products by the addresses and widths that they contain; all are dropped when the cache is full."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, ...], L] = {}

    def of(self, key: tuple[int, ...], make: Callable[[], L]) -> L:
        """Return what ``make`` made for ``key``, now or earlier."""
        found = self._kept.get(key)
        if found is None:
            found = make()
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[key] = found
        return found

    def clear(self) -> None:
        """Drop all launches, because memory at addresses that they contain was freed."""
        self._kept.clear()
