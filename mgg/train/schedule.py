"""The gradient schedule of a training's vertex programs, as requested or as the cost model picks it."""

from __future__ import annotations

import logging

from mgg.aggregate.auto import split_of
from mgg.backend.api import World
from mgg.cost.machines import of_world
from mgg.layout import PeLayout
from mgg.model import Chain, ModelSettings
from mgg.model.halo.turned import Turning
from mgg.model.program.schedules import Name, asked, can_turn, picked, turn

_log = logging.getLogger(__name__)


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
