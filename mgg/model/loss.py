"""Softmax cross-entropy and accuracy over chosen nodes; sums over this PE's nodes, to be added up over the PEs."""

from __future__ import annotations

import numpy as np

from mgg.backend.api import Array


def cross_entropy(logits: Array, labels: Array, chosen: Array) -> float:
    """Sum over the ``chosen`` rows of -log softmax(logits)[label], in float64.

    Args:
        logits: [rows, classes].
        labels: int [rows]; those of chosen rows are in 0..classes-1.
        chosen: int [k], row numbers.
    """
    shifted = _shifted(logits[chosen])
    picked = np.take_along_axis(shifted, labels[chosen, None].astype(np.int64), axis=1)
    return float(np.sum(np.log(np.exp(shifted).sum(axis=1)) - picked[:, 0]))


def cross_entropy_gradient(logits: Array, labels: Array, chosen: Array, count: int) -> Array:
    """Gradient by ``logits`` (of their shape and dtype) of the mean over ``count`` chosen rows of all PEs."""
    shares = np.exp(_shifted(logits[chosen]))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(chosen)), labels[chosen]] -= 1
    gradient = np.zeros_like(logits)
    gradient[chosen] = shares / count
    return gradient


def correct(logits: Array, labels: Array, chosen: Array) -> int:
    """Number of ``chosen`` rows whose largest logit is the label's; of equal ones the first counts."""
    return int(np.count_nonzero(logits[chosen].argmax(axis=1) == labels[chosen]))


def _shifted(logits: Array) -> Array:
    wide = logits.astype(np.float64)
    return wide - wide.max(axis=1, keepdims=True)
