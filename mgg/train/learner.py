"""What the training loop asks of what trains: ``Trainer``, or a library in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from mgg.model import ModelSettings
from mgg.train.targets import Scores


class Learner(Protocol):
    """One model on one graph; arrays in host memory have our names and shapes. See ``Trainer`` for what is collective.

    Attributes:
        technique: name of the aggregation technique, or of the library.
        settings: the hyperparameters, with those that were left to the data filled in.
        metric: what scores say.
    """

    technique: str
    settings: ModelSettings
    metric: str

    @property
    def weights(self) -> Mapping[str, Any]:
        """The trained arrays by name."""

    def epoch(self, epoch: int) -> tuple[float, Scores]:
        """One step, the ``epoch``-th (from 1), and an evaluation: the training loss before the step, and the scores.

        Raises:
            DivergedError: numbers are not finite.
        """

    def phases(self) -> dict[str, float] | None:
        """Seconds by phase since the last call; None unless they are counted."""

    def keep(self) -> None:
        """Keep the weights as they are, for ``kept``, instead of those kept before."""

    def kept(self) -> dict[str, np.ndarray]:
        """What ``keep`` has kept last."""

    def save(self) -> dict[str, dict[str, np.ndarray]]:
        """Copies of all that the next step depends on: named groups of arrays by name."""

    def restore(self, groups: dict[str, dict[str, np.ndarray]]) -> None:
        """Go on from what ``save`` returned."""

    def start_from(self, arrays: dict[str, np.ndarray]) -> None:
        """Take weights and running statistics; raises InputError where they are of another model."""

    def predict(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """What is predicted with weights and running statistics ``arrays`` for each of this PE's rows."""

    def inference(self) -> Callable[[], None]:
        """What makes one pass without dropout, by the weights at hand, and waits for it (both collective)."""

    def told(self) -> dict[str, Any]:
        """Fields of the record that are otherwise than the job says."""

    def close(self) -> None:
        """Let go of all that is large."""


#: Makes a learner of a library: the world, this PE's layout, and by name what ``Trainer`` takes.
Library = Callable[..., Learner]
