"""Check that the PEs of a job hold the parts of one layout, before a plan is made."""

from __future__ import annotations

from mgg.backend import World
from mgg.backend.api import name_pes
from mgg.errors import InputError
from mgg.layout import PeLayout


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
