"""The relational layer for graphs without features: one product with a sparse matrix of the arcs of all types."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
from scipy import sparse

from mgg.graph.csr import index_dtype
from mgg.layout import Product
from mgg.model.module import ActivationMemory, Array, Given, Module, Parameter, Pass
from mgg.model.neighborhood import Neighborhood


class _Matrix(NamedTuple):
    """A CSR on the PE's device: ``ptr`` int64 [n + 1], ``ends`` int32 or int64 and ``weights`` [entries]."""

    ptr: Array
    ends: Array
    weights: Array


class RelationalRows(Module):
    """The sum over arc types of the mean of the type's weight rows of the in-neighbors.

        h'_v = sum over r of (1 / |N_v^r|) sum over u in N_v^r of W_r[u] + W_0[v],    W_r = sum over b of a_rb V_b

    (Schlichtkrull et al., ESWC 2018, equations 2 and 3, for X = I). The node itself is one more type, as in the paper's
    text, so W_0 has coefficients, too. It is one product: [rows, types * nodes] times the stacked weights.

    Args:
        name: prefix of the parameters: ``name.weight`` [relations + 1, nodes, outputs]; with bases ``name.bases``
            [bases, nodes, outputs] and ``name.coefficients`` [relations + 1, bases].
        nodes, outputs: number of nodes of the graph, and output columns.
        relations: number of types.
        bases: B; 0: every type has its own weights.
        decay: L2 penalty on the parameters.
    """

    saved = ()

    def __init__(self, name: str, nodes: int, outputs: int, relations: int, bases: int, decay: float = 0.0) -> None:
        self.weight, self.bases, self.coefficients = f"{name}.weight", f"{name}.bases", f"{name}.coefficients"
        self.shape, self._few = (relations + 1, nodes, outputs), bases > 0
        shapes: dict[str, tuple[int, ...]] = {self.weight: self.shape}
        if bases:
            shapes = {self.bases: (bases, nodes, outputs), self.coefficients: (relations + 1, bases)}
        self.parameters = [Parameter(each, shape, "glorot", decay) for each, shape in shapes.items()]
        # The ids at the ends of arcs are needed even without rows to fetch.
        self.fetched = 1
        self._known: tuple[Neighborhood, _Matrix, _Matrix] | None = None

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Return the memory of the 64-bit pointers of the transposed matrix, which has a row per weight row; the output
        and the gradient by it, the gradient by all weights, and that by the parameters before it is float64.
        """
        kinds, nodes, outputs = self.shape
        numbers = kinds * nodes * outputs + (prod(self.parameters[0].shape) if self._few else 0)
        pointers = 2 * kinds * nodes
        return ActivationMemory(outputs, pointers, 0, 2 * given.rows * outputs + numbers, pointers)

    def forward(self, x: None, run: Pass) -> Array:
        """Return the sum, [rows, outputs]."""
        weights = self._weights(run)
        return run.arrays.arc_sums(*self._matrices(run.graph)[0], weights.reshape(-1, weights.shape[2]))

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Compute the gradients by the product with the transposed matrix; there is no input."""
        flat = run.arrays.arc_sums(*self._matrices(run.graph)[1], gradient).reshape(self.shape[0], -1)
        if not self._few:
            run.gradients[self.weight] = flat.astype(np.float64).reshape(self.shape)
            return None
        arrays, bases, coefficients = run.arrays, run.weights[self.bases], run.weights[self.coefficients]
        by_coefficient = arrays.product(flat, bases.reshape(len(bases), -1).T)
        run.gradients[self.coefficients] = by_coefficient.astype(np.float64)
        run.gradients[self.bases] = arrays.transposed_product(coefficients, flat).reshape(*bases.shape)
        return None

    def _weights(self, run: Pass) -> Array:
        """Return the weights of all types, of shape ``shape``."""
        if not self._few:
            return run.weights[self.weight]
        bases = run.weights[self.bases]
        return run.arrays.product(run.weights[self.coefficients], bases.reshape(len(bases), -1)).reshape(*self.shape)

    def _matrices(self, graph: Neighborhood) -> tuple[_Matrix, _Matrix]:
        """Return the matrix and its transpose, cached for the last graph (collective for another graph)."""
        if self._known is None or self._known[0] is not graph:
            assert graph.product is not None and graph.numbers is not None
            kinds, nodes, _ = self.shape
            found = typed_matrix(graph.product, graph.halo.host(graph.numbers), kinds - 1, nodes)
            whole, turned = (self._on_device(each, graph) for each in (found, found.T.tocsr()))
            self._known = graph, whole, turned
        return self._known[1:]

    def _on_device(self, matrix: sparse.csr_array, graph: Neighborhood) -> _Matrix:
        arrays = matrix.indptr.astype(np.int64), matrix.indices, matrix.data.astype(graph.real)
        kept = (arrays[0], arrays[1].astype(index_dtype(matrix.shape[1])), arrays[2])
        return _Matrix(*map(graph.arrays.upload, kept))


def typed_matrix(product: Product, numbers: np.ndarray, relations: int, nodes: int) -> sparse.csr_array:
    """Return the arcs of all types side by side, float64 [rows, (relations + 1) * nodes].

    An arc of type t from node u is in column t * nodes + u and has the weight 1 / (number of arcs of that type that end
    at its row); equal arcs add up. An arc from each row to itself has type ``relations``.

    Args:
        product: the forward product, with types.
        numbers: int64 [rows + halo], the node at each position.
        relations: number of types.
        nodes: number of nodes of the graph.
    """
    count = product.rows
    parts = [(product.local, 0), (product.remote, count)]
    rows = np.concatenate([*(np.repeat(np.arange(count), np.diff(csr.indptr)) for csr, _ in parts), np.arange(count)])
    sources = np.concatenate([*(csr.indices.astype(np.int64) + first for csr, first in parts), np.arange(count)])
    types = [np.zeros(0, np.int64) if csr.types is None else csr.types.astype(np.int64) for csr, _ in parts]
    kinds = np.concatenate([*types, np.full(count, relations)])
    runs = rows * np.int64(relations + 1) + kinds
    weights = 1 / np.bincount(runs, minlength=count * (relations + 1))[runs]
    columns = kinds * np.int64(nodes) + numbers[sources]
    found = sparse.csr_array((weights, (rows, columns)), shape=(count, (relations + 1) * nodes))
    found.sort_indices()
    return found
