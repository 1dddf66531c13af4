"""Find the model of a training; every PE finds it separately, and all must find the same one."""

from __future__ import annotations

from typing import Any

from mgg.backend.api import World, name_pes, together
from mgg.errors import InputError
from mgg.model import Model, ModelSettings, find, settings_of


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
