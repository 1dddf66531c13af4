"""Modules whose arcs have values of their own in every pass: attention, and propagation with dropout on arcs.

Each fetches its halo once a pass, whatever the number of arcs and heads; arcs have numbers, never rows of features.
"""

from __future__ import annotations

from mgg.model.arcs import ArcList
from mgg.model.arrays.scores import ArcDropout
from mgg.model.module import Array, Held, Module, Parameter, Pass
from mgg.model.propagate import Propagation


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
        """Rows and halo with their scores; while it works, an arc's shares."""
        return Held(columns, columns + 6 * self.heads, 2 * columns, columns + self.heads, self.heads)

    def forward(self, x: Array, run: Pass) -> Array:
        """The new rows, of the shape of the input."""
        arrays, arcs, rows = run.arrays, run.graph.arcs(weighted=False), len(x)
        everyone = run.graph.halo.fetch(x)
        to_target = arrays.head_products(everyone[:rows], run.weights[self.target])
        to_source = arrays.head_products(everyone, run.weights[self.source])
        scores = arrays.arc_scores(arcs.by_target, to_target, to_source, self.SLOPE)
        if run.training:
            self._kept = everyone, scores
        shares = arrays.arc_shares(arcs.by_target, scores, self._dropout(run))
        return arrays.arc_aggregate(arcs.by_target, shares, everyone)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """By the rows through the sum and through both scores; what halo rows get goes back to their owners.

        Shares are worked out again: kept, they would be most of what training takes of a GPU's memory.
        """
        arrays, arcs, rows = run.arrays, run.graph.arcs(weighted=False), len(gradient)
        everyone, scores = self._kept
        del self._kept
        dropout = self._dropout(run)
        by_row = arrays.arc_aggregate(arcs.by_source, arrays.arc_shares(arcs.by_source, scores, dropout), gradient)
        by_target, by_source = arrays.arc_score_gradients(arcs, scores, gradient, everyone, dropout)
        for name, x, by_score, by_x in (
            (self.target, everyone[:rows], by_target, by_row[:rows]),
            (self.source, everyone, by_source, by_row),
        ):
            run.gradients[name] = arrays.head_products_backward(x, run.weights[name], by_score, by_x)
        return run.graph.halo.give_back(by_row) if inputs else None

    def _dropout(self, run: Pass) -> ArcDropout | None:
        return arc_dropout(run, self.rate, self.place)


class NormalizedArcs(Propagation):
    """``Normalized`` with dropout on the entries of D^-1/2 (A + I) D^-1/2, anew in every epoch.

    Args:
        width: columns.
        rate: of the dropout.
        place: which dropout of the model this is.
    """

    def __init__(self, width: int, rate: float, place: int) -> None:
        super().__init__(0)
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
