"""The figures and tables of the papers that a report can set beside its records: one module a paper.

A module holds ``EXPERIMENTS``, by the name of the overlay that measures what they need (config/experiments/NAME.yaml,
which names them in report.figures), and may hold ``STAND_INS``, and ``FORESEEN``: figures that take more hosts, or
other links, than can be measured here, whose overlays predict them. Adding a paper is adding such a file.
"""

from __future__ import annotations

import importlib
import pkgutil

from mgg.errors import InputError
from mgg.report.experiments.kinds import Experiment, Foreseen, Side, StandIn, Sweep, Transfers, Versus, Volumes
from mgg.schema import nearest

__all__ = [
    "EXPERIMENTS",
    "FORESEEN",
    "Experiment",
    "Foreseen",
    "Side",
    "StandIn",
    "Sweep",
    "Transfers",
    "Versus",
    "Volumes",
    "claimed_as",
    "experiment",
    "stand_in",
]

EXPERIMENTS: dict[str, Experiment] = {}
FORESEEN: dict[str, Foreseen] = {}
_STAND_INS: dict[str, StandIn] = {}
for _found in pkgutil.iter_modules(__path__):
    _module = importlib.import_module(f"{__name__}.{_found.name}")
    EXPERIMENTS |= getattr(_module, "EXPERIMENTS", {})
    FORESEEN |= getattr(_module, "FORESEEN", {})
    _STAND_INS |= getattr(_module, "STAND_INS", {})


def experiment(name: str) -> Experiment:
    """The figure or table called ``name``; raises InputError with the nearest names."""
    if name not in EXPERIMENTS:
        raise InputError(f"figure {name!r}: unknown; {nearest(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]


def claimed_as(dataset: str) -> str:
    """The name under which a paper's numbers stand: of a real graph that of its stand-in, else ``dataset`` itself."""
    names = {real.name.lower(): name for name, real in _STAND_INS.items()}
    return names.get(dataset.lower(), dataset)


def stand_in(dataset: str) -> StandIn | None:
    """The paper's graph that the generated ``dataset`` stands for, with or without an ending such as ``-shuffled``."""
    return _STAND_INS.get(dataset) or _STAND_INS.get(dataset.rpartition("-")[0])
