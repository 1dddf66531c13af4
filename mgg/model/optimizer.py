"""Adam (Kingma and Ba, ICLR 2015, algorithm 1) with an L2 penalty for each parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mgg.model.module import Array, Parameter

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Adam:
    """Weights change in place; ``first`` and ``second`` are the moments, of the weights' dtype, by name.

    A parameter's ``decay`` times its value is added to its gradient: the gradient of an L2 penalty decay / 2 * |w|^2,
    which is what the GCN paper means by weight decay (not AdamW's decoupled one).
    """

    def __init__(self, parameters: Sequence[Parameter], weights: Mapping[str, Array], learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.decay = {parameter.name: parameter.decay for parameter in parameters}
        self.first = {name: np.zeros_like(value) for name, value in weights.items()}
        self.second = {name: np.zeros_like(value) for name, value in weights.items()}

    def step(self, weights: Mapping[str, Array], gradients: Mapping[str, Array], number: int) -> None:
        """Apply the ``number``-th step (from 1): every PE calls it with the same gradients and gets the same bits."""
        for name, weight in weights.items():
            gradient = gradients[name].astype(weight.dtype)
            if self.decay[name]:
                gradient += self.decay[name] * weight
            first, second = self.first[name], self.second[name]
            first += (1 - BETA1) * (gradient - first)
            second += (1 - BETA2) * (gradient * gradient - second)
            rate = self.learning_rate / (1 - BETA1**number)
            weight[...] -= rate * first / (np.sqrt(second / (1 - BETA2**number)) + EPSILON)
