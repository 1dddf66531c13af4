"""The table of array operations on CPU ranks: NumPy, and SciPy for sparse features."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from scipy import sparse

from mgg.backend.api import Array
from mgg.kernel import random
from mgg.kernel.cpu import sums
from mgg.kernel.random import Draws
from mgg.kernel.threads import deal
from mgg.model.loss import (
    binary_cross_entropy,
    binary_cross_entropy_gradient,
    correct,
    cross_entropy,
    cross_entropy_gradient,
    decisions,
)

#: Largest absolute value of losses and gradients; beyond it training ends, since float32 must hold a gradient's square.
LARGEST = 1e18
#: Rows per piece of a transposed product: float32 sums of more rows, those of arcs above all, lose digits.
PIECE = 1024


class HostArrays:
    """See ``mgg.model.arrays.Arrays``; supports any floating type."""

    operators = None

    def __init__(self) -> None:
        self._stored: tuple[sparse.csr_array, Array, Array, sparse.csr_array] | None = None

    def upload(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself."""
        return array

    def joined(self, parts: list[Array]) -> Array:
        """Return one vector."""
        return np.concatenate([part.ravel() for part in parts])

    def arc_work(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``work``."""
        return work(*arguments)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return zeros."""
        return np.zeros(shape, dtype)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an uninitialized array."""
        return np.empty(shape, dtype)

    def rows(self, x: Array, places: Array) -> Array:
        """Return a copy of the rows."""
        if not x.flags.c_contiguous:
            return x[places]
        out = np.empty((len(places), *x.shape[1:]), x.dtype)
        sums.pick_rows(_matrix(x), places, _matrix(out))
        return out

    def put_rows(self, x: Array, places: Array, y: Array) -> None:
        """Write row by row."""
        sums.put_rows(_matrix(y), places, _matrix(x))

    def add_to_rows(self, x: Array, places: Array, y: Array) -> None:
        """Add row by row."""
        x[places] += y

    def product(self, x: Any, weight: Array, out: Array | None = None) -> Array:
        """Return X W."""
        return x @ weight if out is None or hasattr(x, "toarray") else np.matmul(x, weight, out=out)

    def transposed_product(self, x: Any, gradient: Array) -> Array:
        """Return X^T G; for dense X in pieces of rows, which are summed in float64."""
        if sparse.issparse(x) or len(x) <= PIECE:
            return (x.T @ gradient).astype(np.float64)
        found = np.zeros((x.shape[1], gradient.shape[1]))
        for first in range(0, len(x), PIECE):
            found += x[first : first + PIECE].T @ gradient[first : first + PIECE]
        return found

    def column_sums(self, x: Array) -> Array:
        """Return the sum of the rows."""
        return x.sum(axis=0, dtype=np.float64)

    def column_moments(self, x: Array, y: Array) -> Array:
        """Return the sums of X and X * Y."""
        wide = x.astype(np.float64)
        return np.stack([wide.sum(axis=0), np.einsum("ij,ij->j", wide, wide if y is x else y)])

    def inner(self, x: Array, y: Array) -> Array:
        """Return the sum of X * Y."""
        return np.einsum("ij,ij->", x, y, dtype=np.float64).reshape(1)

    def add_bias(self, x: Array, bias: Array) -> Array:
        """Return X + b."""
        x += bias
        return x

    def relu(self, x: Array) -> Array:
        """Return max(X, 0)."""
        return np.maximum(x, 0)

    def where_positive(self, gradient: Array, y: Array) -> Array:
        """Return G where Y > 0, else 0."""
        return gradient * (y > 0)

    def dropout(self, x: Any, node_ids: Array, draws: Draws, rate: float) -> tuple[Any, Any]:
        """Return the masked input and the mask."""
        if sparse.issparse(x):
            return self._dropout_stored(x, node_ids, draws, rate), None
        kept = random.uniform(draws.seed, draws.stream, node_ids, x.shape[1]) >= rate
        mask = np.multiply(kept, 1 / (1 - rate), dtype=x.dtype)
        return x * mask, mask

    def _dropout_stored(self, x: sparse.csr_array, node_ids: Array, draws: Draws, rate: float) -> sparse.csr_array:
        # The input features are the same array in every epoch, so cache their coordinates and the output.
        if self._stored is None or self._stored[0] is not x:
            self._stored = (x, np.repeat(node_ids, np.diff(x.indptr)), x.indices.astype(np.int64), x.copy())
        _, rows, columns, out = self._stored
        kept = random.uniform_at(draws.seed, draws.stream, rows, columns) >= rate
        np.multiply(x.data, kept, out=out.data)
        out.data *= 1 / (1 - rate)
        return out

    def masked(self, gradient: Array, mask: Any) -> Array:
        """Return the product."""
        return gradient * mask

    def scale_rows(self, x: Array, scale: Array, out: Array | None = None) -> Array:
        """Return X * s."""
        return np.multiply(x, scale, out=out)

    def add_and_scale(self, x: Array, y: Array, scale: Array) -> Array:
        """Return (X + Y) * s."""
        x += y
        x *= scale
        return x

    def add_multiple(self, x: Array, epsilon: Array, y: Array) -> Array:
        """Return X + (1 + epsilon) Y."""
        x += (1 + epsilon) * y
        return x

    def combined(self, x: Array, a: float, y: Array, b: float) -> Array:
        """Return a X + b Y."""
        x *= a
        x += b * y
        return x

    def times(self, x: Array, y: Array) -> Array:
        """Return X * Y."""
        x *= y
        return x

    def elu(self, x: Array) -> Array:
        """Return X or exp(X) - 1."""
        return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))

    def elu_backward(self, gradient: Array, y: Array) -> Array:
        """Return G or G (Y + 1)."""
        return gradient * np.where(y > 0, 1, y + 1)

    def mean_of_heads(self, x: Array, heads: int) -> Array:
        """Return the mean."""
        return x.reshape(len(x), heads, x.shape[1] // heads).mean(axis=1)

    def mean_of_heads_backward(self, gradient: Array, heads: int) -> Array:
        """Return G / heads for each head."""
        return np.tile(gradient / heads, heads)

    def head_products(self, x: Array, vectors: Array) -> Array:
        """Return the inner products."""
        return np.einsum("nhf,hf->nh", x.reshape(len(x), *vectors.shape), vectors)

    def head_products_backward(self, x: Array, vectors: Array, gradient: Array, by_x: Array) -> Array:
        """Return G^T X per head."""
        shape = (len(x), *vectors.shape)
        by_x += (gradient[:, :, None] * vectors).reshape(by_x.shape)
        return np.einsum("nhf,nh->hf", x.reshape(shape), gradient, dtype=np.float64)

    def inner_products(self, x: Array, y: Array, heads: int) -> Array:
        """Return the inner products per row and head."""
        shape = (len(x), heads, x.shape[1] // heads)
        return np.einsum("nhf,nhf->nh", x.reshape(shape), y.reshape(shape))

    def arc_sums(self, ptr: Array, ends: Array, weights: Array | None, x: Array) -> Array:
        """Return the sums."""
        out = np.empty((len(ptr) - 1, x.shape[1]), x.dtype)
        x = np.ascontiguousarray(x)
        given = np.empty(0, x.dtype) if weights is None else weights
        deal(ptr, lambda first, last: sums.spmm_rows(ptr, ends, given, x, out, False, first, last))
        return out

    def normalize_rows(self, x: Array, least: float) -> tuple[Array, Array]:
        """Return rows of norm 1, and the norms."""
        norms = np.sqrt(np.einsum("ij,ij->i", x, x, dtype=np.float64)).astype(x.dtype)[:, None]
        np.maximum(norms, least, out=norms)
        return x / norms, norms

    def normalize_rows_backward(self, gradient: Array, y: Array, norms: Array) -> Array:
        """Return (G - Y <G, Y>) / norm."""
        along = np.einsum("ij,ij->i", gradient, y, dtype=np.float64).astype(y.dtype)
        return (gradient - y * along[:, None]) / norms

    def layer_norm(self, x: Array, scale: Array, shift: Array, epsilon: float) -> tuple[Array, Array, Array]:
        """Return N, 1 / deviation, and N scaled and shifted."""
        mean, variance = (part.astype(x.dtype)[:, None] for part in _row_statistics(x))
        inverse = 1 / np.sqrt(variance + x.dtype.type(epsilon))
        normal = (x - mean) * inverse
        return normal, inverse, normal * scale + shift

    def layer_norm_backward(self, gradient: Array, normal: Array, inverse: Array, scale: Array) -> Array:
        """Return the gradient by the input."""
        scaled = gradient * scale
        mean = scaled.mean(axis=1, keepdims=True, dtype=np.float64).astype(scaled.dtype)
        along = (scaled * normal).mean(axis=1, keepdims=True, dtype=np.float64).astype(scaled.dtype)
        return (scaled - mean - normal * along) * inverse

    def batch_statistics(
        self, sums: Array, nodes: int, running: tuple[Array, Array], momentum: float, epsilon: float, dtype: Any
    ) -> tuple[Array, Array, tuple[Array, Array]]:
        """Return the mean, 1 / deviation, and the new running statistics."""
        mean, square = sums / nodes
        variance = np.maximum(square - mean * mean, 0)
        unbiased = variance * (nodes / max(nodes - 1, 1))
        moved = tuple((1 - momentum) * old + momentum * new for old, new in zip(running, (mean, unbiased), strict=True))
        return mean.astype(dtype), (1 / np.sqrt(variance + epsilon)).astype(dtype), (moved[0], moved[1])

    def normalize(self, x: Array, mean: Array, inverse: Array, scale: Array, shift: Array) -> tuple[Array, Array]:
        """Return normalized X, and that scaled and shifted."""
        normal = x - mean
        normal *= inverse
        y = normal * scale
        y += shift
        return normal, y

    def normalize_with(
        self, x: Array, running: tuple[Array, Array], scale: Array, shift: Array, epsilon: float
    ) -> Array:
        """Return X normalized with running statistics."""
        mean, variance = running
        factor = scale / np.sqrt(variance + epsilon)
        offset = shift - mean * factor
        y = x * factor.astype(x.dtype)
        y += offset.astype(x.dtype)
        return y

    def normalize_backward(
        self, gradient: Array, normal: Array, sums: Array, nodes: int, inverse: Array, scale: Array
    ) -> Array:
        """Return the gradient by the input."""
        by_shift, by_scale = (sums / nodes).astype(gradient.dtype)
        result = normal * -by_scale
        result += gradient
        result -= by_shift
        result *= inverse * scale
        return result

    def class_sums(self, logits: Array, labels: Array, chosen: Array, splits: Array, judge: int, count: int) -> Array:
        """Return the loss of split ``judge`` and the hits of each split."""
        hits = [correct(logits, labels, chosen[splits == split]) for split in range(count)]
        return np.array([cross_entropy(logits, labels, chosen[splits == judge]), *hits])

    def loss_and_gradient(
        self, logits: Array, labels: Array, chosen: Array, weights: Array, count: int
    ) -> tuple[Array, Array]:
        """Return the loss and its gradient."""
        loss = cross_entropy(logits, labels, chosen, weights) / count
        return np.array([loss]), cross_entropy_gradient(logits, labels, chosen, count, weights)

    def binary_cross_entropy(self, logits: Array, tasks: Array, chosen: Array) -> Array:
        """Return the sum."""
        return np.array([binary_cross_entropy(logits, tasks, chosen)])

    def binary_loss_and_gradient(self, logits: Array, tasks: Array, chosen: Array, count: int) -> tuple[Array, Array]:
        """Return the loss and its gradient."""
        loss = binary_cross_entropy(logits, tasks, chosen) / count
        return np.array([loss]), binary_cross_entropy_gradient(logits, tasks, chosen, count)

    def decisions(self, logits: Array, tasks: Array, chosen: Array) -> Array:
        """Return the three counts."""
        return decisions(logits, tasks, chosen)

    def classes(self, logits: Array) -> Array:
        """Return the column of each row's largest entry."""
        return np.argmax(logits, axis=1)

    def finite(self, x: Array) -> Array:
        """Return 1 or 0."""
        return np.array([float((np.abs(x) <= LARGEST).all())])

    def move(self, x: Array, y: Array, allowed: Array) -> None:
        """Copy Y to X."""
        if allowed[0]:
            x[...] = y

    def adam(
        self, weights: Array, gradients: Array, first: Array, second: Array, decay: Array, rates: Array, allowed: Array
    ) -> None:
        """Apply one step."""
        if not allowed[0]:
            return
        # Python numbers do not change the arrays' type.
        to_first, to_second, rate, correction, above, _ = rates.tolist()
        gradient = gradients.astype(weights.dtype)
        gradient += decay * weights
        first += to_first * (gradient - first)
        second += to_second * (gradient * gradient - second)
        weights -= rate * first / (np.sqrt(second / correction) + above)

    def shrink(self, weights: Array, decay: Array, rates: Array, allowed: Array) -> None:
        """Shrink W in place."""
        if allowed[0]:
            weights -= (float(rates[5]) * decay).astype(weights.dtype) * weights


def _row_statistics(x: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and variance of each row, float64."""
    wide = x.astype(np.float64)
    return wide.mean(axis=1), wide.var(axis=1)


def _matrix(x: Array) -> Array:
    """Return ``x`` as a matrix, with all axes but the first merged."""
    return x.reshape(len(x), prod(x.shape[1:]))
