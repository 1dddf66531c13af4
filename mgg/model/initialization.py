"""Initial values of the weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgg.model.module import Array, Parameter


def initial_weights(parameters: Sequence[Parameter], seed: int) -> dict[str, Array]:
    """Return float32 weights by name; the same on every PE, for any number of PEs.

    "glorot" draws from U(-a, a) with a = sqrt(6 / (inputs + outputs)) (Glorot and Bengio 2010, equation 16), where
    inputs and outputs are the last two lengths. Each parameter has its own stream, by its place in the model.
    """
    return {parameter.name: _values(parameter, [seed, place]) for place, parameter in enumerate(parameters)}


def _values(parameter: Parameter, seed: list[int]) -> Array:
    if parameter.init == "glorot":
        limit = np.sqrt(6 / sum(parameter.shape[-2:]))
        return np.random.default_rng(seed).uniform(-limit, limit, parameter.shape).astype(np.float32)
    return np.full(parameter.shape, 1 if parameter.init == "ones" else 0, np.float32)
