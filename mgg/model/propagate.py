"""Propagation steps of models, as vertex programs whose sums are the products A X and A^T X."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgg import vertex as V
from mgg.model.module import ActivationMemory, Array, Composite, Given, Module, Pass, copied
from mgg.model.program import VertexLayer, Weight


@V.program(loops=True)
def normalized(v: Any) -> Any:
    """Return D^-1/2 (A + I) D^-1/2 X, the propagation of the GCN (Kipf and Welling 2017, equation 2).

    D holds the row sums of A + I: weighted in-degrees, for both rows and columns, also in directed graphs, as in
    PyTorch Geometric's gcn_norm. A node whose sum is not positive (negative weights) is scaled by 0. Self-loops of the
    graph stay and I is added, as published (gcn_norm would replace them).
    """
    return v.norm * V.sum(e.weight * e.src.norm * e.src.x for e in v.inedges)


@V.program
def mean(v: Any) -> Any:
    """Return D^-1 A X, the mean of each node's in-neighbors, weighted if arcs are (Hamilton et al. 2017, algorithm 1).

    Nodes without in-neighbors, or whose weights have no positive sum, get zeros.
    """
    total = V.sum(e.weight for e in v.inedges)
    inverse = V.where(total > 0, 1 / V.where(total > 0, total, 1), 0)
    return inverse * V.sum(e.weight * e.src.x for e in v.inedges)


@V.program
def sum_with_self(v: Any, epsilon: Any) -> Any:
    """Return (1 + epsilon) X + A X with a trainable epsilon (GIN: Xu et al. 2019, equation 4.1)."""
    return (1 + epsilon) * v.x + V.sum(e.weight * e.src.x for e in v.inedges)


@V.program(loops=True)
def _convolution(v: Any, W: Any) -> Any:
    return normalized(v) @ W


def convolution(name: str, inputs: int, outputs: int, decay: float = 0.0) -> VertexLayer:
    """Return a layer ``normalized`` X W, with W [inputs, outputs] named ``name``.weight."""
    return VertexLayer(name, _convolution, inputs, {"W": Weight((inputs, outputs), decay=decay, name="weight")})


class PowerSteps(Composite):
    """Personalized PageRank by its power iteration (Gasteiger et al. 2019, equation 4).

        Z_0 = H,    Z_k+1 = (1 - alpha) P_k Z_k + alpha H

    Args:
        steps: the propagations P_0, P_1, ... in order.
        teleport: alpha.
    """

    saved = ()

    def __init__(self, steps: Sequence[Module], teleport: float) -> None:
        super().__init__(*steps)
        self.steps, self.teleport = steps, teleport

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Return the memory of H, two steps and their sum."""
        return ActivationMemory(columns, 0, 0, 3 * given.rows * columns)

    def forward(self, x: Array, run: Pass) -> Array:
        """Return Z after the last step."""
        z = x
        for step in self.steps:
            z = run.arrays.combined(step.forward(z, run), 1 - self.teleport, x, self.teleport)
        return z

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Return the gradient by H: each step contributes alpha times its output's gradient, and Z_0 is H."""
        total, scale, factor = copied(gradient), self.teleport, 1.0
        for place in range(len(self.steps) - 1, -1, -1):
            following = self.steps[place].backward(gradient, run)
            assert following is not None
            gradient, factor = following, factor * (1 - self.teleport)
            share = factor * self.teleport if place else factor
            total, scale = run.arrays.combined(total, scale, gradient, share), 1.0
        return total
