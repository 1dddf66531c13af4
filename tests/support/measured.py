from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mgg.aggregate.measure import Protocol, products
from mgg.backend import World
from mgg.layout import PeLayout
from mgg.record import AggregateRecord


def measure(
    world: World, layout: PeLayout, technique: str, *, dims: list[int], options: Mapping[str, Any], **protocol: Any
) -> list[AggregateRecord]:
    """A record of ``technique`` for each width of ``dims`` (collective); ``protocol`` are fields of Protocol."""
    return list(products(world, layout, technique, dims, options, Protocol(**protocol)))
