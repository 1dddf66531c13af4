"""Models: one file each, found by name.

A model's file defines ``Settings`` (its hyperparameters, published values as defaults) and ``build(settings, sizes)``,
which returns its modules in the order of its formula; ``FEATURELESS`` if it takes graphs without features. Adding a
model is adding such a file; its name is the file's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from mgg.errors import InputError, MggError
from mgg.model.module import Array, Chain, Composite, Features, Module, Parameter, Pass
from mgg.model.settings import ModelSettings, Sizes
from mgg.registry import Registry, blamed, lacking
from mgg.schema import parsed

__all__ = [
    "MODELS",
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


def _model_of(module: ModuleType) -> Mapping[str, Any]:
    """The model of a file, if it is one; raises InputError for half of one."""
    parts = [name for name in ("Settings", "build") if hasattr(module, name)]
    if not parts:
        return {}
    settings = getattr(module, "Settings", None)
    if not (isinstance(settings, type) and issubclass(settings, ModelSettings)):
        raise lacking(module, "a model needs a class Settings, a subclass of mgg.model.settings.ModelSettings")
    if not callable(getattr(module, "build", None)):
        raise lacking(module, "a model needs a function build(settings, sizes)")
    return {module.__name__.rpartition(".")[2]: module}


#: The files that are models.
MODELS: Registry[Any] = Registry(
    __name__, "model", "class Settings and no function build", _model_of, "{what} {name!r} is unknown"
)


def models() -> list[str]:
    """Names of the models, sorted."""
    return list(MODELS.all())


def settings_of(model: str, values: dict[str, Any] | None = None) -> ModelSettings:
    """The hyperparameters of ``model``: the published ones, replaced by ``values``.

    Raises:
        InputError: unknown model, unknown setting (both with the nearest names) or a value out of its limits.
    """
    settings: type[ModelSettings] = MODELS.find(model).Settings
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
        InputError: the model needs what the graph lacks, its file cannot make it (file, line and exception), or two of
            its layers have the same name.
    """
    file = MODELS.find(model)
    if not features and not getattr(file, "FEATURELESS", False):
        raise InputError(f"model {model}: the graph has no node features to train on")
    try:
        chain = file.build(settings, Sizes(features, classes, nodes, relations))
    except (MggError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"model {model}: {blamed(error, Path(file.__file__))}") from error
    if not isinstance(chain, Chain):
        raise lacking(file.build, f"model {model}: build returned a {type(chain).__name__}, not a Chain")
    twice = [name for name, count in Counter(_names(chain)).items() if count > 1]
    if twice:
        layer = twice[0].rpartition(".")[0] or twice[0]
        raise lacking(
            file.build, f"model {model}: two layers are called {layer!r} ({twice[0]}): give each a name of its own"
        )
    return chain


def _names(module: Module) -> list[str]:
    """Of all parameters and running statistics; those of a module that stands in two places come twice."""
    if isinstance(module, Composite):
        return [name for each in module.modules for name in _names(each)]
    return [*(parameter.name for parameter in module.parameters), *module.state]
