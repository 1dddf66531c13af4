"""Which layer numbers that are too large, or none any more, come from: one more pass, module by module."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgg.backend.api import World
from mgg.model import Chain, Features, Pass
from mgg.model.arrays import LARGEST

#: Entries that are brought to the host at a time.
PIECE = 2**22


def blamed(world: World, chain: Chain, x: Features, run: Pass) -> tuple[str, bool]:
    """The first layer whose output is not finite or beyond ``LARGEST``; without one that of the largest (collective).

    A layer is called by its parameters; the module is the part of it whose output that is.

    Args:
        world: the PEs.
        chain: the model.
        x: its input.
        run: the pass to go through again.

    Returns:
        Its name, as in ``layer layer1 (Linear)``, and whether its output is beyond ``LARGEST``; the same on every PE.
    """
    layer = _layer(chain)
    worst = -1.0, ""
    for module in chain.modules:
        layer = _layer(module) or layer
        before = x
        with np.errstate(over="ignore", invalid="ignore"):
            x = module.forward(x, run)
        if x is before and not module.parameters:  # dropout that leaves all as it is makes nothing
            continue
        size = float(np.max(world.gather(largest(world, x))))
        name = f"layer {layer} ({type(module).__name__})"
        if not size <= LARGEST:
            return name, True
        worst = max(worst, (size, name), key=lambda each: each[0])
    return worst[1], False


def _layer(module: Any) -> str:
    """What the names of a module's parameters begin with; empty without any."""
    return module.parameters[0].name.rpartition(".")[0] if module.parameters else ""


def largest(world: World, x: Features) -> float:
    """The largest absolute value of this PE's rows, nan where one is; 0 for sparse features or none.

    Piece by piece: nobody has planned for a copy of it.
    """
    if x is None or hasattr(x, "toarray"):
        return 0.0
    rows = max(1, PIECE // max(x.shape[1], 1))
    pieces = (world.download(x[first : first + rows]) for first in range(0, len(x), rows))
    return float(np.max([0.0, *(np.abs(piece).max(initial=0) for piece in pieces)]))
