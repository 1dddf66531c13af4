"""The schedule of the gradients of a training's vertex programs, asked for or picked by the cost model."""

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
    """Settings whose ``backward`` says what each layer of ``chain`` does from here on, and what that fetches.

    Collective; the same on every PE, of which rank 0 says what ``auto`` picked.

    Raises:
        InputError: the model has no layers to which the setting would apply, or another number of them.
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
