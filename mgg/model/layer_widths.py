"""The layers of a model that have neighbors: their widths, and whether they reduce columns before they aggregate.

GNNAdvisor (OSDI'21), section 3.1, has two types: layers that project a node's columns before they aggregate (I, like
GCN), and layers that aggregate all columns first (II, like GIN).
"""

from __future__ import annotations

from typing import Any

from mgg.model.layers import Dropout, Linear
from mgg.model.module import Composite, Given, Module

_NOTHING = Given(0, 0, 0)


def layers_of(module: Module, columns: int) -> list[dict[str, Any]]:
    """Return a description of each module that aggregates, in the order of the forward pass.

    ``inputs`` are the columns at the start of the layer, including linear maps just before it; ``outputs`` are its own.
    ``aggregated`` has the columns of each product with A, or of the widest row that it fetches of a neighbor if it
    works arc by arc. ``type`` is I if all of these are fewer than the inputs, else II.

    Args:
        module: a model.
        columns: columns of its input.
    """
    return _Walk(columns).through(module, columns)


class _Walk:
    """Walks modules in order; ``begin`` has the columns at the start of the current layer."""

    def __init__(self, begin: int) -> None:
        self.begin = begin

    def through(self, module: Module, columns: int) -> list[dict[str, Any]]:
        """Return ``layers_of`` a module whose input has ``columns``."""
        if isinstance(module, Composite):
            found = []
            for each in module.modules:
                found += self.through(each, columns)
                columns = each.memory(columns, _NOTHING).columns
            return found
        outputs = module.memory(columns, _NOTHING).columns
        aggregated = list(module.products) or ([module.fetched] if module.fetched else [])
        if not aggregated:
            if not isinstance(module, Linear | Dropout):
                self.begin = outputs
            return []
        inputs, self.begin = self.begin, outputs
        first = module.parameters[0].name.partition(".")[0] if module.parameters else ""
        name = getattr(module, "name", "") or first or type(module).__name__.lower()
        kind = "I" if max(aggregated) < inputs else "II"
        return [{"layer": name, "inputs": inputs, "outputs": outputs, "aggregated": aggregated, "type": kind}]
