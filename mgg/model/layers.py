"""Modules that look at one node at a time: dropout, linear, bias, ReLU; and batch normalization over all nodes."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from mgg.kernel import random
from mgg.model.module import Array, Features, Module, Parameter, Pass

#: Dropout modules of one model; the stream of random numbers is epoch * this + the module's place.
MAX_DROPOUTS = 1 << 10


class Dropout(Module):
    """Zero each entry with probability ``rate`` and scale the others by 1 / (1 - rate), in training only.

    The mask depends on seed, epoch, ``place`` (which dropout of the model this is), node id and column alone. On a CSR
    input the numbers are drawn for the stored entries only, and are those that the dense input would get there.
    """

    def __init__(self, rate: float, place: int) -> None:
        self.rate, self.place = rate, place
        self._mask: Array | None = None
        self._stored: tuple[Features, Array, Array, sparse.csr_array] | None = None

    def forward(self, x: Features, run: Pass) -> Features:
        """Masked input, of the type of the input."""
        self._mask = None
        if not run.training or self.rate == 0:
            return x
        stream = run.epoch * MAX_DROPOUTS + self.place
        if sparse.issparse(x):
            return self._forward_stored(x, run, stream)
        kept = random.uniform(run.seed, stream, run.graph.node_ids, x.shape[1]) >= self.rate
        self._mask = np.multiply(kept, 1 / (1 - self.rate), dtype=x.dtype)
        return x * self._mask

    def _forward_stored(self, x: sparse.csr_array, run: Pass, stream: int) -> sparse.csr_array:
        # The input features are the same array in every epoch: their coordinates and the output are kept.
        if self._stored is None or self._stored[0] is not x:
            rows = np.repeat(run.graph.node_ids, np.diff(x.indptr))
            self._stored = (x, rows, x.indices.astype(np.int64), x.copy())
        _, rows, columns, out = self._stored
        kept = random.uniform_at(run.seed, stream, rows, columns) >= self.rate
        np.multiply(x.data, kept, out=out.data)
        out.data *= 1 / (1 - self.rate)
        return out

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """The same mask on the gradient."""
        return gradient if self._mask is None else gradient * self._mask


class Linear(Module):
    """X W, with W [inputs, outputs] called ``name``.weight."""

    def __init__(self, name: str, inputs: int, outputs: int, decay: float = 0.0) -> None:
        self.name, self.inputs, self.outputs = f"{name}.weight", inputs, outputs
        self.parameters = [Parameter(self.name, (inputs, outputs), "glorot", decay)]

    def forward(self, x: Features, run: Pass) -> Array:
        """X W [rows, outputs]."""
        if run.training:
            self._x = x
        return x @ run.weights[self.name]

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """dW = X^T G, dX = G W^T."""
        run.gradients[self.name] = (self._x.T @ gradient).astype(np.float64)
        return gradient @ run.weights[self.name].T if inputs else None


class Bias(Module):
    """X + b, with b [columns] called ``name``.bias."""

    def __init__(self, name: str, columns: int, decay: float = 0.0) -> None:
        self.name = f"{name}.bias"
        self.parameters = [Parameter(self.name, (columns,), "zeros", decay)]

    def forward(self, x: Array, run: Pass) -> Array:
        """X + b, in place: the module before it made X and keeps no use for it."""
        x += run.weights[self.name]
        return x

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """db = sum of the rows of G."""
        run.gradients[self.name] = gradient.sum(axis=0, dtype=np.float64)
        return gradient


class Relu(Module):
    """max(X, 0)."""

    def forward(self, x: Array, run: Pass) -> Array:
        """max(X, 0)."""
        y = np.maximum(x, 0)
        if run.training:
            self._positive = y > 0
        return y

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """G where X > 0."""
        return gradient * self._positive


class BatchNorm(Module):
    """Batch normalization (Ioffe and Szegedy 2015, algorithm 1) over the nodes of all PEs.

    Training uses the statistics of the pass and moves the running averages towards them by ``MOMENTUM`` (the running
    variance is the unbiased one, as in PyTorch); evaluation uses the running averages. Sums are taken in float64.
    """

    EPSILON = 1e-5
    MOMENTUM = 0.1

    def __init__(self, name: str, columns: int) -> None:
        self.scale, self.shift = f"{name}.scale", f"{name}.shift"
        self.mean, self.variance = f"{name}.running_mean", f"{name}.running_variance"
        self.parameters = [Parameter(self.scale, (columns,), "ones"), Parameter(self.shift, (columns,), "zeros")]
        self.state = {self.mean: np.zeros(columns), self.variance: np.ones(columns)}

    def forward(self, x: Array, run: Pass) -> Array:
        """(X - mean) / sqrt(variance + epsilon) * scale + shift."""
        scale, shift = run.weights[self.scale], run.weights[self.shift]
        if not run.training:
            factor = scale / np.sqrt(run.state[self.variance] + self.EPSILON)
            offset = shift - run.state[self.mean] * factor
            y = x * factor.astype(x.dtype)
            y += offset.astype(x.dtype)
            return y
        mean, variance = self._statistics(x, run)
        self._inverse = (1 / np.sqrt(variance + self.EPSILON)).astype(x.dtype)
        self._normal = x - mean.astype(x.dtype)
        self._normal *= self._inverse
        y = self._normal * scale
        y += shift
        return y

    def _statistics(self, x: Array, run: Pass) -> tuple[Array, Array]:
        wide = x.astype(np.float64)
        sums = run.graph.total(np.stack([wide.sum(axis=0), np.einsum("ij,ij->j", wide, wide)]))
        mean, square = sums / run.graph.nodes
        variance = np.maximum(square - mean * mean, 0)
        unbiased = variance * (run.graph.nodes / max(run.graph.nodes - 1, 1))
        for name, value in ((self.mean, mean), (self.variance, unbiased)):
            run.state[name] = (1 - self.MOMENTUM) * run.state[name] + self.MOMENTUM * value
        return mean, variance

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """The statistics depend on every row, so the gradient needs two sums over the nodes of all PEs."""
        wide = gradient.astype(np.float64)
        sums = np.stack([wide.sum(axis=0), np.einsum("ij,ij->j", wide, self._normal)])
        run.gradients[self.shift], run.gradients[self.scale] = sums
        if not inputs:
            return None
        shift, scale = (run.graph.total(sums) / run.graph.nodes).astype(gradient.dtype)
        result: Array = self._normal * -scale
        result += gradient
        result -= shift
        result *= self._inverse * run.weights[self.scale]
        return result
