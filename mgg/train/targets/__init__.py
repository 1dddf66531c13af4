"""The seam between a training and what it learns: classes (``classes.py``) or tasks (``tasks.py``) of nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from mgg.backend.api import Array, World
from mgg.errors import InputError
from mgg.model.arrays import Arrays

#: Bytes of a logit, and of a number of a sum on a GPU.
LOGIT, SUM = 4, 8


@dataclass(frozen=True)
class Scores:
    """Result of an evaluation over the nodes of all PEs: mean loss, and the metric of each split, 0..1.

    Without validation nodes their metric is None, and the loss is that of the training nodes, so that numbers that are
    not finite are seen there, too.
    """

    validation_loss: float
    train: float
    validation: float | None
    test: float


class Targets(ABC):
    """What to learn; its sums are over this PE's nodes, the trainer adds them up over the PEs.

    Attributes:
        metric: key of ``metrics.METRICS``.
        columns: of the logits.
        counts: nodes of each split, or their known answers, of all PEs.
        memory: bytes that ``place`` takes of this PE's GPU, else of its host.
        passing: bytes that a loss, its gradient or scores take there while they are worked out, logits included.
    """

    metric: str
    columns: int
    counts: dict[str, int]
    memory: int
    passing: int

    @property
    def judge(self) -> str:
        """The split whose loss evaluations take."""
        return "validation" if self.counts["validation"] else "train"

    def of_splits(self, loss: float, train: float, validation: float, test: float) -> Scores:
        """These scores, without that of validation nodes where there are none."""
        return Scores(loss, train, validation if self.counts["validation"] else None, test)

    @abstractmethod
    def place(self, world: World) -> None:
        """Bring what losses and scores need to the device (collective); before, nothing large is held."""

    @abstractmethod
    def loss_and_gradient(self, arrays: Arrays, logits: Array) -> tuple[Array, Array]:
        """This PE's part of the mean training loss, float64 [1], and its gradient; may change ``logits``."""

    @abstractmethod
    def sums(self, arrays: Arrays, logits: Array) -> Array:
        """What an evaluation adds up over the PEs, the loss first: float64 vector, of this PE's nodes."""

    @abstractmethod
    def scores(self, world: World, total: np.ndarray, logits: Array) -> Scores:
        """The scores, from the sum of all PEs' ``sums`` of their ``logits`` (collective)."""

    @abstractmethod
    def predict(self, world: World, arrays: Arrays, logits: Array) -> np.ndarray:
        """What ``predictions.parquet`` holds of logits, on the host: classes int64 [rows] or float32 [rows, tasks]."""


def check_sizes(name: str, counts: dict[str, int], selection: str) -> None:
    """Raise InputError where a split has no node; validation nodes are needed where they select the epoch."""
    for split, count in counts.items():
        if count == 0 and not (split == "validation" and selection == "last"):
            otherwise = ", or take the last epoch, by the setting selection=last" if split == "validation" else ""
            raise InputError(f"graph {name}: its {split} split is empty: give it at least one node{otherwise}")
