"""The model of a training: every PE finds and builds it separately, and all must have the same one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mgg.backend.api import World, name_pes, together
from mgg.errors import InputError
from mgg.layout import PeLayout
from mgg.model import Array, Chain, Model, ModelSettings, build, find, settings_of
from mgg.model.features import SPARSE_BELOW
from mgg.model.program import programs_of
from mgg.vertex.cuda.execution import Execution


def found_alike(world: World, model: str | Model) -> Model:
    """Return ``model`` as this PE finds it (collective).

    Raises:
        InputError: as ``find``, on any PE; or PEs find different files for a user's own model.
    """
    mine = together(world, lambda: find(model))
    held = world.gather(mine.sha256)
    others = [pe for pe, theirs in enumerate(held) if theirs != held[0]]
    if others:
        raise InputError(
            f"model {mine.name}: {name_pes(others)} found another file than PE 0 (sha256 {held[others[0]][:12]} instead"
            f" of {held[0][:12]}): give the hosts of all PEs the same one"
        ).on_every_pe()
    return mine


def settings_for(model: Model, given: dict[str, Any] | None, epochs: int) -> ModelSettings:
    """Return the model's settings; raise InputError if ``epochs`` are fewer than its warm-up."""
    settings = settings_of(model, given)
    if settings.warmup > epochs:
        raise InputError(
            f"setting warmup: the step size grows for {settings.warmup} epochs, more than the {epochs} asked for, and"
            " would never be learning_rate: lower it, or ask for more epochs"
        )
    return settings


def built(model: Model, settings: ModelSettings, *sizes: int, fused: bool) -> Chain:
    """Build the modules of ``model``; its vertex programs fuse their passes over arcs if ``fused``.

    Raises:
        InputError: as ``mgg.model.build``; or ``fused`` is false, or the setting ``kernels`` is given, and the model
            has no vertex program.
    """
    chain = build(model, settings, *sizes)
    programs = programs_of(chain)
    if not fused and not programs:
        raise InputError(
            f"side unfused: model {model.name} has no vertex program, so there is nothing to run unfused: take"
            " side mgg, or write the model as a program (docs/guides/vertex.md)"
        )
    if settings.kernels and not programs:
        raise InputError(
            f"setting kernels={settings.kernels}: model {model.name} has no vertex program, for which kernels are"
            " generated: leave it out"
        )
    for layer in programs:
        if not fused:
            layer.unfuse()
        if settings.kernels:
            layer.how = Execution.parsed(settings.kernels)
    return chain


def decided(world: World, layout: PeLayout, settings: ModelSettings) -> tuple[int, bool, ModelSettings]:
    """Return this PE's number of nonzero features, whether to store features as CSR, and settings (collective).

    The setting ``row_normalize`` follows the storage if it is None.
    """
    if layout.features is None:
        return 0, False, settings
    values = int(np.count_nonzero(layout.features))
    counts = world.all_reduce(np.array([values, layout.features.size], np.int64))
    as_sparse = bool(counts[0] < SPARSE_BELOW * counts[1])
    if settings.row_normalize is None:
        settings = settings.model_copy(update={"row_normalize": as_sparse})
    return values, as_sparse, settings


def check_output(logits: Array, shape: tuple[int, int], model: str) -> None:
    """Raise InputError if the output does not have the shape that scores expect; the same on every PE."""
    if logits.shape != shape:
        raise InputError(
            f"model {model}: its output is {list(logits.shape)}, and not {list(shape)} [rows, classes or tasks]"
        ).on_every_pe()


def check_gradients(gradients: Mapping[str, Array], weights: Mapping[str, Array]) -> None:
    """Raise InputError if a gradient is missing or has another shape than its weight; the same on every PE."""
    for name, weight in weights.items():
        if name not in gradients:
            told = "backward has set no gradient of it (docs/guides/own-model.md)"
            raise InputError(f"parameter {name}: {told}").on_every_pe()
        if gradients[name].shape != weight.shape:
            found, wanted = list(gradients[name].shape), list(weight.shape)
            raise InputError(f"parameter {name}: it is {wanted}, and its gradient {found}").on_every_pe()


def check_settings(model: str, settings: ModelSettings) -> None:
    """Raise InputError for settings that would have no effect."""
    if settings.patience is not None and settings.selection == "last":
        raise InputError(
            "setting patience: needs a best epoch, and the last one counts: take selection=validation or"
            " selection=validation_loss, or leave it out"
        )
    if settings.optimizer == "adamw" and "weight_decay" not in type(settings).model_fields:
        raise InputError(f"setting optimizer: model {model} has no weight decay, so adamw is adam: set it to adam")
    if settings.optimizer == "adamw" and not getattr(settings, "weight_decay", 0.0):
        raise InputError("setting optimizer: weight_decay is 0, so adamw is adam: set it to adam, or weight_decay")
