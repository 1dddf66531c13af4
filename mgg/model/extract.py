"""The layers of a model that look at neighbors: their widths, and whether they reduce columns before they do.

GNNAdvisor (OSDI'21), section 3.1, has two types: those that project a node's columns before they aggregate (I, as GCN),
and those that aggregate all columns first (II, as GIN).
"""

from __future__ import annotations

from typing import Any

from mgg.model.layers import Dropout, Linear
from mgg.model.module import Composite, Given, Module

_NOTHING = Given(0, 0, 0)


def layers_of(module: Module, columns: int) -> list[dict[str, Any]]:
    """Each module that aggregates, in the order of the forward pass.

    ``inputs`` are the columns that its layer begins with, linear maps just before it included, ``outputs`` its own;
    ``aggregated`` the columns of what neighbors give, one entry a product with A, or the widest row that it fetches of
    a neighbor where it goes arc by arc; ``type`` is I where all of them are fewer than the inputs, else II.

    Args:
        module: a model.
        columns: of its input.
    """
    return _Walk(columns).through(module, columns)


class _Walk:
    """Modules in order; ``begin`` are the columns that the layer at hand begins with."""

    def __init__(self, begin: int) -> None:
        self.begin = begin

    def through(self, module: Module, columns: int) -> list[dict[str, Any]]:
        """What ``layers_of`` finds in a module whose input has ``columns``."""
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
