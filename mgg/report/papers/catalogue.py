"""The figures and tables of the papers that a report can set beside its records: a file a paper in config/papers/.

A file holds ``figures``, by the name of the overlay that measures what they need (config/experiments/NAME.yaml, which
names them in report.figures), and may hold ``stand_ins``, ``predicted``: figures that take more hosts, or other links,
than can be measured here, whose overlays predict them, and what these refer to: ``sides``, ``printed``. Every start of
the workflow reads the names here, and need not wait for matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from mgg.errors import InputError
from mgg.report.papers.kinds import Experiment, Foreseen, Side, StandIn
from mgg.schema import Fixed, nearest, parsed

Noted = Sequence[tuple[str, str]]


class _Paper(Fixed):
    stand_ins: Mapping[str, StandIn] = Field(default_factory=dict)
    sides: Sequence[Side] = ()
    printed: Any = None
    figures: Mapping[str, Experiment]
    predicted: Mapping[str, Foreseen] = Field(default_factory=dict)


def _read(path: Path) -> _Paper:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where there is one
    return parsed(_Paper, yaml.load(path.read_text("utf-8"), loader), f"{path}: ")  # nosec B506


def _folder() -> Path:
    """In a wheel the files lie beside this module; in a checkout they are under config/."""
    packaged = Path(str(resources.files("mgg.report.papers"))) / "papers"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "config" / "papers"


_PAPERS = [_read(path) for path in sorted(_folder().glob("*.yaml"))]
EXPERIMENTS = {name: figure for paper in _PAPERS for name, figure in paper.figures.items()}
FORESEEN = {name: figure for paper in _PAPERS for name, figure in paper.predicted.items()}
STAND_INS = {name: real for paper in _PAPERS for name, real in paper.stand_ins.items()}


def check_figure(name: str) -> None:
    """Raise InputError with the nearest names for a figure that there is not."""
    known = [*EXPERIMENTS, *FORESEEN]
    if name not in known:
        raise InputError(f"figure {name!r}: unknown; {nearest(name, known)}")


def divided(chosen: Noted) -> tuple[Noted, Noted]:
    """The figures that are measured, and those that are predicted."""
    return [each for each in chosen if each[0] not in FORESEEN], [each for each in chosen if each[0] in FORESEEN]


def claimed_as(dataset: str) -> str:
    """The name under which a paper's numbers stand: of a real graph that of its stand-in, else ``dataset`` itself."""
    names = {real.name.lower(): name for name, real in STAND_INS.items()}
    return names.get(dataset.lower(), dataset)


def stand_in(dataset: str) -> StandIn | None:
    """The paper's graph that the generated ``dataset`` stands for, with or without an ending such as ``-shuffled``."""
    return STAND_INS.get(dataset) or STAND_INS.get(dataset.rpartition("-")[0])
