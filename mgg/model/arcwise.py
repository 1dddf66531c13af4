"""Modules whose arcs have values of their own in every pass: attention, and propagation with dropout on arcs.

Each fetches its halo once a pass, whatever the number of arcs and heads; arcs have numbers, never rows of features.
"""

from __future__ import annotations

from mgg.model.arcs import ArcList
from mgg.model.arrays.scores import ArcDropout
from mgg.model.module import Array, Held, Module, Parameter, Pass


class Attention(Module):
    """Each node's attention to its in-neighbors and itself (Velickovic et al., ICLR 2018, equations 3 to 5).

        alpha_vu = softmax over u of LeakyReLU(a_target . h_v + a_source . h_u),    h'_v = sum over u of alpha_vu h_u

    for each of ``heads`` heads, side by side in the columns; ``a_target`` and ``a_source`` are the halves of the
    paper's a. In training, each alpha is dropped with probability ``rate``; masks depend on the ids of both ends and
    the head (arcs of several types between the same nodes share theirs). Weights of arcs do not count.

    Args:
        name: of the parameters, ``name.target`` and ``name.source``, [heads, columns].
        heads, columns: of the input [rows, heads * columns].
        rate: of the dropout.
        place: which dropout of the model this is.
        decay: L2 penalty of the parameters.
    """

    #: Of the LeakyReLU, for negative numbers.
    SLOPE = 0.2

    def __init__(self, name: str, heads: int, columns: int, rate: float, place: int, decay: float = 0.0) -> None:
        self.target, self.source = f"{name}.target", f"{name}.source"
        self.heads, self.rate, self.place = heads, rate, place
        self.parameters = [Parameter(each, (heads, columns), "glorot", decay) for each in (self.target, self.source)]
        self.fetched = heads * columns

    def memory(self, columns: int) -> Held:
        """Rows and halo with their scores, and both sums; while it works, aligned rows and an arc's shares."""
        return Held(columns, 3 * columns + 7 * self.heads, 4 * columns, 2 * columns + self.heads, self.heads)

    def forward(self, x: Array, run: Pass) -> Array:
        """The new rows, of the shape of the input."""
        arrays, arcs, rows = run.arrays, run.graph.arcs(weighted=False), len(x)
        everyone = run.graph.halo.fetch(x)
        to_target = arrays.head_products(everyone[:rows], run.weights[self.target])
        to_source = arrays.head_products(everyone, run.weights[self.source])
        scores = arrays.arc_scores(arcs.by_target, to_target, to_source, self.SLOPE)
        if not run.training:
            return arrays.arc_aggregate(arcs.by_target, arrays.arc_shares(arcs.by_target, scores, None), everyone)
        shares, low_shares = arrays.arc_signed_shares(arcs.by_target, scores, self._dropout(run))
        sums, low = arrays.arc_signed_aggregate(arcs.by_target, shares, everyone)
        self._kept = everyone, scores, low_shares, sums.copy(), low  # who gets the sums may change them
        return sums

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """By the rows through the sum and through both scores; what halo rows get goes back to their owners.

        The gradient by an arc's share is an inner product of two rows, and no arc has it worked out: what scores need
        is sums of them, with weight 1 or SLOPE by the sign of the score, and inner products are linear (``by_target``
        and ``by_source`` below; kernels/model/attention.cu has the formula). Shares are worked out again: kept, they
        would be most of what training takes of a GPU's memory.
        """
        arrays, arcs, rows, less = run.arrays, run.graph.arcs(weighted=False), len(gradient), 1 - self.SLOPE
        everyone, scores, low_shares, sums, low = self._kept
        del self._kept
        means, low = (arrays.inner_products(gradient, each, self.heads) for each in (sums, low))
        by_target = arrays.combined(arrays.times(low_shares, means), less, low, -less)
        shares, by_means = arrays.arc_signed_shares(arcs.by_source, scores, self._dropout(run), means)
        by_row, low = arrays.arc_signed_aggregate(arcs.by_source, shares, gradient)
        whole, low = (arrays.inner_products(everyone, each, self.heads) for each in (by_row, low))
        by_source = arrays.combined(arrays.combined(whole, 1, low, -less), 1, by_means, -1)
        for name, x, by_score, by_x in (
            (self.target, everyone[:rows], by_target, by_row[:rows]),
            (self.source, everyone, by_source, by_row),
        ):
            run.gradients[name] = arrays.head_products_backward(x, run.weights[name], by_score, by_x)
        return run.graph.halo.give_back(by_row) if inputs else None

    def _dropout(self, run: Pass) -> ArcDropout | None:
        return arc_dropout(run, self.rate, self.place)


class NormalizedArcs(Module):
    """``normalized`` X with dropout on the entries of D^-1/2 (A + I) D^-1/2, anew in every epoch.

    Args:
        width: columns.
        rate: of the dropout.
        place: which dropout of the model this is.
    """

    def __init__(self, width: int, rate: float, place: int) -> None:
        self.fetched, self.rate, self.place = width, rate, place

    def memory(self, columns: int) -> Held:
        """Nothing but its output; while it works, rows and halo, and an arc's entry."""
        return Held(columns, 0, 2 * columns, 0, 1)

    def forward(self, x: Array, run: Pass) -> Array:
        """P X with the entries of P that are left."""
        arcs = run.graph.arcs(weighted=True).by_target
        return run.arrays.arc_aggregate(arcs, self._left(arcs, run), run.graph.halo.fetch(x))

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """P^T G with the same ones: they follow from the epoch."""
        if not inputs:
            return None
        arcs = run.graph.arcs(weighted=True).by_source
        return run.graph.halo.give_back(run.arrays.arc_aggregate(arcs, self._left(arcs, run), gradient))

    def _left(self, arcs: ArcList, run: Pass) -> Array:
        dropout = arc_dropout(run, self.rate, self.place)
        return arcs.weights if dropout is None else run.arrays.arc_dropout(arcs, arcs.weights, dropout)


def arc_dropout(run: Pass, rate: float, place: int) -> ArcDropout | None:
    """Dropout with probability ``rate``, the model's dropout ``place``; none outside training."""
    return ArcDropout(run.draws(place), rate) if run.training and rate else None
