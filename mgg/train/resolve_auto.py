"""Resolve ``auto``, of techniques and of the schedule of programs' gradients, and check the options of techniques."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from mgg.aggregate import AUTO, Plan
from mgg.aggregate import technique as technique_of
from mgg.aggregate.auto import for_training, split_of
from mgg.aggregate.workgroups import WorkgroupOptions, makes_groups, members_of
from mgg.backend.api import World, together
from mgg.cost.machines import of_world
from mgg.errors import InputError
from mgg.layout import PeLayout
from mgg.model import Chain, Model, ModelSettings, build
from mgg.model.halo.turned import Turning
from mgg.model.module import Module
from mgg.model.program.schedules import Name, asked, can_turn, picked, turn

_log = logging.getLogger(__name__)


def resolved(
    world: World, layout: PeLayout, technique: str, options: dict[str, Any], model: str | Model,
    settings: ModelSettings, dtype: str = "fp32", kept: str | None = None,
) -> list[str]:  # fmt: skip
    """Return the candidate techniques, the cheapest at the model's widths first (collective).

    A named ``technique`` is the only candidate; for ``auto``, so is ``kept``, if given.

    Raises:
        InputError: ``auto`` is given options, or no technique can run.
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
    if chain.fetched:  # fetches each row once, in bulk: no technique moves fewer bytes for a halo
        return ["halo"]
    ranked = for_training(world, layout, widths(chain) or [1], dtype)
    if chain.weighed.columns:
        plans = {name: technique_of(name) for name in ranked}
        ranked = [name for name, plan in plans.items() if plan.reweighs(layout, plan.Options())]
    if not ranked:
        raise InputError(
            "technique auto: none that can run here takes weights of arcs: take attention=rows"
        ).on_every_pe()
    return ranked


def tell_who_sums(world: World, model: str, chain: Chain, technique: str, settings: ModelSettings) -> None:
    """Warn on rank 0 if the technique only fetches rows that the model sums, or if ``kernels`` is set on CPUs."""
    if settings.kernels and not world.gpu and world.rank == 0:
        _log.warning("setting kernels=%s: is for GPUs; on CPUs it changes nothing", settings.kernels)
    if world.rank or world.size == 1 or technique == "halo" or not chain.fetched:
        return
    instead = "; attention=product has it sum them" if "attention" in type(settings).model_fields else ""
    _log.warning(
        "model %s: technique %s brings rows of other PEs, which the model sums itself: its time is not that of the"
        " technique's products%s", model, technique, instead,
    )  # fmt: skip


def check_late(model: str, chain: Chain, options: Mapping[str, Any]) -> None:
    """Raise InputError for stale, packed or sampled rows if the model fetches rows; only products support these."""
    asked = {"stale": "late"} if options.get("stale") else {}
    asked |= {"wire": "packed"} if options.get("wire") else {}
    asked |= {"boundary": "left out"} if samples(options) else {}
    for option, what in asked.items() if chain.fetched else ():
        raise InputError(
            f"option {option}: model {model} fetches rows of other PEs for what it does arc by arc, which are never"
            f" {what}: leave it out"
        )


def tell_without_effect(
    world: World, layout: PeLayout, model: str, chain: Chain, technique: str, options: Mapping[str, Any],
    plan: Plan | None,
) -> None:  # fmt: skip
    """Warn on rank 0 of options without effect: no other workgroup, no remote rows, or no sums to send."""
    if world.rank:
        return
    taken = None if plan is None else plan.options
    groups = isinstance(taken, WorkgroupOptions) and makes_groups(layout.size, members_of(taken, layout))
    for option in ("stale", "wire"):
        if options.get(option) and not groups:
            _log.warning("technique %s: option %s changes nothing: all PEs are one workgroup", technique, option)
    if samples(options) and world.size == 1:
        _log.warning("technique %s: option boundary changes nothing: one PE has no rows of others", technique)
    if options.get("split", "rows") != "rows" and world.size > 1 and not chain.width:
        _log.warning(
            "technique %s: option split changes nothing: model %s fetches rows of other PEs, which it sums itself",
            technique, model,
        )  # fmt: skip


def samples(options: Mapping[str, Any]) -> bool:
    """Whether training passes use only a share of the other PEs' rows."""
    return bool(options.get("boundary", 1) != 1)


def widths(module: Module) -> list[int]:
    """Return the columns of every aggregation in ``module``, in the order of the forward pass."""
    inner = getattr(module, "modules", ())
    return [width for each in inner for width in widths(each)] if inner else module.products


def scheduled(
    world: World, layout: PeLayout, model: str, chain: Chain, settings: ModelSettings
) -> tuple[ModelSettings, Turning]:
    """Set the schedule of each layer of ``chain``; return settings with it in ``backward``, and what it fetches.

    Collective; the result is the same on every PE. Rank 0 logs what ``auto`` picked.

    Raises:
        InputError: no layer of the model supports the setting, or the number of layers differs.
    """
    layers, names = can_turn(chain), list[Name]()
    if settings.backward != "auto":
        names = asked(model, chain, settings.backward)
    elif not layers or world.size == 1:
        names = ["return"] * len(layers)
    else:
        ways: dict[Name, str] = {"return": "forward", "turned": "transpose"}
        splits = {name: split_of(world, layout, direction) for name, direction in ways.items()}
        names = picked(chain, splits, of_world(world))
        if world.rank == 0:
            said = ", ".join(f"{layer.name} {name}" for layer, name in zip(layers, names, strict=True))
            _log.warning("backward auto: picks %s", said)
    noted = ",".join(names) if len({*names}) > 1 else names[0] if names else "return"
    return settings.model_copy(update={"backward": noted}), turn(chain, names)
