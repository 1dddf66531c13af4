"""The names of figures: those that are measured, and those that are set beside predictions.

``foreseen_parts`` draws the latter: every start of the workflow reads the names here, and need not wait for matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence

from mgg.errors import InputError
from mgg.report.experiments import EXPERIMENTS, FORESEEN
from mgg.schema import nearest

Noted = Sequence[tuple[str, str]]


def check_figure(name: str) -> None:
    """Raise InputError with the nearest names for a figure that there is not."""
    known = [*EXPERIMENTS, *FORESEEN]
    if name not in known:
        raise InputError(f"figure {name!r}: unknown; {nearest(name, known)}")


def divided(chosen: Noted) -> tuple[Noted, Noted]:
    """The figures that are measured, and those that are predicted."""
    return [each for each in chosen if each[0] not in FORESEEN], [each for each in chosen if each[0] in FORESEEN]
