"""The interface to the targets of a training: classes (``classes.py``) or tasks (``tasks.py``) of nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from mgg.backend.api import Array, World
from mgg.errors import InputError
from mgg.model.arrays import Arrays

#: Bytes of a logit, and of a number in a sum on a GPU.
LOGIT, SUM = 4, 8


@dataclass(frozen=True)
class Scores:
    """Result of an evaluation over the nodes of all PEs: mean loss, and the metric of each split, from 0 to 1.

    Without validation nodes, their metric is None and the loss is that of the training nodes, which also reveals
    numbers that are not finite.
    """

    validation_loss: float
    train: float
    validation: float | None
    test: float


class Targets(ABC):
    """The targets of a training. Sums are over this PE's nodes; the trainer adds them up over the PEs.

    Attributes:
        metric: key of ``metrics.METRICS``.
        columns: columns of the logits.
        counts: nodes of each split over all PEs, or their known answers.
        memory: bytes that ``place`` allocates on this PE's GPU or, on CPUs, its host.
        passing: bytes there while a loss, its gradient or scores are computed, logits included.
    """

    metric: str
    columns: int
    counts: dict[str, int]
    memory: int
    passing: int

    @property
    def judge(self) -> str:
        """Return the split whose loss an evaluation computes."""
        return "validation" if self.counts["validation"] else "train"

    def of_splits(self, loss: float, train: float, validation: float, test: float) -> Scores:
        """Return the scores; the validation score is None without validation nodes."""
        return Scores(loss, train, validation if self.counts["validation"] else None, test)

    @abstractmethod
    def place(self, world: World) -> None:
        """Place the data for losses and scores on the device (collective); nothing large is allocated before."""

    @abstractmethod
    def loss_and_gradient(self, arrays: Arrays, logits: Array) -> tuple[Array, Array]:
        """Return this PE's part of the mean training loss, float64 [1], and its gradient; may change ``logits``."""

    @abstractmethod
    def sums(self, arrays: Arrays, logits: Array) -> Array:
        """Return this PE's part of an evaluation's sums, the loss first, as a float64 vector."""

    @abstractmethod
    def scores(self, world: World, total: np.ndarray, logits: Array) -> Scores:
        """Return the scores from ``total``, the sum of all PEs' ``sums`` (collective)."""

    @abstractmethod
    def predict(self, world: World, arrays: Arrays, logits: Array) -> np.ndarray:
        """Return the predictions to write, on the host: classes int64 [rows], or logits float32 [rows, tasks]."""


def check_sizes(name: str, counts: dict[str, int], selection: str) -> None:
    """Raise InputError if a split has no nodes; an empty validation split is valid for selection=last."""
    for split, count in counts.items():
        if count == 0 and not (split == "validation" and selection == "last"):
            otherwise = ", or take the last epoch, by the setting selection=last" if split == "validation" else ""
            raise InputError(f"graph {name}: its {split} split is empty: give it at least one node{otherwise}")
