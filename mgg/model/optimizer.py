"""Adam (Kingma and Ba, ICLR 2015, algorithm 1) and AdamW (Loshchilov and Hutter, ICLR 2019, algorithm 2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgg.model.arrays import Arrays
from mgg.model.module import Array, Parameter
from mgg.model.named_views import NamedViews

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
#: Entries of ``Adam.rates``.
RATES = 6


class Adam:
    """Adam on ``weights``, in place; ``first`` and ``second`` are the moments, with names, dtype and device of these.

    The gradient of an L2 penalty decay / 2 * |w|^2, a parameter's ``decay`` times its value, is added to its gradient;
    this is what the GCN paper means by weight decay. With ``decoupled`` (AdamW), the value shrinks by step size times
    ``decay`` instead, which does not enter the moments.
    """

    def __init__(
        self, arrays: Arrays, parameters: Sequence[Parameter], weights: NamedViews, *, decoupled: bool = False
    ) -> None:
        self._arrays, self._weights, self._decoupled = arrays, weights, decoupled
        dtype = weights.flat.dtype
        decays = {parameter.name: parameter.decay for parameter in parameters}
        decay = [np.full(int(np.prod(shape)), decays[name], dtype) for name, shape in weights.shapes.items()]
        self._decay = arrays.upload(np.concatenate(decay))
        self._penalty = arrays.upload(np.zeros(len(self._decay), dtype)) if decoupled else self._decay
        self.first, self.second = (
            NamedViews(arrays.upload(np.zeros(len(self._decay), dtype)), weights.shapes) for _ in range(2)
        )

    @staticmethod
    def rates(number: int, learning_rate: float) -> np.ndarray:
        """Return the rates of the ``number``-th step (from 1) with step size ``learning_rate``, for ``step``."""
        correction = learning_rate / (1 - BETA1**number), 1 - BETA2**number
        return np.array([1 - BETA1, 1 - BETA2, *correction, EPSILON, learning_rate])

    def step(self, gradients: Array, rates: Array, allowed: Array) -> None:
        """Apply a step: every PE calls it with the same gradients and gets the same bits.

        Args:
            gradients: float64, one vector in the order of the weights.
            rates: the result of ``rates``, on the device.
            allowed: float64 [1] on the device; 0: nothing changes.
        """
        if self._decoupled:
            self._arrays.shrink(self._weights.flat, self._decay, rates, allowed)
        moments = self.first.flat, self.second.flat
        self._arrays.adam(self._weights.flat, gradients, *moments, self._penalty, rates, allowed)
