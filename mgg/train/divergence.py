"""Find the layer whose output is too large or not finite, by one more pass, module by module."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgg.backend.api import World
from mgg.model import Chain, Features, Pass
from mgg.model.arrays import LARGEST

#: Entries copied to the host at a time.
PIECE = 2**22


def blamed(world: World, chain: Chain, x: Features, run: Pass) -> tuple[str, bool]:
    """Return the first layer whose output is not finite or beyond ``LARGEST``, else the largest (collective).

    Repeats the pass ``run`` of ``chain`` with the input ``x``. A layer is named after its parameters, with the module
    in it that has this output.

    Returns:
        Its name, such as ``layer layer1 (Linear)``, and whether its output is beyond ``LARGEST`` or not finite; both
        the same on every PE.
    """
    layer = _layer(chain)
    worst = -1.0, ""
    for module in chain.modules:
        layer = _layer(module) or layer
        before = x
        with np.errstate(over="ignore", invalid="ignore"):
            x = module.forward(x, run)
        if x is before and not module.parameters:  # dropout that changed nothing
            continue
        size = float(np.max(world.gather(largest(world, x))))
        name = f"layer {layer} ({type(module).__name__})"
        if not size <= LARGEST:
            return name, True
        worst = max(worst, (size, name), key=lambda each: each[0])
    return worst[1], False


def _layer(module: Any) -> str:
    """Return the prefix of the module's parameter names; empty without parameters."""
    return module.parameters[0].name.rpartition(".")[0] if module.parameters else ""


def largest(world: World, x: Features) -> float:
    """Return the largest absolute value of this PE's rows, nan if one is nan; 0 for what is no array.

    Works piece by piece, because the memory prediction has no room for a copy of ``x``.
    """
    if not hasattr(x, "strides"):
        return 0.0
    rows = max(1, PIECE // max(x.shape[1], 1))
    pieces = (world.download(x[first : first + rows]) for first in range(0, len(x), rows))
    return float(np.max([0.0, *(np.abs(piece).max(initial=0) for piece in pieces)]))
