"""Distributed SpMM: one module per technique behind one interface (``plan.Plan``) and one registry.

A technique is added by adding its module to this package.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any

from mgg.aggregate import memory
from mgg.aggregate.agreement import check_layouts
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.plan import Plan
from mgg.backend import World
from mgg.errors import InputError
from mgg.layout import PeLayout
from mgg.schema import nearest, parsed

__all__ = ["Plan", "TechniqueOptions", "accepted", "parse_options", "prepare", "technique", "techniques"]


@cache
def techniques() -> dict[str, type[Plan]]:
    """Every technique of this package by its config value."""
    found: dict[str, type[Plan]] = {}
    for module in pkgutil.iter_modules(__path__):
        loaded = importlib.import_module(f"{__name__}.{module.name}")
        for value in vars(loaded).values():
            if isinstance(value, type) and issubclass(value, Plan) and "name" in vars(value):
                found[value.name] = value
    return dict(sorted(found.items()))


def technique(name: str) -> type[Plan]:
    """The technique called ``name``; raises InputError with the nearest names."""
    if name not in techniques():
        raise InputError(f"technique {name!r}: unknown; {nearest(name, techniques())}")
    return techniques()[name]


def parse_options(name: str, values: Mapping[str, Any]) -> TechniqueOptions:
    """Check the options of technique ``name``; raises InputError that names the option and what is allowed."""
    options = technique(name).Options
    return parsed(options, dict(values), f"technique {name}: option ")


def accepted(
    name: str, world: World, layout: PeLayout, options: Mapping[str, Any] | None = None, dtype: str = "fp32"
) -> TechniqueOptions:
    """The options of technique ``name``, which can run on these PEs (collective); raises InputError as ``prepare``."""
    check_layouts(world, layout)
    if technique(name).single_pe and world.size > 1:
        raise InputError(f"technique {name}: runs on one PE, the job has {world.size}").on_every_pe()
    if dtype not in technique(name).dtypes:
        able = ", ".join(other for other, plan in techniques().items() if dtype in plan.dtypes)
        raise InputError(f"technique {name}: takes no {dtype} embeddings; those that do: {able}").on_every_pe()
    parsed = parse_options(name, options or {})
    technique(name).check(world, layout, parsed)
    return parsed


def prepare(
    name: str, world: World, layout: PeLayout, direction: str, max_dim: int,
    options: Mapping[str, Any] | None = None, dtype: str = "fp32",
) -> Plan:  # fmt: skip
    """Make a plan (collective).

    Args:
        name: the technique.
        world: the PEs; as many as the layout has.
        layout: what this PE holds.
        direction: ``forward`` for A B, ``transpose`` for A^T B.
        max_dim: the most embedding columns the plan will be asked for.
        options: the technique's options.
        dtype: type of the embeddings, ``fp32`` or ``bf16``.

    Raises:
        InputError: unknown technique or option, a type that the technique does not take, a technique for one PE on
            several, or PEs with different layouts.
        MachineError: a GPU has too little memory left.
    """
    parsed = accepted(name, world, layout, options, dtype)
    memory.check(world, technique(name), layout, direction, max_dim, parsed, dtype)
    return technique(name)(world, layout, direction, max_dim, parsed, dtype)
