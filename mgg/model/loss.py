"""Losses, their gradients and hits over chosen nodes; all are sums over this PE's nodes, to be summed over PEs.

Classes use softmax cross-entropy by label. Tasks (several yes-or-no labels per node) use sigmoid cross-entropy. A task
is 0, 1, or 255 if unknown; unknown tasks count nowhere.
"""

from __future__ import annotations

import numpy as np

from mgg.backend.api import Array

#: Bytes that the functions need besides their arguments, per logit of the chosen rows; gradients also need ``GRADIENT``
#: bytes per logit of all rows. Softmax: float32 rows, their float64 copies, and these less the maximum; then two
#: float64 numbers. Tasks: four float64 numbers and the answer, with the gradient also the gathered rows.
CLASS_LOSS, CLASS_GRADIENT, TASK_LOSS, TASK_GRADIENT, DECISIONS, GRADIENT = 20, 16, 33, 38, 7, 4


def cross_entropy(logits: Array, labels: Array, chosen: Array, weights: Array | None = None) -> float:
    """Return the sum over the ``chosen`` rows of -log softmax(logits)[label], in float64.

    Args:
        logits: [rows, classes].
        labels: int [rows]; those of chosen rows are in 0..classes-1.
        chosen: int [k], row numbers.
        weights: [classes], the weight of a row by its label; None: 1.
    """
    shifted = _shifted(logits[chosen])
    picked = np.take_along_axis(shifted, labels[chosen, None].astype(np.int64), axis=1)
    losses = np.log(np.exp(shifted).sum(axis=1)) - picked[:, 0]
    return float(np.sum(losses if weights is None else weights[labels[chosen]] * losses))


def cross_entropy_gradient(
    logits: Array, labels: Array, chosen: Array, count: int, weights: Array | None = None
) -> Array:
    """Return the gradient by ``logits`` (same shape and dtype) of ``cross_entropy`` / ``count``."""
    shares = np.exp(_shifted(logits[chosen]))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(chosen)), labels[chosen]] -= 1
    if weights is not None:
        shares *= weights[labels[chosen], None]
    gradient = np.zeros_like(logits)
    gradient[chosen] = shares / count
    return gradient


def correct(logits: Array, labels: Array, chosen: Array) -> int:
    """Return the number of ``chosen`` rows whose largest logit (of equal ones the first) is the label's."""
    return int(np.count_nonzero(logits[chosen].argmax(axis=1) == labels[chosen]))


def binary_cross_entropy(logits: Array, tasks: Array, chosen: Array) -> float:
    """Return the sum over the known tasks of the ``chosen`` rows of -log sigmoid(z) (yes) or -log sigmoid(-z) (no).

    Computed in float64 as max(z, 0) - z t + log(1 + exp(-|z|)), which no logit z overflows.

    Args:
        logits: [rows, tasks].
        tasks: uint8 [rows, tasks].
        chosen: int [k], row numbers.
    """
    z, t = logits[chosen].astype(np.float64), tasks[chosen]
    losses = np.maximum(z, 0) - z * (t == 1) + np.log1p(np.exp(-np.abs(z)))
    return float(np.sum(losses, where=t <= 1))


def binary_cross_entropy_gradient(logits: Array, tasks: Array, chosen: Array, count: int) -> Array:
    """Return the gradient by ``logits`` (same shape and dtype) of ``binary_cross_entropy`` / ``count``."""
    gradient = np.zeros_like(logits)
    t = tasks[chosen]
    gradient[chosen] = np.where(t <= 1, sigmoid(logits[chosen]) - t, 0) / count
    return gradient


def decisions(logits: Array, tasks: Array, chosen: Array) -> Array:
    """Return the true positives, false positives and false negatives of known tasks, float64 [3]; yes is logit > 0."""
    yes, t = logits[chosen] > 0, tasks[chosen]
    found = (yes & (t == 1), yes & (t == 0), ~yes & (t == 1))
    return np.array([np.count_nonzero(each) for each in found], np.float64)


def sigmoid(logits: Array) -> Array:
    """Return 1 / (1 + exp(-z)) in float64."""
    z = logits.astype(np.float64)
    small = np.exp(-np.abs(z))
    return np.where(z < 0, small, 1) / (1 + small)


def _shifted(logits: Array) -> Array:
    wide = logits.astype(np.float64)
    return wide - wide.max(axis=1, keepdims=True)
