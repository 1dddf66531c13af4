"""Modules that look at one node at a time: dropout, linear, bias, ReLU, normalization of rows or over all nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from mgg.model.module import Array, Chain, Features, Given, Held, Module, Parameter, Pass, passing
from mgg.model.settings import Sizes


def _masking(columns: int, given: Given) -> int:
    """Gradients, and a byte an entry of what tells which of them pass."""
    return passing(columns, columns, given) + given.rows * -(-columns // 4)


class Dropout(Module):
    """Zero each entry with probability ``rate`` and scale the others by 1 / (1 - rate), in training only.

    The mask depends on seed, epoch, ``place`` (which dropout of the model this is), node id and column alone. On a
    sparse input the numbers are drawn for the stored entries only, and are those that the dense input would get there.
    """

    saved = ("_mask",)

    def __init__(self, rate: float, place: int) -> None:
        self.rate, self.place = rate, place
        self._mask: Any = None

    def forward(self, x: Features, run: Pass) -> Features:
        """Masked input, of the type of the input."""
        self._mask = None
        if not run.training or self.rate == 0:
            return x
        y, self._mask = run.arrays.dropout(x, run.graph.node_ids, run.draws(self.place), self.rate)
        return y

    def memory(self, columns: int, given: Given) -> Held:
        """The mask and the masked input; a sparse copy is among the features."""
        if not self.rate or given.sparse:
            return Held(columns)
        return Held(columns, 2 * given.rows * columns, 0, _masking(columns, given))

    def handed_on(self, given: Given) -> Given:
        """What is sparse stays so, and what it drops nothing of remains what it is."""
        return replace(given, constant=given.constant and not self.rate)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """The same mask on the gradient."""
        return gradient if self._mask is None else run.arrays.masked(gradient, self._mask)


class Linear(Module):
    """X W, with W [inputs, outputs] called ``name``.weight."""

    takes_sparse = True
    saved = ("_x",)

    def __init__(self, name: str, inputs: int, outputs: int, decay: float = 0.0) -> None:
        self.name, self.inputs, self.outputs = f"{name}.weight", inputs, outputs
        self.parameters = [Parameter(self.name, (inputs, outputs), "glorot", decay)]

    def forward(self, x: Features, run: Pass) -> Array:
        """X W [rows, outputs]."""
        if run.training:
            self._x = x
        return run.arrays.product(x, run.weights[self.name])

    def memory(self, columns: int, given: Given) -> Held:
        """The input is kept by whoever made it."""
        return Held(self.outputs, 0, 0, passing(columns, self.outputs, given))

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """dW = X^T G, dX = G W^T."""
        run.gradients[self.name] = run.arrays.transposed_product(self._x, gradient)
        return run.arrays.product(gradient, run.weights[self.name].T) if inputs else None


class Embedding(Module):
    """A trained row a node, [nodes, columns] called ``name``.weight, for graphs without features.

    Every PE holds the rows of all nodes, as it does all weights.
    """

    saved = ()

    def __init__(self, name: str, nodes: int, columns: int, decay: float = 0.0) -> None:
        self.name, self.columns = f"{name}.weight", columns
        self.parameters = [Parameter(self.name, (nodes, columns), "glorot", decay)]
        self._known: tuple[Any, Array] | None = None

    def forward(self, x: Features, run: Pass) -> Array:
        """The rows of this PE's nodes, [rows, columns]; there is no input."""
        return run.arrays.rows(run.weights[self.name], self._places(run))

    def memory(self, columns: int, given: Given) -> Held:
        """Its output; the gradient of a row of each node is the weights' own."""
        return Held(self.columns, given.rows * self.columns, 0, given.rows * self.columns)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """A row of the gradient for each of this PE's nodes, 0 for all others."""
        found = run.arrays.zeros(run.weights[self.name].shape, np.float64)
        run.arrays.add_to_rows(found, self._places(run), gradient)
        run.gradients[self.name] = found
        return None

    def _places(self, run: Pass) -> Array:
        """Which rows are those of this PE's nodes, on the device; always the same array."""
        if self._known is None or self._known[0] is not run.graph:
            assert run.graph.numbers is not None
            self._known = run.graph, run.arrays.upload(run.graph.numbers)
        return self._known[1]


