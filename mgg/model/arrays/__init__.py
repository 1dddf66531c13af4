"""Row-wise operations of models, as one table of operations that every kind of device implements (``host``, ``cuda``).

Layers use this table alone, so they read like their formulas and do not depend on devices. Arrays are on the device;
``x`` and ``gradient`` are [rows, columns] of this PE, and sums over them are float64 and over this PE's rows.
Operations that say so may change their first argument in place and return it: its maker does not need it any more.
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
    """The table of operations.

    Attributes:
        operators: the device's operators, which launch kernels; None on a host.
    """

    operators: Any

    def upload(self, array: np.ndarray) -> Array:
        """Copy ``array`` to the device."""

    def joined(self, parts: list[Array]) -> Array:
        """Return the entries of all ``parts``, float64, in one vector."""

    def arc_work(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Return ``work(*arguments)``, where ``work`` goes over arcs."""

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return zeros."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an uninitialized array."""

    def rows(self, x: Array, places: Array) -> Array:
        """Return the rows of X at ``places`` (int64), a new array."""

    def put_rows(self, x: Array, places: Array, y: Array) -> None:
        """Write the rows of Y to the rows of X at ``places``; X is in C order."""

    def add_to_rows(self, x: Array, places: Array, y: Array) -> None:
        """Add row i of Y to row ``places[i]`` of X, in place; places are distinct."""

    def product(self, x: Any, weight: Array, out: Array | None = None) -> Array:
        """Return X W for dense or sparse X; for dense X in ``out``, whose rows may be padded, if it is given."""

    def transposed_product(self, x: Any, gradient: Array) -> Array:
        """Return X^T G [columns of x, columns of gradient], float64, for dense or sparse X."""

    def column_sums(self, x: Array) -> Array:
        """Return the sum of the rows, float64 [columns]."""

    def column_moments(self, x: Array, y: Array) -> Array:
        """Return the sums of the rows of X and of X * Y, float64 [2, columns]."""

    def inner(self, x: Array, y: Array) -> Array:
        """Return the sum of X * Y, float64 [1]."""

    def add_bias(self, x: Array, bias: Array) -> Array:
        """Return X + b, in place."""

    def relu(self, x: Array) -> Array:
        """Return max(X, 0); may change ``x``."""

    def where_positive(self, gradient: Array, y: Array) -> Array:
        """Return G where Y > 0, else 0; may change ``gradient``."""

    def dropout(self, x: Any, node_ids: Array, draws: Draws, rate: float) -> tuple[Any, Any]:
        """Return ``x`` with entries dropped or scaled, and the mask, for ``masked``.

        Args:
            x: dense, or sparse features.
            node_ids: int64 [rows], which select the random numbers of each row.
            draws: the random numbers.
            rate: the share that becomes 0; other entries are multiplied by 1 / (1 - rate).

        Returns:
            A new array (or sparse features) and the mask; None for sparse features, which have no gradient.
        """

    def masked(self, gradient: Array, mask: Any) -> Array:
        """Return ``gradient`` times a mask; may change ``gradient``."""

    def scale_rows(self, x: Array, scale: Array, out: Array | None = None) -> Array:
        """Return X * s with ``scale`` [rows, 1], in ``out`` or a new array."""

    def add_and_scale(self, x: Array, y: Array, scale: Array) -> Array:
        """Return (X + Y) * s with ``scale`` [rows, 1], in place."""

    def add_multiple(self, x: Array, epsilon: Array, y: Array) -> Array:
        """Return X + (1 + epsilon) Y with ``epsilon`` [1], in place."""

    def combined(self, x: Array, a: float, y: Array, b: float) -> Array:
        """Return a X + b Y, in place of ``x``."""

    def times(self, x: Array, y: Array) -> Array:
        """Return the elementwise product X * Y, in place of ``x``."""

    def elu(self, x: Array) -> Array:
        """Return X where X > 0, else exp(X) - 1; may change ``x``."""

    def elu_backward(self, gradient: Array, y: Array) -> Array:
        """Return G times the derivative of ``elu`` at its result ``y``; may change ``gradient``."""

    def mean_of_heads(self, x: Array, heads: int) -> Array:
        """Return the mean over heads of X [rows, heads * columns], [rows, columns]."""

    def mean_of_heads_backward(self, gradient: Array, heads: int) -> Array:
        """Return the gradient by the input of ``mean_of_heads``, [rows, heads * columns]."""

    def head_products(self, x: Array, vectors: Array) -> Array:
        """Return the inner products of each row's columns of a head with the head's vector.

        Args:
            x: [rows, H * F].
            vectors: [H, F].

        Returns:
            [rows, H].
        """

    def head_products_backward(self, x: Array, vectors: Array, gradient: Array, by_x: Array) -> Array:
        """Return the gradient of ``head_products`` by the vectors, float64 [H, F]; add that by ``x`` to ``by_x``."""

    def inner_products(self, x: Array, y: Array, heads: int) -> Array:
        """Return the inner products of the rows of X and Y [rows, H * F] per head, [rows, H]."""

    def arc_sums(self, ptr: Array, ends: Array, weights: Array | None, x: Array) -> Array:
        """Return the sum over each node's arcs of X at the other end, of X's type, [nodes, columns].

        Args:
            ptr: int64 [nodes + 1], where the arcs of each node begin; must never change.
            ends: int32 or int64 [arcs], rows of ``x``.
            weights: [arcs], of X's type; None: all are 1.
            x: [*, columns].
        """

    def normalize_rows(self, x: Array, least: float) -> tuple[Array, Array]:
        """Return each row divided by its Euclidean norm, at least ``least``, and the divisors [rows, 1]; new arrays."""

    def normalize_rows_backward(self, gradient: Array, y: Array, norms: Array) -> Array:
        """Return the gradient by the input of ``normalize_rows`` from its results; may change ``gradient``."""

    def layer_norm(self, x: Array, scale: Array, shift: Array, epsilon: float) -> tuple[Array, Array, Array]:
        """Normalize rows: return N = (X - mean) / sqrt(variance + epsilon), 1 / the root, and N * scale + shift.

        Returns:
            Three new arrays: [rows, columns], [rows, 1], [rows, columns].
        """

    def layer_norm_backward(self, gradient: Array, normal: Array, inverse: Array, scale: Array) -> Array:
        """Return the gradient by the input of ``layer_norm`` from its first two results; may change ``gradient``."""

    def batch_statistics(
        self, sums: Array, nodes: int, running: tuple[Array, Array], momentum: float, epsilon: float, dtype: Any
    ) -> tuple[Array, Array, tuple[Array, Array]]:
        """Return the mean and 1 / sqrt(variance + epsilon), of ``dtype``, and the new running mean and variance.

        Args:
            sums: ``column_moments(x, x)`` over all PEs.
            nodes: rows of all PEs.
            running: float64 [columns] each, mean and unbiased variance so far.
            momentum: weight of this pass in the running statistics.
            epsilon: added to the variance.
            dtype: type of the first two results.
        """

    def normalize(self, x: Array, mean: Array, inverse: Array, scale: Array, shift: Array) -> tuple[Array, Array]:
        """Return (X - mean) * inverse, and that times ``scale`` plus ``shift``; new arrays."""

    def normalize_with(
        self, x: Array, running: tuple[Array, Array], scale: Array, shift: Array, epsilon: float
    ) -> Array:
        """Return batch normalization with the running mean and variance; a new array."""

    def normalize_backward(
        self, gradient: Array, normal: Array, sums: Array, nodes: int, inverse: Array, scale: Array
    ) -> Array:
        """Return the gradient by the input of a batch normalization; may change ``gradient``.

        Args:
            gradient: gradient by the output.
            normal, inverse: the first result of ``normalize``, and its argument.
            sums: ``column_moments(gradient, normal)`` over all PEs.
            nodes: rows of all PEs.
            scale: the trained factor, [columns].
        """

    def class_sums(self, logits: Array, labels: Array, chosen: Array, splits: Array, judge: int, count: int) -> Array:
        """Return the loss of the rows ``chosen``, and per split how often the largest logit is the label's.

        Args:
            logits: [rows, classes].
            labels: int32 [rows].
            chosen: int64 [k].
            splits: int32 [k], the split of each chosen row, 0..``count`` - 1.
            judge: the split for the loss.
            count: number of splits.

        Returns:
            float64 [1 + count]: the sum of -log softmax(logits)[label] over split ``judge``, then the hits of each
            split; of equal logits the first counts.
        """

    def loss_and_gradient(
        self, logits: Array, labels: Array, chosen: Array, weights: Array, count: int
    ) -> tuple[Array, Array]:
        """Return the sum over the rows ``chosen`` of -log softmax(logits)[label] / ``count``, float64 [1], and its
        gradient by the logits; may change ``logits``.

        Args:
            logits, labels, chosen: as in ``class_sums``.
            weights: float32 [classes], the weight of a row by its label.
            count: divisor of the sum.
        """

    def classes(self, logits: Array) -> Array:
        """Return the column of each row's largest entry, the first of equal ones, int64 [rows]."""

    def finite(self, x: Array) -> Array:
        """Return 1 if no entry of a float64 vector is nan or exceeds ``LARGEST`` in size, else 0; float64 [1]."""

    def move(self, x: Array, y: Array, allowed: Array) -> None:
        """Copy Y to X, both float64, unless ``allowed`` [1] is 0."""

    def adam(
        self, weights: Array, gradients: Array, first: Array, second: Array, decay: Array, rates: Array, allowed: Array
    ) -> None:
        """Apply a step of Adam in place, to vectors of all parameters, unless ``allowed`` [1] is 0.

        Args:
            weights, first, second: values and moments.
            gradients: float64.
            decay: L2 penalty of each value.
            rates: float64 [6]: 1 - beta1, 1 - beta2, learning rate / (1 - beta1^t), 1 - beta2^t, the number added to
                the root, and the learning rate. In device memory, so that one recorded launch serves every step.
            allowed: float64 [1].
        """

    def shrink(self, weights: Array, decay: Array, rates: Array, allowed: Array) -> None:
        """Subtract learning rate * decay * W in place, with arguments like ``adam``: AdamW's decoupled weight decay."""

    def binary_cross_entropy(self, logits: Array, tasks: Array, chosen: Array) -> Array:
        """Return the sum over the known tasks of the rows ``chosen`` (int64) of -log sigmoid(+-logit), float64 [1].

        ``tasks`` is uint8 [rows, columns]: 0, 1, or 255 where unknown.
        """

    def binary_loss_and_gradient(self, logits: Array, tasks: Array, chosen: Array, count: int) -> tuple[Array, Array]:
        """Return ``binary_cross_entropy`` / ``count`` and its gradient by the logits; may change ``logits``."""

    def decisions(self, logits: Array, tasks: Array, chosen: Array) -> Array:
        """Return true positives, false positives and false negatives of known tasks, float64 [3]; yes is logit > 0."""


def arrays_of(world: World) -> Arrays:
    """Return the operations of this PE's device."""
    if world.xp is np:
        return HostArrays()
    from mgg.model.arrays.cuda import CudaArrays

    return CudaArrays(world)
