"""Modules that process each node by itself, and normalizations over rows or over all nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from mgg.errors import InputError
from mgg.model.module import (
    ActivationMemory,
    Array,
    Chain,
    Features,
    Given,
    Module,
    Parameter,
    Pass,
    check_columns,
    passing,
)
from mgg.model.settings import Sizes


def _masking(columns: int, given: Given) -> int:
    """Return the entries of the gradients, plus a byte per entry of a mask; GPUs work in place, without a mask."""
    return given.rows * columns if given.gpu else passing(columns, columns, given) + given.rows * -(-columns // 4)


class Dropout(Module):
    """Zero each entry with probability ``rate`` and scale the others by 1 / (1 - rate), in training only.

    The mask depends only on seed, epoch, ``place`` (the dropout's index in the model), node id and column. For a sparse
    input, numbers are drawn for the stored entries only; they equal those that the dense input would get there.
    """

    saved = ("_mask",)

    def __init__(self, rate: float, place: int) -> None:
        if not 0 <= rate < 1:
            raise InputError(f"Dropout({rate!r}, {place!r}): the rate is at least 0 and less than 1")
        if not isinstance(place, int):
            raise InputError(
                f"Dropout({rate!r}, {place!r}): the place is a whole number, the dropout's own in the model"
            )
        self.rate, self.place = rate, place
        self._mask: Any = None

    def forward(self, x: Features, run: Pass) -> Features:
        """Return the masked input, dense or sparse as the input."""
        self._mask = None
        if not run.training or self.rate == 0:
            return x
        y, self._mask = run.arrays.dropout(x, run.graph.node_ids, run.draws(self.place), self.rate)
        return y

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Return the memory of the mask and the masked input; a sparse copy counts as features.

        On GPUs the mask is the state of a random number generator, 8 bytes per row, which is never moved; products with
        streamed rows apply it.
        """
        if not self.rate or given.sparse:
            return ActivationMemory(columns, saves=0)
        masking, output, states = _masking(columns, given), given.rows * columns, 2 * given.rows
        if given.streamed:
            return ActivationMemory(columns, states, 0, 0, states, saves=0)
        if given.gpu:
            return ActivationMemory(columns, output + states, 0, masking, states, ahead=output, back=masking, saves=0)
        mask = given.rows * -(-columns // 4)
        return ActivationMemory(columns, 2 * output, 0, masking, ahead=2 * output, back=masking, saves=mask)

    def handed_on(self, given: Given) -> Given:
        """Return the input's properties: sparse inputs stay sparse, and constant ones stay so if nothing is dropped."""
        return replace(given, constant=given.constant and not self.rate)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Apply the same mask to the gradient."""
        return gradient if self._mask is None else run.arrays.masked(gradient, self._mask)


class Linear(Module):
    """X W, with W [inputs, outputs] named ``name``.weight."""

    takes_sparse = True
    saved = ("_x",)

    def __init__(self, name: str, inputs: int, outputs: int, decay: float = 0.0) -> None:
        self.name, self.inputs, self.outputs = f"{name}.weight", inputs, outputs
        self.parameters = [Parameter(self.name, (inputs, outputs), "glorot", decay)]

    def forward(self, x: Features, run: Pass) -> Array:
        """Return X W, [rows, outputs]."""
        check_columns(self.name, self.inputs, x)
        if run.training:
            self._x = x
        return run.arrays.product(x, run.weights[self.name])

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Return the memory of the gradients; the input belongs to the module that made it."""
        both = passing(columns, self.outputs, given)
        saves = 0 if given.constant or given.streamed else given.rows * columns
        return ActivationMemory(self.outputs, 0, 0, both, ahead=given.rows * self.outputs, back=both, saves=saves)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Compute dW = X^T G and dX = G W^T."""
        run.gradients[self.name] = run.arrays.transposed_product(self._x, gradient)
        return run.arrays.product(gradient, run.weights[self.name].T) if inputs else None


class Embedding(Module):
    """A trained row per node, [nodes, columns] named ``name``.weight, for graphs without features.

    Like all weights, the rows of all nodes are on every PE.
    """

    saved = ()

    def __init__(self, name: str, nodes: int, columns: int, decay: float = 0.0) -> None:
        self.name, self.columns = f"{name}.weight", columns
        self.parameters = [Parameter(self.name, (nodes, columns), "glorot", decay)]
        self._known: tuple[Any, Array] | None = None

    def forward(self, x: Features, run: Pass) -> Array:
        """Return the rows of this PE's nodes, [rows, columns]; there is no input."""
        return run.arrays.rows(run.weights[self.name], self._places(run))

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Return the memory of the output; the gradient's rows count with the weights."""
        return ActivationMemory(self.columns, given.rows * self.columns, 0, given.rows * self.columns)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Put a gradient row per node of this PE into ``run.gradients``; all other rows are 0."""
        found = run.arrays.zeros(run.weights[self.name].shape, np.float64)
        run.arrays.add_to_rows(found, self._places(run), gradient)
        run.gradients[self.name] = found
        return None

    def _places(self, run: Pass) -> Array:
        """Return the rows of this PE's nodes on the device, always the same array."""
        if self._known is None or self._known[0] is not run.graph:
            assert run.graph.numbers is not None
            if (rows := self.parameters[0].shape[0]) != run.graph.nodes:
                told = f"it has {rows} rows, and the graph {run.graph.nodes} nodes: give it sizes.nodes"
                raise InputError(f"layer {self.name}: {told}").on_every_pe()
            self._known = run.graph, run.arrays.upload(run.graph.numbers)
        return self._known[1]


class Bias(Module):
    """X + b, with b [columns] named ``name``.bias."""

    saved = ()

    def __init__(self, name: str, columns: int, decay: float = 0.0) -> None:
        self.name, self.columns = f"{name}.bias", columns
        self.parameters = [Parameter(self.name, (columns,), "zeros", decay)]

    def forward(self, x: Array, run: Pass) -> Array:
        """Return X + b, in place: the module that made X does not need it any more."""
        check_columns(self.name, self.columns, x)
        return run.arrays.add_bias(x, run.weights[self.name])

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Return no memory besides the output."""
        return ActivationMemory(columns, saves=0)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Compute db, the sum of the rows of G."""
        run.gradients[self.name] = run.arrays.column_sums(gradient)
        return gradient


class Relu(Module):
    """max(X, 0), in place on GPUs: the module that made X does not need it any more."""

    saved = ("_y",)

    def forward(self, x: Array, run: Pass) -> Array:
        """Return max(X, 0)."""
        y = run.arrays.relu(x)
        if run.training:
            self._y = y
        return y

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Return the memory of the output."""
        output = given.rows * columns
        return ActivationMemory(columns, output, 0, _masking(columns, given), saves=output)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Return G where X > 0, else 0."""
        return run.arrays.where_positive(gradient, self._y)


class Elu(Module):
    """X where X > 0, else exp(X) - 1 (Clevert et al., ICLR 2016); in place on GPUs, like ReLU."""

    saved = ("_y",)

    def forward(self, x: Array, run: Pass) -> Array:
        """Return ELU(X)."""
        y = run.arrays.elu(x)
        if run.training:
            self._y = y
        return y

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Return the memory of the output; CPUs make an array of intermediate results as well."""
        output = given.rows * columns
        return ActivationMemory(columns, output, 0, output if given.gpu else 3 * output, saves=output)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Return G where X > 0, else G exp(X)."""
        return run.arrays.elu_backward(gradient, self._y)


class MeanOfHeads(Module):
    """The mean over ``heads`` equal parts of the columns (Velickovic et al. 2018, equation 6)."""

    saved = ()

    def __init__(self, heads: int) -> None:
        self.heads = heads

    def forward(self, x: Array, run: Pass) -> Array:
        """Return the mean, [rows, columns / heads]."""
        if x.shape[1] % self.heads:
            told = f"its input has {x.shape[1]} columns, which are no multiple of that"
            raise InputError(f"MeanOfHeads({self.heads}): {told}").on_every_pe()
        return x if self.heads == 1 else run.arrays.mean_of_heads(x, self.heads)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Return G / heads for each head."""
        if not inputs or self.heads == 1:
            return gradient if inputs else None
        return run.arrays.mean_of_heads_backward(gradient, self.heads)


class UnitRows(Module):
    """Each row divided by its Euclidean norm (Hamilton et al. 2017, algorithm 1, line 7); a zero row stays."""

    #: Lower bound of the norms.
    LEAST = 1e-12
    saved = ("_y", "_norms")

    def forward(self, x: Array, run: Pass) -> Array:
        """Return X / |X|, row by row."""
        y, norms = run.arrays.normalize_rows(x, self.LEAST)
        if run.training:
            self._y, self._norms = y, norms
        return y

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Return the memory of the output and the norms; the gradient by the input is made in place on GPUs."""
        output, norms = given.rows * columns, given.rows
        peak = output + norms if given.gpu else 3 * output
        return ActivationMemory(columns, output + norms, 0, peak, ahead=output + norms, back=peak, saves=output + norms)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Return the part of G orthogonal to each row, divided by the row's norm."""
        return run.arrays.normalize_rows_backward(gradient, self._y, self._norms) if inputs else None


class BatchNorm(Module):
    """Batch normalization (Ioffe and Szegedy 2015, algorithm 1) over the nodes of all PEs.

    Training uses the statistics of the pass and moves the running averages towards them by ``MOMENTUM`` (the running
    variance is unbiased, as in PyTorch). Evaluation uses the running averages. Sums are float64.
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
        """Return (X - mean) / sqrt(variance + epsilon) * scale + shift."""
        scale, shift = run.weights[self.scale], run.weights[self.shift]
        check_columns(self.scale, len(scale), x)
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

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Return the memory of the normalized input; the peak includes a copy for the float64 sums."""
        return ActivationMemory(columns, given.rows * columns, 0, 3 * given.rows * columns)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Return the gradient, which needs two sums over the nodes of all PEs: the statistics depend on every row."""
        sums = run.arrays.column_moments(gradient, self._normal)
        run.gradients[self.shift], run.gradients[self.scale] = sums[0], sums[1]
        if not inputs:
            return None
        return run.arrays.normalize_backward(
            gradient, self._normal, run.graph.total(sums), self._count(gradient, run), self._inverse,
            run.weights[self.scale],
        )  # fmt: skip

    def _count(self, x: Array, run: Pass) -> int:
        """Return the number of rows that the statistics cover, over all PEs."""
        return run.graph.nodes


class ArcBatchNorm(BatchNorm):
    """``BatchNorm`` of values that an earlier layer keeps of arcs, over the arcs of all PEs; node rows pass unchanged.

    Args:
        name: prefix of the parameters.
        columns: columns of the kept values.
        of: name of the kept values.
    """

    saved = None

    def __init__(self, name: str, columns: int, of: str) -> None:
        super().__init__(name, columns)
        self.of, self.columns = of, columns
        self._counted: tuple[Any, int] | None = None

    def forward(self, x: Array, run: Pass) -> Array:
        """Return the input; replace the values of arcs by the normalized ones."""
        given = run.arcs[self.of]
        run.arcs[self.of] = super().forward(given, run)
        if run.training:
            # The layer that made the values keeps them for its own backward pass, so recompute the normalized ones.
            self._given = given
            del self._normal
        return x

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Return the memory per arc: the normalized values, scaled and shifted. The peak of the backward pass adds the
        gradients by these and by other kept values, and both arrays of the recomputed normalization, without the kept
        one.
        """
        of_arcs = given.arcs * self.columns
        return ActivationMemory(columns, 0, of_arcs, 4 * of_arcs)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Compute the gradient by the values of arcs; return the gradient by rows unchanged."""
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
    """Layer normalization (Ba, Kiros and Hinton 2016, section 3): each row by its own mean and standard deviation."""

    EPSILON = 1e-5
    saved = ("_normal", "_inverse")

    def __init__(self, name: str, columns: int) -> None:
        self.scale, self.shift = f"{name}.scale", f"{name}.shift"
        self.parameters = [Parameter(self.scale, (columns,), "ones"), Parameter(self.shift, (columns,), "zeros")]

    def forward(self, x: Array, run: Pass) -> Array:
        """Return (X - mean) / sqrt(variance + epsilon) * scale + shift, row by row."""
        scale, shift = run.weights[self.scale], run.weights[self.shift]
        check_columns(self.scale, len(scale), x)
        normal, inverse, y = run.arrays.layer_norm(x, scale, shift, self.EPSILON)
        if run.training:
            self._normal, self._inverse = normal, inverse
        return y

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Return the gradient; a row's statistics depend on that row alone."""
        sums = run.arrays.column_moments(gradient, self._normal)
        run.gradients[self.shift], run.gradients[self.scale] = sums[0], sums[1]
        if not inputs:
            return None
        return run.arrays.layer_norm_backward(gradient, self._normal, self._inverse, run.weights[self.scale])


#: Modules between a hidden layer's sum and its activation, by setting.
NORMALIZATIONS = {"batch": BatchNorm, "layer": LayerNorm}


def normalized_or_shifted(name: str, columns: int, normalization: str, decay: float = 0.0) -> Module:
    """Return the normalization called ``normalization``, which also shifts; for ``none`` a bias with L2 ``decay``."""
    if normalization == "none":
        return Bias(name, columns, decay)
    return NORMALIZATIONS[normalization](f"{name}.norm", columns)


def between_linear(sizes: Sizes, hidden: int, decay: float, layers: Iterable[Module]) -> Chain:
    """Return a linear layer to ``hidden`` columns, ``layers`` of that width, and a linear classifier."""
    return Chain(
        Linear("embedding", sizes.features, hidden, decay),
        Bias("embedding", hidden),
        *layers,
        Linear("classifier", hidden, sizes.classes, decay),
        Bias("classifier", sizes.classes),
    )