class Bias(Module):
    """X + b, with b [columns] called ``name``.bias."""

    saved = ()

    def __init__(self, name: str, columns: int, decay: float = 0.0) -> None:
        self.name = f"{name}.bias"
        self.parameters = [Parameter(self.name, (columns,), "zeros", decay)]

    def forward(self, x: Array, run: Pass) -> Array:
        """X + b, in place: the module before it made X and keeps no use for it."""
        return run.arrays.add_bias(x, run.weights[self.name])

    def memory(self, columns: int, given: Given) -> Held:
        """Nothing."""
        return Held(columns)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """db = sum of the rows of G."""
        run.gradients[self.name] = run.arrays.column_sums(gradient)
        return gradient


class Relu(Module):
    """max(X, 0), in place on GPUs: the module before it made X and keeps no use for it."""

    saved = ("_y",)

    def forward(self, x: Array, run: Pass) -> Array:
        """max(X, 0)."""
        y = run.arrays.relu(x)
        if run.training:
            self._y = y
        return y

    def memory(self, columns: int, given: Given) -> Held:
        """Its output."""
        return Held(columns, given.rows * columns, 0, _masking(columns, given))

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """G where X > 0."""
        return run.arrays.where_positive(gradient, self._y)


class Elu(Module):
    """X where X > 0, else exp(X) - 1 (Clevert et al., ICLR 2016); in place on GPUs, as ReLU."""

    saved = ("_y",)

    def forward(self, x: Array, run: Pass) -> Array:
        """ELU(X)."""
        y = run.arrays.elu(x)
        if run.training:
            self._y = y
        return y

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """G where X > 0, else G exp(X)."""
        return run.arrays.elu_backward(gradient, self._y)


class MeanOfHeads(Module):
    """The mean over ``heads`` equal parts of the columns (Velickovic et al. 2018, equation 6)."""

    saved = ()

    def __init__(self, heads: int) -> None:
        self.heads = heads

    def forward(self, x: Array, run: Pass) -> Array:
        """[rows, columns / heads]."""
        return x if self.heads == 1 else run.arrays.mean_of_heads(x, self.heads)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """G / heads for each head."""
        if not inputs or self.heads == 1:
            return gradient if inputs else None
        return run.arrays.mean_of_heads_backward(gradient, self.heads)


class UnitRows(Module):
    """Each row over its Euclidean norm (Hamilton et al. 2017, algorithm 1, line 7); a row of zeros stays."""

    #: Norms below this count as this.
    LEAST = 1e-12
    saved = ("_y", "_norms")

    def forward(self, x: Array, run: Pass) -> Array:
        """X / |X|, row by row."""
        y, norms = run.arrays.normalize_rows(x, self.LEAST)
        if run.training:
            self._y, self._norms = y, norms
        return y

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """What of G is across each row, over the row's norm."""
        return run.arrays.normalize_rows_backward(gradient, self._y, self._norms) if inputs else None


class BatchNorm(Module):
    """Batch normalization (Ioffe and Szegedy 2015, algorithm 1) over the nodes of all PEs.

    Training uses the statistics of the pass and moves the running averages towards them by ``MOMENTUM`` (the running
    variance is the unbiased one, as in PyTorch); evaluation uses the running averages. Sums are taken in float64.
    """

    EPSILON = 1e-5
    MOMENTUM = 0.1
    saved: tuple[str, ...] | None = ("_normal",)

    def __init__(self, name: str, columns: int) -> None:
        self.scale, self.shift = f"{name}.scale", f"{name}.shift"
        self.mean, self.variance = f"{name}.running_mean", f"{name}.running_variance"
        self.parameters = [Parameter(self.scale, (columns,), "ones"), Parameter(self.shift, (columns,), "zeros")]
        self.state = {self.mean: np.zeros(columns), self.variance: np.ones(columns)}

    def forward(self, x: Array, run: Pass) -> Array:
        """(X - mean) / sqrt(variance + epsilon) * scale + shift."""
        scale, shift = run.weights[self.scale], run.weights[self.shift]
        running = run.state[self.mean], run.state[self.variance]
        if not run.training:
            return run.arrays.normalize_with(x, running, scale, shift, self.EPSILON)
        sums = run.graph.total(run.arrays.column_moments(x, x))
        self._mean, self._inverse, moved = run.arrays.batch_statistics(
            sums, self._count(x, run), running, self.MOMENTUM, self.EPSILON, x.dtype
        )
        run.state[self.mean], run.state[self.variance] = moved
        self._normal, y = run.arrays.normalize(x, self._mean, self._inverse, scale, shift)
        return y

    def memory(self, columns: int, given: Given) -> Held:
        """The normalized input; sums of float64 are taken of a copy."""
        return Held(columns, given.rows * columns, 0, 3 * given.rows * columns)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """The statistics depend on every row, so the gradient needs two sums over the nodes of all PEs."""
        sums = run.arrays.column_moments(gradient, self._normal)
        run.gradients[self.shift], run.gradients[self.scale] = sums[0], sums[1]
        if not inputs:
            return None
        return run.arrays.normalize_backward(
            gradient, self._normal, run.graph.total(sums), self._count(gradient, run), self._inverse,
            run.weights[self.scale],
        )  # fmt: skip

    def _count(self, x: Array, run: Pass) -> int:
        """Of what the statistics are, over all PEs."""
        return run.graph.nodes


