"""Catalogue of the papers' figures and tables that a report can show: one file per paper in config/papers/.

A file holds ``figures``, keyed by the overlay that measures them (config/experiments/NAME.yaml, which lists them in
report.figures). It may also hold ``stand_ins``; ``predicted``, figures that need more hosts or other links than can be
measured here, whose overlays predict them; and ``sides`` and ``printed``, which these refer to. Every start of the
workflow reads the names here, so this module does not import matplotlib.
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


class _Paper(Fixed):
    stand_ins: Mapping[str, StandIn] = Field(default_factory=dict)
    sides: Sequence[Side] = ()
    printed: Any = None
    figures: Mapping[str, Experiment]
    predicted: Mapping[str, Foreseen] = Field(default_factory=dict)


def _read(path: Path) -> _Paper:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml if available
    return parsed(_Paper, yaml.load(path.read_text("utf-8"), loader), f"{path}: ")  # nosec B506


def _folder() -> Path:
    """Return the folder of the files: next to this module in a wheel, config/papers in a checkout."""
    packaged = Path(str(resources.files("mgg.report.papers"))) / "papers"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "config" / "papers"


_PAPERS = [_read(path) for path in sorted(_folder().glob("*.yaml"))]
EXPERIMENTS = {name: figure for paper in _PAPERS for name, figure in paper.figures.items()}
FORESEEN = {name: figure for paper in _PAPERS for name, figure in paper.predicted.items()}
STAND_INS = {name: real for paper in _PAPERS for name, real in paper.stand_ins.items()}


def check_figure(name: str) -> None:
    """Raise InputError, with the nearest names, for an unknown figure."""
    known = [*EXPERIMENTS, *FORESEEN]
    if name not in known:
        raise InputError(f"figure {name!r}: unknown; {nearest(name, known)}")


def claimed_as(dataset: str) -> str:
    """Return the name of a paper's numbers for ``dataset``: its stand-in's name for a real graph, else ``dataset``."""
    names = {real.name.lower(): name for name, real in STAND_INS.items()}
    return names.get(dataset.lower(), dataset)


def stand_in(dataset: str) -> StandIn | None:
    """Return the paper's graph that the generated ``dataset`` stands for, even with an ending such as ``-shuffled``."""
    return STAND_INS.get(dataset) or STAND_INS.get(dataset.rpartition("-")[0])
