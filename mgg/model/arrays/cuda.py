"""Array operations on GPUs: cuBLAS, and fused elementwise kernels (``cuda_kernels``).

All arrays are float32 and row-major. Operations go to CuPy's current stream and never wait for it. Sums run in double
precision, those over arcs in trees of float32, in an order that depends on shapes and arcs alone: the same inputs give
the same bits. Products use no TF32, which is the default of CuPy and cuBLAS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np

from mgg.backend.api import Array, World
from mgg.kernel import random
from mgg.kernel.cuda import cublas
from mgg.kernel.random import Draws
from mgg.model.arrays import cuda_kernels as kernels
from mgg.model.arrays.host import LARGEST
from mgg.model.arrays.pieces import pieces_of
from mgg.model.features import DeviceCsr, StreamedRows

if TYPE_CHECKING:
    pass

#: Most threads that sum columns; enough to fill a GPU.
SUM_THREADS = 1 << 18
#: Matrices of at most this many entries are summed in one launch.
FEW = 1 << 16


@dataclass(frozen=True)
class Mask:
    """A dropout mask, computed where it is applied: the state of each row's random numbers, and the rate."""

    states: cupy.ndarray
    rate: float


class CudaArrays:
    """See ``mgg.model.arrays.Arrays``; supports float32 only."""

    def __init__(self, world: World) -> None:
        self.upload, self.operators = world.upload, world.operators

    def joined(self, parts: list[Array]) -> Array:
        """Return one float64 vector, several parts per launch. CuPy's own function uploads addresses for many parts."""
        flat = [part.reshape(-1) for part in parts]
        out, first = cupy.empty(sum(part.size for part in flat), np.float64), 0
        for place in range(0, len(flat), kernels.JOINED):
            some = flat[place : place + kernels.JOINED]
            ends = np.cumsum([part.size for part in some]).tolist()
            # Missing parts begin and end where the last one ends.
            lacking = kernels.JOINED - len(some)
            some, bounds = some + some[-1:] * lacking, ends + ends[-1:] * lacking
            if ends[-1]:
                kernels.join(*some, *bounds, out[first : first + ends[-1]], size=ends[-1])
            first += ends[-1]
        return out

    def arc_work(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``work``."""
        return work(*arguments)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return zeros."""
        return cupy.zeros(shape, dtype)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an uninitialized array."""
        return cupy.empty(shape, dtype)

    def rows(self, x: Array, places: Array) -> Array:
        """Return a copy of the rows."""
        return x[places]

    def put_rows(self, x: Array, places: Array, y: Array) -> None:
        """Write row by row."""
        x[places] = y

    def add_to_rows(self, x: Array, places: Array, y: Array) -> None:
        """Add row by row."""
        x[places] += y

    def product(self, x: Any, weight: Array, out: Array | None = None) -> Array:
        """Return X W."""
        if isinstance(x, DeviceCsr):
            return x.product(weight)
        if not isinstance(x, StreamedRows):
            return cublas.product(x, weight, out)
        out = cupy.empty((x.shape[0], weight.shape[1]), np.float32) if out is None else out
        for rows, block in self._blocks(x):
            cublas.product(block, weight, out[rows])
        return out

    def transposed_product(self, x: Any, gradient: Array) -> Array:
        """Return X^T G, in pieces of rows that are summed in float64."""
        if isinstance(x, DeviceCsr):
            return x.transposed_product(gradient).astype(np.float64)
        inputs, outputs = x.shape[1], gradient.shape[1]
        if isinstance(x, StreamedRows):
            total = cupy.zeros((inputs, outputs), np.float64)
            for some, block in self._blocks(x):
                total += self.transposed_product(block, gradient[some])
            return total
        rows = len(x)
        if not rows:
            return cupy.zeros((inputs, outputs), np.float64)
        pieces = pieces_of(rows, inputs, outputs)
        length = rows // pieces
        whole = pieces * length
        parts = cupy.empty((pieces + (whole < rows), inputs, outputs), np.float32)
        cublas.transposed_products(x[:whole], gradient[:whole], pieces, parts[:pieces])
        if whole < rows:
            cublas.product(x[whole:].T, gradient[whole:], parts[pieces])
        return self._sum_rows(parts.reshape(len(parts), inputs * outputs)).reshape(inputs, outputs)

    def column_sums(self, x: Array) -> Array:
        """Return the sum of the rows."""
        return self._sum_rows(x)

    def column_moments(self, x: Array, y: Array) -> Array:
        """Return the sums of X and X * Y."""
        columns = x.shape[1]
        lanes = _lanes(x)
        # Put the columns of both into one matrix, to sum them at once.
        side_by_side = cupy.empty((lanes, 2 * columns), np.float64)
        kernels.moments(x, y, x.size, lanes * columns, columns, side_by_side, size=lanes * columns)
        return self._sum_rows(side_by_side).reshape(2, columns)

    def inner(self, x: Array, y: Array) -> Array:
        """Return the sum of X * Y."""
        return self.column_moments(x.reshape(-1, 1), y.reshape(-1, 1))[1]

    def add_bias(self, x: Array, bias: Array) -> Array:
        """Return X + b."""
        return kernels.add_bias(x, bias, out=x)

    def relu(self, x: Array) -> Array:
        """Return max(X, 0), in place."""
        return kernels.relu(x, out=x)

    def where_positive(self, gradient: Array, y: Array) -> Array:
        """Return G where Y > 0, else 0, in place."""
        return kernels.where_positive(gradient, y, out=gradient)

    def dropout(self, x: Any, node_ids: Array, draws: Draws, rate: float) -> tuple[Any, Any]:
        """Return the masked input and the mask."""
        key = random.device_base(draws.seed), draws.epoch, draws.place
        if isinstance(x, DeviceCsr):
            values = cupy.empty(len(x.values), np.float32)
            kernels.masked(x.values, x.node_ids, x.indices, *key, rate, 1 / (1 - rate), values)
            return x.with_values(values), None
        states = cupy.empty(x.shape[0], np.uint64)
        kernels.row_states(node_ids, *key, states)
        mask = Mask(states, rate)
        if isinstance(x, StreamedRows):
            return x.masked(mask), None
        return self._apply(x, mask, cupy.empty(x.shape, np.float32)), mask

    def masked(self, gradient: Array, mask: Mask) -> Array:
        """Return the product, in place."""
        return self._apply(gradient, mask, gradient)

    def _apply(self, x: Array, mask: Mask, out: Array) -> Array:
        return kernels.masked_rows(x, mask.states, mask.rate, 1 / (1 - mask.rate), out=out)

    def _blocks(self, x: StreamedRows) -> Iterator[tuple[slice, Array]]:
        """Yield each block's rows and its values, masked."""
        for rows, block in x.blocks():
            yield rows, block if x.mask is None else self._apply(block, Mask(x.mask.states[rows], x.mask.rate), block)

    def scale_rows(self, x: Array, scale: Array, out: Array | None = None) -> Array:
        """Return X * s."""
        return kernels.scale_rows(x, scale, out=cupy.empty(x.shape, np.float32) if out is None else out)

    def add_and_scale(self, x: Array, y: Array, scale: Array) -> Array:
        """Return (X + Y) * s."""
        return kernels.add_and_scale(x, y, scale, out=x)

    def add_multiple(self, x: Array, epsilon: Array, y: Array) -> Array:
        """Return X + (1 + epsilon) Y."""
        return kernels.add_multiple(x, y, epsilon, out=x)

    def combined(self, x: Array, a: float, y: Array, b: float) -> Array:
        """Return a X + b Y."""
        return kernels.combined(x, y, a, b, out=x)

    def times(self, x: Array, y: Array) -> Array:
        """Return X * Y."""
        return kernels.times(x, y, out=x)

    def elu(self, x: Array) -> Array:
        """Return X or exp(X) - 1, in place."""
        return kernels.elu(x, out=x)

    def elu_backward(self, gradient: Array, y: Array) -> Array:
        """Return G or G (Y + 1), in place."""
        return kernels.elu_backward(gradient, y, out=gradient)

    def mean_of_heads(self, x: Array, heads: int) -> Array:
        """Return the mean."""
        out = cupy.empty((len(x), x.shape[1] // heads), np.float32)
        kernels.mean_of_heads(x, heads, out.shape[1], out)
        return out

    def mean_of_heads_backward(self, gradient: Array, heads: int) -> Array:
        """Return G / heads for each head."""
        out = cupy.empty((len(gradient), gradient.shape[1] * heads), np.float32)
        kernels.mean_of_heads_backward(gradient, heads, gradient.shape[1], out)
        return out

    def head_products(self, x: Array, vectors: Array) -> Array:
        """Return the inner products."""
        return _products(x, vectors, len(vectors), len(vectors))

    def head_products_backward(self, x: Array, vectors: Array, gradient: Array, by_x: Array) -> Array:
        """Return G^T X per head."""
        kernels.add_head_products_backward(gradient, vectors, *vectors.shape, by_x)
        lanes = _lanes(x)
        partial = cupy.empty((lanes, x.shape[1]), np.float64)
        kernels.vector_gradients(x, gradient, len(x), *vectors.shape, lanes, partial)
        return self._sum_rows(partial).reshape(*vectors.shape)

    def inner_products(self, x: Array, y: Array, heads: int) -> Array:
        """Return the inner products per row and head."""
        return _products(x, y, heads, len(x) * heads)

    def arc_sums(self, ptr: Array, ends: Array, weights: Array | None, x: Array) -> Array:
        """Return the sums."""
        out = cupy.empty((len(ptr) - 1, x.shape[1]), np.float32)
        self.operators.spmm_rows(ptr, ends, weights, x, out, False)
        return out

    def normalize_rows(self, x: Array, least: float) -> tuple[Array, Array]:
        """Return rows of norm 1, and the norms."""
        norms = cupy.empty((len(x), 1), np.float32)
        kernels.row_norms(x, x.shape[1], least, norms)
        return kernels.over_norms(x, norms, out=cupy.empty(x.shape, np.float32)), norms

    def normalize_rows_backward(self, gradient: Array, y: Array, norms: Array) -> Array:
        """Return (G - Y <G, Y>) / norm, in place."""
        along = cupy.empty(norms.shape, np.float32)
        kernels.row_products(gradient, y, y.shape[1], along)
        return kernels.normalize_rows_backward(gradient, y, along, norms, out=gradient)

    def layer_norm(self, x: Array, scale: Array, shift: Array, epsilon: float) -> tuple[Array, Array, Array]:
        """Return N, 1 / deviation, and N scaled and shifted."""
        mean, inverse = (cupy.empty((len(x), 1), np.float32) for _ in range(2))
        kernels.row_statistics(x, x.shape[1], epsilon, mean, inverse)
        normal, y = (cupy.empty(x.shape, np.float32) for _ in range(2))
        kernels.row_normal(x, mean, inverse, out=normal)
        return normal, inverse, kernels.scaled_and_shifted(normal, scale, shift, out=y)

    def layer_norm_backward(self, gradient: Array, normal: Array, inverse: Array, scale: Array) -> Array:
        """Return the gradient by the input, in place."""
        mean, along = (cupy.empty(inverse.shape, np.float32) for _ in range(2))
        kernels.row_gradient_means(gradient, normal, scale, normal.shape[1], mean, along)
        return kernels.layer_norm_backward(gradient, normal, scale, mean, along, inverse, out=gradient)

    def batch_statistics(
        self, sums: Array, nodes: int, running: tuple[Array, Array], momentum: float, epsilon: float, dtype: Any
    ) -> tuple[Array, Array, tuple[Array, Array]]:
        """Return the mean, 1 / deviation, and the new running statistics."""
        columns = sums.shape[1]
        mean, inverse = (cupy.empty(columns, np.float32) for _ in range(2))
        new_mean, new_variance = (cupy.empty(columns, np.float64) for _ in range(2))
        kernels.batch_statistics(
            sums[0], sums[1], *running, float(nodes), momentum, epsilon, mean, inverse, new_mean, new_variance
        )
        return mean, inverse, (new_mean, new_variance)

    def normalize(self, x: Array, mean: Array, inverse: Array, scale: Array, shift: Array) -> tuple[Array, Array]:
        """Return normalized X, and that scaled and shifted."""
        normal, y = (cupy.empty(x.shape, np.float32) for _ in range(2))
        kernels.normalize(x, mean, inverse, scale, shift, normal, y)
        return normal, y

    def normalize_with(
        self, x: Array, running: tuple[Array, Array], scale: Array, shift: Array, epsilon: float
    ) -> Array:
        """Return X normalized with running statistics."""
        factor, offset = (cupy.empty(x.shape[1], np.float32) for _ in range(2))
        kernels.running_factors(*running, scale, shift, epsilon, factor, offset)
        y = cupy.empty(x.shape, np.float32)
        kernels.affine(x, factor, offset, y)
        return y

    def normalize_backward(
        self, gradient: Array, normal: Array, sums: Array, nodes: int, inverse: Array, scale: Array
    ) -> Array:
        """Return the gradient by the input, in place."""
        kernels.normalize_backward(normal, sums[0], sums[1], float(nodes), inverse, scale, gradient)
        return gradient

    def class_sums(self, logits: Array, labels: Array, chosen: Array, splits: Array, judge: int, count: int) -> Array:
        """Return the loss of split ``judge`` and the hits of each split, in one launch and a sum."""
        rows = len(chosen)
        found = cupy.empty((max(1, min(rows, SUM_THREADS)), 1 + count), np.float64)
        kernels.class_sums(
            logits, labels, chosen, splits, rows, len(found), logits.shape[1], judge, count, found, size=len(found)
        )
        return self._sum_rows(found)

    def loss_and_gradient(
        self, logits: Array, labels: Array, chosen: Array, weights: Array, count: int
    ) -> tuple[Array, Array]:
        """Return the loss and its gradient, which overwrites the logits."""
        # log(sum(exp(logits))) per row, infinite for rows that are not chosen.
        log_sums = cupy.full(len(logits), np.inf, np.float64)
        losses = cupy.empty(len(chosen), np.float64)
        kernels.row_losses(logits, labels, weights, chosen, logits.shape[1], float(count), losses, log_sums)
        loss = self._sum_rows(losses.reshape(-1, 1))
        return loss, kernels.logit_gradient(logits, log_sums, labels, weights, float(count), out=logits)

    def classes(self, logits: Array) -> Array:
        """Return the column of each row's largest entry."""
        return cupy.argmax(logits, axis=1)

    def finite(self, x: Array) -> Array:
        """Return 1 or 0."""
        found = cupy.full((1,), 1, np.float64)
        kernels.refute_finite(x, LARGEST, found)
        return found

    def move(self, x: Array, y: Array, allowed: Array) -> None:
        """Launch one kernel."""
        kernels.move(y, allowed, x)

    def adam(
        self, weights: Array, gradients: Array, first: Array, second: Array, decay: Array, rates: Array, allowed: Array
    ) -> None:
        """Apply one step in one kernel."""
        kernels.adam(gradients, decay, rates, allowed, weights, first, second)

    def shrink(self, weights: Array, decay: Array, rates: Array, allowed: Array) -> None:
        """Launch one kernel."""
        kernels.shrink(decay, rates, allowed, weights)

    def binary_cross_entropy(self, logits: Array, tasks: Array, chosen: Array) -> Array:
        """Return the sum."""
        return self._binary(logits, tasks, chosen, 1, cupy.full((1,), 0, np.float32))

    def binary_loss_and_gradient(self, logits: Array, tasks: Array, chosen: Array, count: int) -> tuple[Array, Array]:
        """Return the loss and its gradient."""
        gradient = cupy.full(logits.shape, 0, np.float32)
        return self._binary(logits, tasks, chosen, count, gradient), gradient

    def _binary(self, logits: Array, tasks: Array, chosen: Array, count: int, gradient: Array) -> Array:
        """Return the loss [1]; fill ``gradient`` if it has the shape of the logits."""
        columns = logits.shape[1]
        losses = cupy.empty(len(chosen) * columns, np.float64)
        kept = gradient.shape == logits.shape
        kernels.binary_losses(logits, tasks, chosen, columns, float(count), int(kept), losses, gradient)
        return self._sum_rows(losses.reshape(-1, 1))

    def decisions(self, logits: Array, tasks: Array, chosen: Array) -> Array:
        """Return the three counts."""
        found = cupy.empty((len(chosen), 3), np.float64)
        kernels.decisions(logits, tasks, chosen, logits.shape[1], found, size=len(chosen))
        return self._sum_rows(found)

    def _sum_rows(self, x: Array) -> Array:
        """Return the column sums of a contiguous matrix, float64 [columns].

        CuPy's own sum gives all rows of a few columns to one block of threads: a single launch for small matrices, but
        too few threads for large ones. Here thread i adds the entries i, i + T, i + 2 T and so on. T is a multiple of
        the columns, so the thread stays in its column, and adjacent threads read adjacent entries. The partial sums are
        a shorter matrix with the same columns.
        """
        while len(x) != 1 or x.dtype != np.float64:
            if 0 < x.size <= FEW:
                return x.sum(axis=0, dtype=np.float64)
            lanes = _lanes(x)
            shorter = cupy.empty((lanes, x.shape[1]), np.float64)
            kernels.sums(x, x.size, shorter.size, shorter)
            x = shorter
        return x.reshape(-1)


def _lanes(x: Array) -> int:
    """Return the number of rows of partial sums: at least 32 rows of ``x`` each, or all if there are fewer."""
    rows, columns = x.shape
    return max(1, min(rows // 32, SUM_THREADS // max(columns, 1)))


def _products(x: Array, y: Array, heads: int, rows: int) -> Array:
    """Return the inner products of each of ``heads`` parts of the rows of X with Y [``rows``, columns], cycled."""
    products = cupy.empty((len(x), heads), np.float32)
    if products.size:
        kernels.head_products(x, y, rows, x.shape[1] // heads, products)
    return products
