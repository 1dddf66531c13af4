"""The relational layer: every type of arcs has weights of its own."""

from __future__ import annotations

import numpy as np

from mgg.model.arcs import ArcList
from mgg.model.arrays import Arrays
from mgg.model.module import Array, Features, Held, Module, Parameter, Pass
from mgg.model.relations import Relation
from mgg.vertex.run import dense


class Relational(Module):
    """Sum over arc types of the mean of the in-neighbors of that type, times the type's weights.

        h'_v = sum over r of (1 / |N_v^r|) sum over u in N_v^r of h_u W_r + h_v W_0,    W_r = sum over b of a_rb V_b

    (Schlichtkrull et al., ESWC 2018, equations 2 and 3). The node itself is one more type, as in the paper's text, so
    W_0 has coefficients, too. Neighbors are added up before they are multiplied: a halo row crosses once, whatever the
    number of types and bases.

    Args:
        name: of the parameters: ``name.weight`` [relations + 1, inputs, outputs]; with bases ``name.bases`` [bases,
            inputs, outputs] and ``name.coefficients`` [relations + 1, bases].
        inputs, outputs: columns. Without features, ``inputs`` is the number of nodes: see ``one_hot``.
        relations: number of types.
        bases: B; 0: every type has weights of its own.
        decay: L2 penalty of the parameters.
        one_hot: the input is the identity matrix, which nobody stores: h_u W_r is row u of W_r.
    """

    def __init__(
        self, name: str, inputs: int, outputs: int, relations: int, bases: int, decay: float = 0.0,
        one_hot: bool = False,
    ) -> None:  # fmt: skip
        self.weight, self.bases, self.coefficients = f"{name}.weight", f"{name}.bases", f"{name}.coefficients"
        self.shape, self.one_hot, self._few = (relations + 1, inputs, outputs), one_hot, bases > 0
        if bases:
            shapes = {self.bases: (bases, inputs, outputs), self.coefficients: (relations + 1, bases)}
        else:
            shapes = {self.weight: self.shape}
        self.parameters = [Parameter(each, shape, "glorot", decay) for each, shape in shapes.items()]
        # Even without rows to fetch, the ends of arcs have to be known.
        self.fetched = 1 if one_hot else inputs
        self.derived = (relations + 1) * inputs * outputs if bases else 0

    def memory(self, columns: int) -> Held:
        """Its input is kept by who made it; halo and gradients by it; what is summed, of a type of arcs at a time."""
        inputs, outputs = (0, self.shape[2]) if self.one_hot else self.shape[1:]
        return Held(outputs, 0, 3 * inputs + 2 * outputs, 2 * inputs)

    def memory_of_first(self, columns: int, copied: bool) -> Held:
        """That of the first layer, whose input gets no gradients; ``copied`` is it to be dense, or before its halo."""
        inputs, outputs = (0, self.shape[2]) if self.one_hot else self.shape[1:]
        return Held(outputs, inputs * copied, inputs + 2 * outputs, inputs)

    def forward(self, x: Features | None, run: Pass) -> Array:
        """The sum, [rows, outputs]."""
        arrays, weights = run.arrays, self._weights(run)
        everyone = None if self.one_hot else run.graph.halo.fetch(dense(x))
        if run.training:
            self._everyone = everyone
        out = arrays.zeros((len(run.graph.node_ids), self.shape[2]), weights.dtype)
        for relation in self._relations(run):
            weight = weights[relation.type]
            if everyone is None:
                found = _sums(arrays, relation.by_target, weight)
            else:
                found = arrays.product(_sums(arrays, relation.by_target, everyone), weight)
            arrays.add_to_rows(out, relation.rows, found)
        return out

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Type by type; the neighbors are added up once more, because their sums are not kept."""
        arrays, weights = run.arrays, self._weights(run)
        # The evaluation that follows fetches its own: both would not be needed at a time.
        everyone, self._everyone = self._everyone, None
        by_weight = arrays.zeros(self.shape, np.float64)
        by_row = arrays.zeros(everyone.shape, weights.dtype) if inputs and everyone is not None else None
        for relation in self._relations(run):
            mine = arrays.rows(gradient, relation.rows)
            if everyone is None:
                found = _sums(arrays, relation.by_source, mine)
                arrays.add_to_rows(by_weight[relation.type], relation.begins, found.astype(np.float64))
                continue
            # Matrices as wide as the input have no names here: none outlives its use.
            by_weight[relation.type] = arrays.transposed_product(_sums(arrays, relation.by_target, everyone), mine)
            if by_row is not None:
                found = _sums(arrays, relation.by_source, arrays.product(mine, weights[relation.type].T))
                arrays.add_to_rows(by_row, relation.begins, found)
                del found
        self._leave(by_weight, run)
        return None if by_row is None else run.graph.halo.give_back(by_row)

    def _relations(self, run: Pass) -> list[Relation]:
        return run.graph.relations(by_node=self.one_hot)

    def _weights(self, run: Pass) -> Array:
        """Every type's weights, of ``shape``."""
        if not self._few:
            return run.weights[self.weight]
        bases = run.weights[self.bases]
        return run.arrays.product(run.weights[self.coefficients], bases.reshape(len(bases), -1)).reshape(*self.shape)

    def _leave(self, by_weight: Array, run: Pass) -> None:
        """The gradients by the parameters, from those by every type's weights."""
        if not self._few:
            run.gradients[self.weight] = by_weight
            return
        arrays, bases, coefficients = run.arrays, run.weights[self.bases], run.weights[self.coefficients]
        flat = by_weight.reshape(len(by_weight), -1).astype(bases.dtype)
        by_coefficient = arrays.product(flat, bases.reshape(len(bases), -1).T)
        run.gradients[self.coefficients] = by_coefficient.astype(np.float64)
        run.gradients[self.bases] = arrays.transposed_product(coefficients, flat).reshape(*bases.shape)


def _sums(arrays: Arrays, arcs: ArcList, x: Array) -> Array:
    """Of the rows of ``x`` at the other ends of each node's arcs, weighted."""
    return arrays.arc_aggregate(arcs, arcs.weights, x)
