"""Attention whose sums are products of a technique: the layer's work on each PE."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from mgg import vertex as V
from mgg.kernel.compile import Build
from mgg.model.halo.weighed import ArcProgram, Weighed, WeighedArcs, Weighing
from mgg.model.module import ActivationMemory, Array, Given, Module, Parameter, Pass
from mgg.model.neighborhood import Neighborhood

#: Slope of the LeakyReLU for negative numbers.
SLOPE = 0.2


def signed(scores: Any, shares: Any) -> Any:
    """Return the shares with the signs of their arcs' scores."""
    return [V.where(score > 0, share, -share) for score, share in zip(scores, shares, strict=True)]


@V.program
def of_targets(v: Any, rate: float) -> Any:
    """Return, from one number per head of either end: per row the sum of the shares whose score is negative, the
    highest score, and 1 over the sum of the exponentials; per arc its share after dropout, with the sign of its score.
    """
    scores = [V.leaky_relu(v.to_target + e.src.to_source, SLOPE) for e in v.inedges]
    top = V.max(scores)
    powers = [V.exp(score - top) for score in scores]
    inverse = 1 / V.sum(powers)
    shares = [power * inverse for power in powers]
    low = V.sum(V.where(score > 0, 0, share) for score, share in zip(scores, shares, strict=True))
    return low, top, inverse, V.keep([V.dropout(each, rate) for each in signed(scores, shares)])


@V.program
def of_sources(v: Any, rate: float) -> Any:
    """Return the same shares on the graph with all arcs reversed, from the results of ``of_targets``; and per row the
    sum over its arcs of the share before dropout times the derivative of the LeakyReLU times a number of the other end
    (``mean`` is that number times the end's ``inverse``).
    """
    ends = [e.src for e in v.inedges]
    scores = [V.leaky_relu(u.to_target + v.to_source, SLOPE) for u in ends]
    powers = [V.exp(score - u.top) for score, u in zip(scores, ends, strict=True)]
    shares = [power * u.inverse for power, u in zip(powers, ends, strict=True)]
    means = [
        V.where(score > 0, 1, SLOPE) * power * u.mean for score, power, u in zip(scores, powers, ends, strict=True)
    ]
    return V.sum(means), V.keep([V.dropout(each, rate, flipped=True) for each in signed(scores, shares)])


