"""The techniques that a run may aggregate with, where the user leaves that to the cost model."""

from __future__ import annotations

from typing import Any

from mgg.aggregate import AUTO
from mgg.aggregate.auto import for_training
from mgg.backend.api import World, together
from mgg.errors import InputError
from mgg.layout import PeLayout
from mgg.model import Model, ModelSettings, build
from mgg.model.module import Module


def resolved(
    world: World, layout: PeLayout, technique: str, options: dict[str, Any], model: str | Model,
    settings: ModelSettings, dtype: str = "fp32", kept: str | None = None,
) -> list[str]:  # fmt: skip
    """``technique`` alone; for ``auto`` ``kept``, else all that can run, the cheapest at the model's widths first.

    Collective.

    Raises:
        InputError: options of ``auto``, or no technique can run.
    """
    if technique != AUTO:
        return [technique]
    if options:
        raise InputError(f"technique auto: takes no options, found {', '.join(options)}").on_every_pe()
    if kept is not None:
        return [kept]
    facts = layout.manifest
    sizes = facts.features, facts.classes or facts.tasks, facts.nodes, facts.relations
    chain = together(world, lambda: build(model, settings, *sizes))
    if chain.fetched:  # each row once, in bulk: no technique brings halos with fewer bytes
        return ["halo"]
    return for_training(world, layout, widths(chain) or [1], dtype)


def widths(module: Module) -> list[int]:
    """The columns of every aggregation in ``module``, in the order of the forward pass."""
    inner = getattr(module, "modules", ())
    return [width for each in inner for width in widths(each)] if inner else module.products
