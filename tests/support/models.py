"""What tests of all models have to know of each."""

from __future__ import annotations

from typing import Any

from mgg.model import MODELS

#: By model: settings beside ``hidden`` that tests give it, for one whose published ones make tests slow.
SMALLER: dict[str, dict[str, Any]] = {}


def small(model: str, hidden: int) -> dict[str, Any]:
    """Settings that make ``model`` small."""
    settings = MODELS.find(model).Settings
    return SMALLER.get(model, {}) | ({"hidden": hidden} if "hidden" in settings.model_fields else {})


def featureless(model: str) -> bool:
    """Whether it takes graphs without features: those have arcs of types here."""
    return getattr(MODELS.find(model), "FEATURELESS", False)
