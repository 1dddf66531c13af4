"""Distributed SpMM: one module per technique, one interface (``plan.Plan``) and one registry.

To add a technique, add its module to ``techniques/``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from mgg.aggregate import memory
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.plan import Plan
from mgg.aggregate.workgroups import resolved_workgroup
from mgg.backend import World
from mgg.backend.api import name_pes
from mgg.errors import InputError
from mgg.layout import PeLayout
from mgg.registry import Registry, lacking
from mgg.schema import parsed

__all__ = [
    "AUTO",
    "TECHNIQUES",
    "Plan",
    "TechniqueOptions",
    "accepted",
    "all_techniques",
    "check_layouts",
    "parse_options",
    "prepare",
    "technique",
]

#: The config value that stands for a technique (auto.py).
AUTO = "auto"


def _techniques_of(module: ModuleType) -> dict[str, type[Plan]]:
    """Return the techniques that a module defines; raise InputError for an incomplete one."""
    classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Plan)]
    found = {}
    for plan in (each for each in classes if "name" in vars(each) and each.__module__ == module.__name__):
        if inspect.isabstract(plan):
            raise lacking(plan, f"technique {plan.name!r} lacks {', '.join(sorted(plan.__abstractmethods__))}")
        if not (isinstance(plan.Options, type) and issubclass(plan.Options, TechniqueOptions)):
            raise lacking(plan, f"technique {plan.name!r}: Options is no subclass of TechniqueOptions")
        found[plan.name] = plan
    return found


#: All subclasses of ``Plan`` that set ``name``.
TECHNIQUES: Registry[type[Plan]] = Registry(
    "mgg.aggregate.techniques", "technique", "subclass of Plan with a name", _techniques_of
)


def all_techniques() -> dict[str, type[Plan]]:
    """Return every technique of this package by its config value."""
    return TECHNIQUES.all()


def technique(name: str) -> type[Plan]:
    """Return the technique called ``name``; raise InputError with similar names, or with what its file lacks."""
    if name == AUTO:
        raise InputError(
            f"technique {AUTO!r}: picks one of the others in mgg aggregate and mgg train; mgg predict marks its pick by"
            " itself, where it is among the techniques named: leave it out"
        )
    return TECHNIQUES.find(name)


def parse_options(name: str, values: Mapping[str, Any]) -> TechniqueOptions:
    """Validate the options of technique ``name``; raise InputError with the option and its allowed values."""
    options = technique(name).Options
    return parsed(options, dict(values), f"technique {name}: option ")


def check_layouts(world: World, layout: PeLayout) -> None:
    """Compare the layouts of all PEs (collective).

    Raises:
        InputError: PEs hold parts of different layouts, a layout for another number of PEs, or another PE's part.
    """
    manifest = layout.manifest
    facts = f"{manifest.name} (graph {manifest.graph_hash[:12]}, {manifest.pes} PEs, {manifest.scheme})"
    held = world.gather((manifest.digest(), facts, layout.rank))
    others = [pe for pe, (theirs, _, _) in enumerate(held) if theirs != held[0][0]]
    if others:
        raise InputError(
            f"{name_pes(others)} got another layout than PE 0: {held[others[0]][1]} instead of {held[0][1]}: give every"
            " PE the same LAYOUT"
        ).on_every_pe()
    if manifest.pes != world.size:
        raise InputError(f"the layout is for {manifest.pes} PEs and the job has {world.size}").on_every_pe()
    strays = [pe for pe, (_, _, part) in enumerate(held) if part != pe]
    if strays:
        raise InputError(f"{name_pes(strays)} got the part of PE {held[strays[0]][2]}").on_every_pe()


def accepted(
    name: str, world: World, layout: PeLayout, options: Mapping[str, Any] | None = None, dtype: str = "fp32"
) -> TechniqueOptions:
    """Return validated options of technique ``name`` for these PEs (collective); raise InputError as ``prepare``."""
    check_layouts(world, layout)
    if technique(name).single_pe and world.size > 1:
        raise InputError(f"technique {name}: runs on one PE, the job has {world.size}").on_every_pe()
    if dtype not in technique(name).dtypes:
        able = ", ".join(other for other, plan in all_techniques().items() if dtype in plan.dtypes)
        if not able:
            types = ", ".join(sorted({each for plan in all_techniques().values() for each in plan.dtypes}))
            raise InputError(f"unknown type of embeddings {dtype!r}; known: {types}").on_every_pe()
        raise InputError(f"technique {name}: takes no {dtype} embeddings; those that do: {able}").on_every_pe()
    parsed = resolved_workgroup(world, parse_options(name, options or {}))
    technique(name).check(world, layout, parsed)
    return parsed


def prepare(
    name: str, world: World, layout: PeLayout, direction: str, max_dim: int,
    options: Mapping[str, Any] | None = None, dtype: str = "fp32",
) -> Plan:  # fmt: skip
    """Prepare a plan (collective).

    Args:
        direction: ``forward`` for A B, ``transpose`` for A^T B.
        max_dim: the largest number of embedding columns that the plan will compute.

    Raises:
        InputError: the technique or an option is unknown, the technique does not support the dtype or several PEs,
            or the PEs have different layouts.
        MachineError: a GPU has too little free memory.
    """
    parsed = accepted(name, world, layout, options, dtype)
    parsed = technique(name).resolved(world, layout, direction, max_dim, parsed, dtype)
    memory.check(world, technique(name), layout, direction, max_dim, parsed, dtype)
    return technique(name)(world, layout, direction, max_dim, parsed, dtype)
