"""The model of a training: every PE finds it by itself, and all of them the same."""

from __future__ import annotations

from mgg.backend.api import World, name_pes, together
from mgg.errors import InputError
from mgg.model import Model, find


def found_alike(world: World, model: str | Model) -> Model:
    """``model``, as this PE finds it (collective).

    Raises:
        InputError: as ``find``, on any PE; or PEs find files of the user's own that differ.
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
