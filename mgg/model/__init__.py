"""Models: one file each, found by name.

A model's file defines ``Settings`` (its hyperparameters, published values as defaults) and ``build(settings, sizes)``,
which returns its modules in the order of its formula; ``FEATURELESS`` if it takes graphs without features. Adding a
model is adding such a file; its name is the file's.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from mgg.errors import InputError
from mgg.model.module import Array, Chain, Features, Module, Parameter, Pass
from mgg.model.settings import ModelSettings, Sizes
from mgg.schema import nearest, parsed

__all__ = [
    "Array",
    "Chain",
    "Features",
    "ModelSettings",
    "Module",
    "Parameter",
    "Pass",
    "Sizes",
    "build",
    "models",
    "settings_of",
]


def models() -> list[str]:
    """Names of the models, sorted."""
    return sorted(info.name for info in pkgutil.iter_modules(__path__) if hasattr(_module(info.name), "build"))


def settings_of(model: str, values: dict[str, Any] | None = None) -> ModelSettings:
    """The hyperparameters of ``model``: the published ones, replaced by ``values``.

    Raises:
        InputError: unknown model, unknown setting (both with the nearest names) or a value out of its limits.
    """
    settings: type[ModelSettings] = _file(model).Settings
    return parsed(settings, values or {}, f"setting of model {model}: ")


def build(
    model: str, settings: ModelSettings, features: int, classes: int, nodes: int = 0, relations: int = 0
) -> Chain:
    """The modules of ``model`` for ``features`` input columns and ``classes`` output columns.

    Args:
        model: its name.
        settings: its hyperparameters.
        features, classes: columns of the input and of the output.
        nodes, relations: of the graph: its nodes and its arc types.

    Raises:
        InputError: the model needs what the graph lacks.
    """
    file = _file(model)
    if not features and not getattr(file, "FEATURELESS", False):
        raise InputError(f"model {model}: the graph has no node features to train on")
    chain: Chain = file.build(settings, Sizes(features, classes, nodes, relations))
    return chain


def _file(model: str) -> Any:
    known = models()
    if model not in known:
        raise InputError(f"model {model!r} is unknown; {nearest(model, known)}")
    return _module(model)


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")
