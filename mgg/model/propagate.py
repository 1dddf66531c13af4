"""Modules that look at a node's neighbors, around the bare products C = A B and A^T B."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mgg.model.layers import Linear
from mgg.model.module import Array, Chain, Features, Held, Module, Parameter, Pass
from mgg.model.neighborhood import Neighborhood


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
            self._scale = graph.arrays.upload(_inverse_root(graph.degrees + 1).astype(x.dtype)[:, None])
        if graph.dtype == "fp32":
            scaled = graph.arrays.scale_rows(x, self._scale, plan.input(self.width))
        else:
            scaled = graph.arrays.scale_rows(x, self._scale)
            plan.write(self.width, scaled)
        return graph.arrays.add_and_scale(plan(self.width), scaled, self._scale)


def _inverse_root(degrees: np.ndarray) -> np.ndarray:
    positive = degrees > 0
    return np.where(positive, 1 / np.sqrt(np.where(positive, degrees, 1)), 0)


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


def narrow(linear: Linear, propagation: Callable[[int], Propagation]) -> Chain:
    """Both maps in the order that aggregates fewer columns: (P X) W equals P (X W)."""
    if linear.outputs <= linear.inputs:
        return Chain(linear, propagation(linear.outputs))
    return Chain(propagation(linear.inputs), linear)


def dense(x: Features) -> Array:
    """``x`` as a dense array."""
    return x.toarray() if hasattr(x, "toarray") else x
