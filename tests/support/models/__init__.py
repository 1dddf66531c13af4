"""Properties of each model that tests of all models need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from mgg.errors import InputError
from mgg.model import MODELS, Chain, build, settings_of
from mgg.model.program import programs_of

#: Model -> settings for tests, if its published ones make tests slow.
SMALLER: dict[str, dict[str, Any]] = {
    "compgcn": {"layers": 2, "inverses": False},
    "gatv2": {"heads": 2},
    "gatedgcn": {"layers": 2, "dropout": 0.3},
    "pna": {"layers": 2},
    "rgat": {"hidden": 4, "heads": 2, "attention_dropout": 0.3},
    "transformer": {"layers": 2},
}


def small(model: str, hidden: int) -> dict[str, Any]:
    """Settings that make ``model`` small."""
    settings = MODELS.find(model).Settings
    return ({"hidden": hidden} if "hidden" in settings.model_fields else {}) | SMALLER.get(model, {})


def featureless(model: str) -> bool:
    """Whether the model takes graphs without features; in tests these have typed arcs."""
    return getattr(MODELS.find(model), "FEATURELESS", False)


def _built(model: str, relations: int) -> Chain:
    return build(model, settings_of(model), features=4, classes=3, nodes=5, relations=relations)


def needs_types(model: str) -> bool:
    """Whether the model takes only graphs with typed arcs."""
    try:
        _built(model, 0)
    except InputError:
        return True
    return False


def programmed(model: str) -> bool:
    """Whether the model consists of vertex programs, whose loops are compiled first."""
    return bool(programs_of(_built(model, 2)))


def cases(models: Iterable[Any]) -> list[Any]:
    """Parameters of a test: models, or tuples that begin with a model; vertex programs are marked slow."""
    rows = [each if isinstance(each, tuple) else (each,) for each in models]
    return [pytest.param(*row, marks=[pytest.mark.slow] if programmed(row[0]) else []) for row in rows]
