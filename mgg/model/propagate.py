"""Modules that look at a node's neighbors, around the bare products C = A B and A^T B."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mgg.model.layers import Linear
from mgg.model.module import Array, Chain, Composite, Features, Module, Parameter, Pass, copied
from mgg.model.neighborhood import Neighborhood


class Propagation(Module):
    """A linear map of the nodes' columns that keeps their number; ``width`` is that number."""

    def __init__(self, width: int) -> None:
        self.width = width


class Normalized(Propagation):
    """D^-1/2 (A + I) D^-1/2 X, the propagation of the GCN (Kipf and Welling 2017, equation 2).

    D holds the row sums of A + I: weighted in-degrees, for the rows and for the columns, also in directed graphs, as
    PyTorch Geometric's gcn_norm does. A node whose sum is not positive (negative weights) is scaled by 0. A self-loop
    that the graph has stays and I comes on top, as published (gcn_norm would replace it).
    """

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self._scale: Array | None = None

    def forward(self, x: Features, run: Pass) -> Array:
        """With s = D^-1/2: s * (A (s * X) + s * X)."""
        return self._propagate(dense(x), run.graph, transposed=False)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """The same with A^T."""
        return self._propagate(gradient, run.graph, transposed=True) if inputs else None

    def _propagate(self, x: Array, graph: Neighborhood, transposed: bool) -> Array:
        plan = graph.transposed if transposed else graph.plan
        if self._scale is None:
            self._scale = graph.arrays.upload(graph.scale[:, None])
        scaled = plan.input(self.width)
        graph.arrays.scale_rows(x, self._scale, scaled)
        return graph.arrays.add_and_scale(plan(self.width), scaled, self._scale)


class Mean(Propagation):
    """The mean of each node's in-neighbors, weighted where arcs are (GraphSAGE: Hamilton et al. 2017, algorithm 1).

    A node without in-neighbors, or whose weights have no positive sum, gets zeros.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self._scale: Array | None = None

    def forward(self, x: Features, run: Pass) -> Array:
        """D^-1 A X, with D the row sums of A."""
        run.graph.plan.input(self.width)[...] = dense(x)
        mean = run.graph.plan(self.width)
        run.arrays.scale_rows(mean, self._inverse(run.graph, mean.dtype), mean)
        return mean

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """A^T D^-1 G."""
        if not inputs:
            return None
        plan = run.graph.transposed
        run.arrays.scale_rows(gradient, self._inverse(run.graph, gradient.dtype), plan.input(self.width))
        return plan(self.width)

    def _inverse(self, graph: Neighborhood, dtype: Any) -> Array:
        if self._scale is None:
            positive = graph.degrees > 0
            inverse = np.where(positive, 1 / np.where(positive, graph.degrees, 1), 0)
            self._scale = graph.arrays.upload(inverse.astype(dtype)[:, None])
        return self._scale


class PowerSteps(Composite):
    """Personalized PageRank by its power iteration (Gasteiger et al. 2019, equation 4).

        Z_0 = H,    Z_k+1 = (1 - alpha) P_k Z_k + alpha H

    Args:
        steps: the propagations P_0, P_1, ... in their order.
        teleport: alpha.
    """

    def __init__(self, steps: Sequence[Propagation], teleport: float) -> None:
        super().__init__(*steps)
        self.steps, self.teleport = steps, teleport

    def forward(self, x: Array, run: Pass) -> Array:
        """Z after the last step."""
        z = x
        for step in self.steps:
            z = run.arrays.combined(step.forward(z, run), 1 - self.teleport, x, self.teleport)
        return z

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Every step gives H alpha of its output's gradient; Z_0 is H."""
        total, scale, factor = copied(gradient), self.teleport, 1.0
        for place in range(len(self.steps) - 1, -1, -1):
            following = self.steps[place].backward(gradient, run)
            assert following is not None
            gradient, factor = following, factor * (1 - self.teleport)
            share = factor * self.teleport if place else factor
            total, scale = run.arrays.combined(total, scale, gradient, share), 1.0
        return total


class SumWithSelf(Propagation):
    """(1 + epsilon) X + A X with a trainable epsilon (GIN: Xu et al. 2019, equation 4.1)."""

    def __init__(self, name: str, width: int) -> None:
        super().__init__(width)
        self.name = f"{name}.epsilon"
        self.parameters = [Parameter(self.name, (1,), "zeros")]

    def forward(self, x: Features, run: Pass) -> Array:
        """(1 + epsilon) X + A X."""
        own = dense(x)
        if run.training:
            self._own = own
        run.graph.plan.input(self.width)[...] = own
        return run.arrays.add_multiple(run.graph.plan(self.width), run.weights[self.name], own)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """d epsilon = sum of G * X; dX = (1 + epsilon) G + A^T G."""
        run.gradients[self.name] = run.arrays.inner(gradient, self._own)
        if not inputs:
            return None
        run.graph.transposed.input(self.width)[...] = gradient
        return run.arrays.add_multiple(run.graph.transposed(self.width), run.weights[self.name], gradient)


def narrow(linear: Linear, propagation: Callable[[int], Propagation]) -> Chain:
    """Both maps in the order that aggregates fewer columns: (P X) W equals P (X W)."""
    if linear.outputs <= linear.inputs:
        return Chain(linear, propagation(linear.outputs))
    return Chain(propagation(linear.inputs), linear)


def dense(x: Features) -> Array:
    """``x`` as a dense array."""
    return x.toarray() if hasattr(x, "toarray") else x