class ArcBatchNorm(BatchNorm):
    """``BatchNorm`` of what an earlier layer keeps of arcs, over the arcs of all PEs; rows of nodes pass as they are.

    Args:
        name: of the parameters.
        columns: of what is kept.
        of: what it is called.
    """

    saved = None

    def __init__(self, name: str, columns: int, of: str) -> None:
        super().__init__(name, columns)
        self.of, self.columns = of, columns
        self._counted: tuple[Any, int] | None = None

    def forward(self, x: Array, run: Pass) -> Array:
        """The input; the values of arcs are replaced by the normalized ones."""
        given = run.arcs[self.of]
        run.arcs[self.of] = super().forward(given, run)
        if run.training:
            # The layer that made them has them for its own backward pass: normalized, they are made again.
            self._given = given
            del self._normal
        return x

    def memory(self, columns: int, given: Given) -> Held:
        """Nothing of nodes; of arcs the normalized values with scale and shift. On the way back there are gradients by
        these and by what else layers keep, and both of what is normalized again in place of the one that was kept.
        """
        of_arcs = given.arcs * self.columns
        return Held(columns, 0, of_arcs, 4 * of_arcs)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """That by the values of arcs; the gradient by rows is the one that it is given."""
        scale, shift = run.weights[self.scale], run.weights[self.shift]
        self._normal, _ = run.arrays.normalize(self._given, self._mean, self._inverse, scale, shift)
        del self._given, _
        run.arc_gradients[self.of] = super().backward(run.arc_gradients[self.of], run)
        del self._normal
        return gradient

    def _count(self, x: Array, run: Pass) -> int:
        if self._counted is None or self._counted[0] is not run.graph:
            self._counted = run.graph, sum(run.graph.gathered(len(x)))
        return self._counted[1]


class LayerNorm(Module):
    """Layer normalization (Ba, Kiros and Hinton 2016, section 3): every row by its own mean and deviation."""

    EPSILON = 1e-5
    saved = ("_normal", "_inverse")

    def __init__(self, name: str, columns: int) -> None:
        self.scale, self.shift = f"{name}.scale", f"{name}.shift"
        self.parameters = [Parameter(self.scale, (columns,), "ones"), Parameter(self.shift, (columns,), "zeros")]

    def forward(self, x: Array, run: Pass) -> Array:
        """(X - mean) / sqrt(variance + epsilon) * scale + shift, row by row."""
        scale, shift = run.weights[self.scale], run.weights[self.shift]
        normal, inverse, y = run.arrays.layer_norm(x, scale, shift, self.EPSILON)
        if run.training:
            self._normal, self._inverse = normal, inverse
        return y

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """A row's statistics depend on the row alone."""
        sums = run.arrays.column_moments(gradient, self._normal)
        run.gradients[self.shift], run.gradients[self.scale] = sums[0], sums[1]
        if not inputs:
            return None
        return run.arrays.layer_norm_backward(gradient, self._normal, self._inverse, run.weights[self.scale])


#: What stands between a hidden layer's sum and its activation: settings value -> module.
NORMALIZATIONS = {"batch": BatchNorm, "layer": LayerNorm}


def normalized_or_shifted(name: str, columns: int, normalization: str, decay: float = 0.0) -> Module:
    """The normalization called ``normalization``, which shifts, too; for ``none`` a bias with the penalty ``decay``."""
    if normalization == "none":
        return Bias(name, columns, decay)
    return NORMALIZATIONS[normalization](f"{name}.norm", columns)


def between_linear(sizes: Sizes, hidden: int, decay: float, layers: Iterable[Module]) -> Chain:
    """A linear layer to ``hidden`` columns, ``layers`` of that width, and a linear layer that classifies."""
    return Chain(
        Linear("embedding", sizes.features, hidden, decay),
        Bias("embedding", hidden),
        *layers,
        Linear("classifier", hidden, sizes.classes, decay),
        Bias("classifier", sizes.classes),
    )
