"""What the operations of attention hand to each other: scores of arcs by both ends, and dropout of arcs."""

from __future__ import annotations

from typing import NamedTuple

from mgg.backend.api import Array
from mgg.kernel.random import Draws


class Scores(NamedTuple):
    """Scores of arcs, LeakyReLU(``to_target`` + ``to_source``) at their ends, and what their softmax takes.

    Attributes:
        to_target: [rows, H].
        to_source: [rows + halo, H].
        slope: of the LeakyReLU for negative numbers.
        states: of each row and head, from which the device makes the share of an arc; arcs themselves keep nothing.
    """

    to_target: Array
    to_source: Array
    slope: float
    states: Array


class ArcDropout(NamedTuple):
    """Dropout of what arcs have: the random numbers, by the ids of both ends, and the share that becomes 0."""

    draws: Draws
    rate: float
