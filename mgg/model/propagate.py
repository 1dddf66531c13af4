"""Modules that look at a node's neighbors, around the bare products C = A B and A^T B."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mgg import vertex as V
from mgg.model.layers import Linear
from mgg.model.module import Array, Chain, Composite, Features, Held, Module, Parameter, Pass, copied
from mgg.model.neighborhood import Neighborhood
from mgg.model.program import VertexLayer, Weight


@V.program(loops=True)
def normalized(v: Any) -> Any:
    """D^-1/2 (A + I) D^-1/2 X, the propagation of the GCN (Kipf and Welling 2017, equation 2).

    D holds the row sums of A + I: weighted in-degrees, for the rows and for the columns, also in directed graphs, as
    PyTorch Geometric's gcn_norm does. A node whose sum is not positive (negative weights) is scaled by 0. A self-loop
    that the graph has stays and I comes on top, as published (gcn_norm would replace it).
    """
    return v.norm * V.sum(e.weight * e.src.norm * e.src.x for e in v.inedges)


@V.program(loops=True)
def _convolution(v: Any, W: Any) -> Any:
    return normalized(v) @ W


def convolution(name: str, inputs: int, outputs: int, decay: float = 0.0) -> VertexLayer:
    """``normalized`` X W, with W [inputs, outputs] called ``name``.weight."""
    return VertexLayer(name, _convolution, inputs, {"W": Weight((inputs, outputs), decay=decay, name="weight")})


class Propagation(Module):
    """A linear map of the nodes' columns that keeps their number; ``width`` is that number."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._kept: tuple[Features, Array, Array] | None = None

    def memory(self, columns: int) -> Held:
        """Its output."""
        return Held(columns, 0, columns)

    def product_of(self, x: Features, run: Pass, product: Callable[[Array], Array]) -> tuple[Array, Array]:
        """``x`` as a dense array, and ``product`` of that; of the pass's constant input both are computed once.

        ``product`` depends on nothing but the graph and its argument. The first result must stay as it is.
        """
        if x is not run.constant:
            own = dense(x)
            return own, product(own)
        if self._kept is None or self._kept[0] is not x:
            own = dense(x)
            self._kept = x, own, product(own)
        return self._kept[1], self._kept[2].copy()


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
        return self.product_of(x, run, lambda own: self._propagate(own, run.graph, transposed=False))[1]

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """The same with A^T."""
        return self._propagate(gradient, run.graph, transposed=True) if inputs else None

    def _propagate(self, x: Array, graph: Neighborhood, transposed: bool) -> Array:
        plan = graph.transposed if transposed else graph.plan
        if self._scale is None:
            self._scale = graph.arrays.upload(graph.scale[:, None])
        scaled = scaled_input(graph, plan, self.width, x, self._scale)
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
        return self.product_of(x, run, lambda own: self._mean(own, run.graph))[1]

    def _mean(self, x: Array, graph: Neighborhood) -> Array:
        graph.plan.write(self.width, x)
        mean = graph.plan(self.width)
        return graph.arrays.scale_rows(mean, self._inverse(graph, mean.dtype), out=mean)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """A^T D^-1 G."""
        if not inputs:
            return None
        plan = run.graph.transposed
        scaled_input(run.graph, plan, self.width, gradient, self._inverse(run.graph, gradient.dtype))
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

    def memory(self, columns: int) -> Held:
        """H, two steps and their sum."""
        return Held(columns, 0, 3 * columns)

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

        def product(own: Array) -> Array:
            run.graph.plan.write(self.width, own)
            return run.graph.plan(self.width)

        own, summed = self.product_of(x, run, product)
        if run.training:
            self._own = own
        return run.arrays.add_multiple(summed, run.weights[self.name], own)

    def memory(self, columns: int) -> Held:
        """Its input."""
        return Held(columns, columns, columns)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """d epsilon = sum of G * X; dX = (1 + epsilon) G + A^T G."""
        run.gradients[self.name] = run.arrays.inner(gradient, self._own)
        if not inputs:
            return None
        run.graph.transposed.write(self.width, gradient)
        return run.arrays.add_multiple(run.graph.transposed(self.width), run.weights[self.name], gradient)


def scaled_input(graph: Neighborhood, plan: Any, width: int, x: Array, scale: Array) -> Array:
    """Give ``plan`` the rows of ``x`` times ``scale`` [rows, 1]; what it was given, before it is rounded."""
    if graph.dtype == "fp32":
        given: Array = graph.arrays.scale_rows(x, scale, plan.input(width))
        return given
    given = graph.arrays.scale_rows(x, scale)
    plan.write(width, given)
    return given


def narrow(linear: Linear, propagation: Callable[[int], Propagation]) -> Chain:
    """Both maps in the order that aggregates fewer columns: (P X) W equals P (X W)."""
    if linear.outputs <= linear.inputs:
        return Chain(linear, propagation(linear.outputs))
    return Chain(propagation(linear.inputs), linear)


def dense(x: Features) -> Array:
    """``x`` as a dense array."""
    return x.toarray() if hasattr(x, "toarray") else x
