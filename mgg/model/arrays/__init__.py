"""What models compute row by row, as one table of operations; every kind of device has its own (``host``, ``cuda``).

Layers are written with this table alone, so they read like their formulas and know nothing of devices. Arrays are the
device's; ``x`` and ``gradient`` are [rows, columns] of this PE, and sums over them are float64 and over this PE's rows.
An operation that says so may change its first argument and return it: whoever made the array has no more use for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from mgg.backend.api import Array, World
from mgg.kernel.random import Draws
from mgg.model.arrays.host import LARGEST, HostArrays

__all__ = ["LARGEST", "Arrays", "HostArrays", "arrays_of"]


class Arrays(Protocol):
    """The table.

    Attributes:
        operators: what launches kernels on the device; None on a host.
    """

    operators: Any

    def upload(self, array: np.ndarray) -> Array:
        """``array`` on the device."""

    def joined(self, parts: list[Array]) -> Array:
        """The entries of all ``parts``, float64, in one vector."""

    def arc_work(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """What ``work``, which goes over arcs, makes of ``arguments``."""

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Zeros."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Any numbers."""

    def rows(self, x: Array, places: Array) -> Array:
        """The rows of X at ``places`` (int64), a new array."""

    def put_rows(self, x: Array, places: Array, y: Array) -> None:
        """Y as the rows at ``places`` of X, which is in C order."""

    def add_to_rows(self, x: Array, places: Array, y: Array) -> None:
        """Add row i of Y to row ``places[i]`` of X, in place; no place comes twice."""

    def product(self, x: Any, weight: Array, out: Array | None = None) -> Array:
        """X W for dense or sparse X; ``out`` may get it, whose rows are apart, of dense X."""

    def transposed_product(self, x: Any, gradient: Array) -> Array:
        """X^T G [columns of x, columns of gradient], float64, for dense or sparse X."""

    def column_sums(self, x: Array) -> Array:
        """Sum of the rows, float64 [columns]."""

    def column_moments(self, x: Array, y: Array) -> Array:
        """Sums of the rows of X and of X * Y, float64 [2, columns]."""

    def inner(self, x: Array, y: Array) -> Array:
        """Sum of X * Y, float64 [1]."""

    def add_bias(self, x: Array, bias: Array) -> Array:
        """X + b, in place."""

    def relu(self, x: Array) -> Array:
        """max(X, 0); may change ``x``."""

    def where_positive(self, gradient: Array, y: Array) -> Array:
        """G where Y > 0, else 0; may change ``gradient``."""

    def dropout(self, x: Any, node_ids: Array, draws: Draws, rate: float) -> tuple[Any, Any]:
        """``x`` with its entries zeroed or scaled, and the mask that did it, for ``masked``.

        Args:
            x: dense, or sparse features.
            node_ids: int64 [rows], the rows of the random numbers.
            draws: which random numbers.
            rate: the share that becomes 0; the others are multiplied by 1 / (1 - rate).

        Returns:
            A new array (or sparse features) and the mask; None for sparse features, which have no gradient.
        """

    def masked(self, gradient: Array, mask: Any) -> Array:
        """``gradient`` times a mask; may change ``gradient``."""

    def scale_rows(self, x: Array, scale: Array, out: Array | None = None) -> Array:
        """X * s with ``scale`` [rows, 1], in ``out`` or a new array."""

    def add_and_scale(self, x: Array, y: Array, scale: Array) -> Array:
        """(X + Y) * s with ``scale`` [rows, 1], in place."""

    def add_multiple(self, x: Array, epsilon: Array, y: Array) -> Array:
        """X + (1 + epsilon) Y with ``epsilon`` [1], in place."""

    def combined(self, x: Array, a: float, y: Array, b: float) -> Array:
        """a X + b Y, in place of ``x``."""

    def times(self, x: Array, y: Array) -> Array:
        """X * Y entry by entry, in place of ``x``."""

    def elu(self, x: Array) -> Array:
        """X where X > 0, else exp(X) - 1; may change ``x``."""

    def elu_backward(self, gradient: Array, y: Array) -> Array:
        """G times the derivative of ``elu`` where it gave ``y``; may change ``gradient``."""

    def mean_of_heads(self, x: Array, heads: int) -> Array:
        """The mean over heads of X [rows, heads * columns], [rows, columns]."""

    def mean_of_heads_backward(self, gradient: Array, heads: int) -> Array:
        """The gradient by the input of ``mean_of_heads``, [rows, heads * columns]."""

    def head_products(self, x: Array, vectors: Array) -> Array:
        """Inner products of each row's columns of a head with the head's vector.

        Args:
            x: [rows, H * F].
            vectors: [H, F].

        Returns:
            [rows, H].
        """

    def head_products_backward(self, x: Array, vectors: Array, gradient: Array, by_x: Array) -> Array:
        """Gradient of ``head_products`` by the vectors, float64 [H, F]; that by ``x`` is added to ``by_x``."""

    def inner_products(self, x: Array, y: Array, heads: int) -> Array:
        """Inner products of the rows of X and Y [rows, H * F], head by head, [rows, H]."""

    def arc_sums(self, ptr: Array, ends: Array, weights: Array | None, x: Array) -> Array:
        """Sum over the arcs of each node of X at the other end, of X's type, [nodes, columns].

        Args:
            ptr: int64 [nodes + 1], where the arcs of each node begin; never changes.
            ends: int32 or int64 [arcs], rows of ``x``.
            weights: [arcs], of X's type; None: all are 1.
            x: [*, columns].
        """

    def normalize_rows(self, x: Array, least: float) -> tuple[Array, Array]:
        """Each row over its Euclidean norm, at least ``least``, a new array; and [rows, 1] that it was divided by."""

    def normalize_rows_backward(self, gradient: Array, y: Array, norms: Array) -> Array:
        """Gradient by the input of ``normalize_rows`` from what it returned; may change ``gradient``."""

    def layer_norm(self, x: Array, scale: Array, shift: Array, epsilon: float) -> tuple[Array, Array, Array]:
        """Layer normalization: N = (X - mean) / sqrt(variance + epsilon) row by row, 1 / the root, N * scale + shift.

        Returns:
            Three new arrays: [rows, columns], [rows, 1], [rows, columns].
        """

    def layer_norm_backward(self, gradient: Array, normal: Array, inverse: Array, scale: Array) -> Array:
        """Gradient by the input of ``layer_norm`` from the first two that it returned; may change ``gradient``."""

    def batch_statistics(
        self, sums: Array, nodes: int, running: tuple[Array, Array], momentum: float, epsilon: float, dtype: Any
    ) -> tuple[Array, Array, tuple[Array, Array]]:
        """Mean and 1 / sqrt(variance + epsilon), of ``dtype``, and new running mean and variance.

        Args:
            sums: ``column_moments(x, x)`` over all PEs.
            nodes: rows of all PEs.
            running: float64 [columns] each, mean and unbiased variance so far.
            momentum: weight of this pass in the running statistics.
            epsilon: what is added to the variance.
            dtype: of the first two results.
        """

    def normalize(self, x: Array, mean: Array, inverse: Array, scale: Array, shift: Array) -> tuple[Array, Array]:
        """(X - mean) * inverse, and that times ``scale`` plus ``shift``; new arrays."""

    def normalize_with(
        self, x: Array, running: tuple[Array, Array], scale: Array, shift: Array, epsilon: float
    ) -> Array:
        """Batch normalization with the running mean and variance; a new array."""

    def normalize_backward(
        self, gradient: Array, normal: Array, sums: Array, nodes: int, inverse: Array, scale: Array
    ) -> Array:
        """Gradient by the input of a batch normalization; may change ``gradient``.

        Args:
            gradient: by the output.
            normal, inverse: what ``normalize`` returned first and was given.
            sums: ``column_moments(gradient, normal)`` over all PEs.
            nodes: rows of all PEs.
            scale: the trained factor, [columns].
        """

    def class_sums(self, logits: Array, labels: Array, chosen: Array, splits: Array, judge: int, count: int) -> Array:
        """Over the rows ``chosen`` (int64): their loss, and how often the largest logit is the label's.

        Args:
            logits: [rows, classes].
            labels: int32 [rows].
            chosen: int64 [k].
            splits: int32 [k], which split of 0..``count`` - 1 each of them is in.
            judge: the split whose loss is taken.
            count: number of splits.

        Returns:
            float64 [1 + count]: the sum of -log softmax(logits)[label] over split ``judge``, then the hits of each
            split; of equal logits the first counts.
        """

    def loss_and_gradient(
        self, logits: Array, labels: Array, chosen: Array, weights: Array, count: int
    ) -> tuple[Array, Array]:
        """Sum over the rows ``chosen`` of -log softmax(logits)[label] / ``count``, float64 [1], and its gradient by the
        logits; may change ``logits``.

        Args:
            logits, labels, chosen: as in ``class_sums``.
            weights: float32 [classes], what a row counts by its label.
            count: what the sum is divided by.
        """

    def classes(self, logits: Array) -> Array:
        """The column of each row's largest entry, the first of equal ones, int64 [rows]."""

    def finite(self, x: Array) -> Array:
        """1 where no entry of a float64 vector is beyond ``LARGEST``, nan among them, else 0; float64 [1]."""

    def move(self, x: Array, y: Array, allowed: Array) -> None:
        """X becomes Y, both float64, unless ``allowed`` [1] is 0."""

    def adam(
        self, weights: Array, gradients: Array, first: Array, second: Array, decay: Array, rates: Array, allowed: Array
    ) -> None:
        """One step of Adam in place, on vectors of all parameters, unless ``allowed`` [1] is 0.

        Args:
            weights, first, second: values and moments.
            gradients: float64.
            decay: L2 penalty of each value.
            rates: float64 [6]: 1 - beta1, 1 - beta2, learning rate / (1 - beta1^t), 1 - beta2^t, what the root is kept
                above, and the learning rate. In the device's memory: the same launch takes another step.
            allowed: float64 [1].
        """

    def shrink(self, weights: Array, decay: Array, rates: Array, allowed: Array) -> None:
        """W - learning rate * decay * W, in place, as ``adam``: the decoupled weight decay of AdamW."""

    def binary_cross_entropy(self, logits: Array, tasks: Array, chosen: Array) -> Array:
        """Sum over the known tasks of the rows ``chosen`` (int64) of -log sigmoid(+-logit), float64 [1].

        ``tasks`` is uint8 [rows, columns]: 0, 1, or 255 where unknown.
        """

    def binary_loss_and_gradient(self, logits: Array, tasks: Array, chosen: Array, count: int) -> tuple[Array, Array]:
        """``binary_cross_entropy`` / ``count`` and its gradient by the logits; may change ``logits``."""

    def decisions(self, logits: Array, tasks: Array, chosen: Array) -> Array:
        """True positives, false positives and false negatives among the known tasks, float64 [3]; yes is logit > 0."""


def arrays_of(world: World) -> Arrays:
    """The operations of this PE's device."""
    if world.xp is np:
        return HostArrays()
    from mgg.model.arrays.cuda import CudaArrays

    return CudaArrays(world)
