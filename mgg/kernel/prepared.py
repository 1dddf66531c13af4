"""Launches of products that are kept ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

#: Products whose launches are kept ready: Python would take longer to work them out than a small product takes.
KEPT = 64

L = TypeVar("L")


class Prepared(Generic[L]):
    """What launches a product, by the addresses and widths that it holds; all is forgotten where it grows too much."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, ...], L] = {}

    def of(self, key: tuple[int, ...], make: Callable[[], L]) -> L:
        """What ``make`` made for ``key``, now or before."""
        found = self._kept.get(key)
        if found is None:
            found = make()
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[key] = found
        return found

    def clear(self) -> None:
        """Forget all: memory that they hold addresses of is no more."""
        self._kept.clear()