class WeighedAttention(Module):
    """Each node's attention to its in-neighbors and itself (Velickovic et al., ICLR 2018, equations 3 to 5).

        alpha_vu = softmax over u of LeakyReLU(a_target . h_v + a_source . h_u),    h'_v = sum over u of alpha_vu h_u

    for each of ``heads`` heads, side by side in the columns; ``a_target`` and ``a_source`` are the halves of the
    paper's a. In training, each alpha is dropped with probability ``rate``; masks depend on the ids of both ends and
    the head (arcs of several types between the same nodes share theirs). Weights of arcs do not count.

    The sums are products of the technique, one per head, so feature rows move as the technique moves them. A score is
    the sum of one number of either end. So one number per head crosses forward; each PE makes the weights from these
    and multiplies the rows of its in-arcs' sources. Going back, four numbers per target and head cross, and the
    transposed product takes the gradients. The gradient by an arc's share is an inner product of two rows, but no PE
    computes it per arc: the scores need only sums of them, with weight 1 or SLOPE by the sign of the score, and inner
    products are linear. So training takes two products instead of each one: with all weights, and with those of the
    arcs whose score is negative. The backward pass computes the shares again.

    Args:
        name: prefix of the parameters ``name.target`` and ``name.source``, [heads, columns].
        heads, columns: the input is [rows, heads * columns].
        rate: rate of the dropout.
        place: index of the dropout in the model.
        decay: L2 penalty on the parameters.
    """

    saved = ("_kept",)

    def __init__(self, name: str, heads: int, columns: int, rate: float, place: int, decay: float = 0.0) -> None:
        self.target, self.source = f"{name}.target", f"{name}.source"
        self.heads, self.rate, self.place = heads, rate, place
        self.parameters = [Parameter(each, (heads, columns), "glorot", decay) for each in (self.target, self.source)]
        self.weighed = Weighing(columns, heads)

    @property
    def products(self) -> list[int]:
        """Columns of each product, one per head."""
        return [self.weighed.columns] * self.heads

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Estimate rows with their scores, and both sums; at the peak also the arcs' signed shares and both kinds."""
        heads, rows = self.heads, given.rows
        kept = rows * (3 * columns + 7 * heads) + 5 * given.halo * heads
        return ActivationMemory(columns, 0, kept, kept + rows * (5 * columns + 8 * heads) + 3 * given.arcs * heads)

    @cached_property
    def _trained(self) -> ArcProgram:
        return ArcProgram(of_targets, self.heads, self.rate, ("to_target",), ("to_source",))

    @cached_property
    def _evaluated(self) -> ArcProgram:
        return ArcProgram(of_targets, self.heads, 0.0, ("to_target",), ("to_source",))

    @cached_property
    def _back(self) -> ArcProgram:
        return ArcProgram(of_sources, self.heads, self.rate, ("to_source",), ("to_target", "top", "inverse", "mean"))

    def builds(self, graph: Neighborhood) -> list[Build]:
        """Return the kernels of its programs; none on a host."""
        weighed = _weighed(graph)
        works = (
            weighed.forward.work(self._trained),
            weighed.forward.work(self._evaluated),
            weighed.back.work(self._back),
        )
        return [build for work in works for build in getattr(work, "builds", [])]

    def forward(self, x: Array, run: Pass) -> Array:
        """Return the new rows, of the shape of the input."""
        arrays, arcs = run.arrays, _weighed(run.graph).forward
        to_target, to_source = (arrays.head_products(x, run.weights[name]) for name in (self.target, self.source))
        program, everyone = (self._trained if run.training else self._evaluated), arcs.halo.fetch(to_source)
        (low_shares, top, inverse), shares = self._worked_off(program, arcs, [to_target], [everyone], run)
        if not run.training:
            return arcs(x, [np.abs(each) for each in shares], arrays)
        sums, low = _summed(arcs, x, shares, run)
        states = to_target, top, inverse
        self._kept = x, to_source, states, low_shares, sums.copy(), low  # the caller may change the sums
        return sums

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Return the gradient by the rows, through the sum and both scores; a source's part is summed on its PE."""
        arrays, arcs, heads, less = run.arrays, _weighed(run.graph).back, self.heads, 1 - SLOPE
        x, to_source, states, low_shares, sums, low = self._kept
        del self._kept
        means, of_low = (arrays.inner_products(gradient, each, heads) for each in (sums, low))
        by_target = arrays.combined(arrays.times(low_shares, means), less, of_low, -less)
        beside = arrays.empty((len(x), (1 + len(states)) * heads), means.dtype)
        for place, each in enumerate((*states, arrays.times(means, states[-1]))):
            beside[:, place * heads : (place + 1) * heads] = each
        there = arcs.halo.fetch(beside)
        ends = [there[:, place * heads : (place + 1) * heads].copy() for place in range(1 + len(states))]
        (by_means,), shares = self._worked_off(self._back, arcs, [to_source], ends, run)
        by_x, low = _summed(arcs, gradient, shares, run)
        whole, low = (arrays.inner_products(x, each, heads) for each in (by_x, low))
        by_source = arrays.combined(arrays.combined(whole, 1, low, SLOPE - 1), 1, by_means, -1)
        for name, by_score in ((self.target, by_target), (self.source, by_source)):
            run.gradients[name] = arrays.head_products_backward(x, run.weights[name], by_score, by_x)
        return by_x if inputs else None

    def _worked_off(
        self, program: ArcProgram, arcs: WeighedArcs, rows: list[Array], ends: list[Array], run: Pass
    ) -> tuple[list[Array], list[Array]]:
        return arcs.worked_off(program, rows, ends, run.arrays, run.draws(self.place), run.graph.real)


def _summed(arcs: WeighedArcs, x: Array, shares: list[Array], run: Pass) -> tuple[Array, Array]:
    """Return the sums of ``x`` weighted by all shares, and by those of negative scores."""
    sums = arcs(x, [np.abs(each) for each in shares], run.arrays)
    return sums, arcs(x, [np.maximum(np.negative(each), 0) for each in shares], run.arrays)


def _weighed(graph: Neighborhood) -> Weighed:
    assert graph.weighed is not None
    return graph.weighed
