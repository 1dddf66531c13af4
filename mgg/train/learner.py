"""The interface between the training loop and what it drives: ``Trainer``, or a library in its place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from mgg.aggregate import parse_options
from mgg.aggregate.workgroups import resolved_workgroup, tell_difference
from mgg.backend.api import World, together
from mgg.layout import PeLayout
from mgg.model import ModelSettings
from mgg.train.memory import ShortError
from mgg.train.targets import Scores
from mgg.train.trainer import Trainer
from mgg.train.tuning import at_first

_log = logging.getLogger(__name__)


class Learner(Protocol):
    """One model on one graph. See ``Trainer`` for which calls are collective.

    Arrays in host memory have MGG's names and shapes.

    Attributes:
        technique: name of the aggregation technique, or of the library.
        settings: the hyperparameters, with data-dependent defaults filled in.
        metric: name of the metric that scores are in.
    """

    technique: str
    settings: ModelSettings
    metric: str

    @property
    def weights(self) -> Mapping[str, Any]:
        """Return the trained arrays by name."""

    def epoch(self, epoch: int) -> tuple[float, Scores]:
        """Run step ``epoch`` (from 1) and an evaluation; return the training loss before the step, and the scores.

        Raises:
            DivergedError: the loss or a gradient is not finite.
        """

    def phases(self) -> dict[str, float] | None:
        """Return seconds by phase since the last call; None unless phases are measured."""

    def keep(self) -> None:
        """Store a copy of the weights for ``kept``, replacing the last one."""

    def kept(self) -> dict[str, np.ndarray]:
        """Return the arrays of the last ``keep``."""

    def save(self) -> dict[str, dict[str, np.ndarray]]:
        """Return copies of all state that the next step depends on: named groups of arrays by name."""

    def restore(self, groups: dict[str, dict[str, np.ndarray]]) -> None:
        """Restore the state that ``save`` returned."""

    def start_from(self, arrays: dict[str, np.ndarray]) -> None:
        """Load weights and running statistics; raise InputError if they belong to another model."""

    def predict(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """Return the predictions of weights and running statistics ``arrays`` for each of this PE's rows."""

    def inference(self) -> Callable[[], None]:
        """Return a function that runs one pass without dropout and waits for it; both are collective."""

    def record_fields(self) -> dict[str, Any]:
        """Return record fields that override those of the job."""

    def close(self) -> None:
        """Release all large objects."""


#: Factory of a library's learner; takes the world, this PE's layout, and the named arguments of ``Trainer``.
Library = Callable[..., Learner]


def fitting(
    world: World, layout: PeLayout, candidates: list[str], options: dict[str, Any], **asked: Any
) -> tuple[Trainer, dict[str, Any]]:
    """Return a trainer with the first of ``candidates`` that fits in memory, and its options (collective)."""
    for technique in candidates:
        known = resolved_workgroup(world, together(world, lambda: parse_options(technique, options)))  # noqa: B023
        tell_difference(world, layout, [known])
        chosen = known.model_dump()
        try:
            return Trainer(world, layout, technique=technique, options=at_first(technique, chosen), **asked), chosen
        except ShortError as error:
            if technique == candidates[-1]:
                raise
            if world.rank == 0:
                _log.warning("technique auto: not %s: %s", technique, error)
    raise AssertionError("no candidate")
