"""Models: one file each, found by file name.

A model's file defines ``Settings`` (its hyperparameters, with the published values as defaults) and
``build(settings, sizes)``, which returns its modules in the order of its formula; also ``FEATURELESS`` if it accepts
graphs without features. To add a model, add such a file. A user's own file, given by its path, has the same contents.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import isfunction
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from mgg.errors import InputError, MggError
from mgg.model import user_models
from mgg.model.module import Array, Chain, Composite, Features, Module, Parameter, Pass
from mgg.model.settings import ModelSettings, Sizes
from mgg.naming import is_own_model, model_name
from mgg.registry import Registry, blamed, lacking
from mgg.schema import parsed

__all__ = [
    "MODELS",
    "Array",
    "Chain",
    "Features",
    "Model",
    "ModelSettings",
    "Module",
    "Parameter",
    "Pass",
    "Sizes",
    "build",
    "check_names",
    "find",
    "models",
    "settings_of",
]


def _model_of(module: ModuleType) -> Mapping[str, Any]:
    """Return the model of a file, if it is one; raise InputError for an incomplete one."""
    parts = [name for name in ("Settings", "build") if hasattr(module, name)]
    if not parts:
        return {}
    settings = getattr(module, "Settings", None)
    if not (isinstance(settings, type) and issubclass(settings, ModelSettings)):
        raise lacking(module, "a model needs a class Settings, a subclass of mgg.model.settings.ModelSettings")
    if not callable(getattr(module, "build", None)):
        raise lacking(module, "a model needs a function build(settings, sizes)")
    return {module.__name__.rpartition(".")[2]: module}


#: The model files.
MODELS: Registry[Any] = Registry(
    "mgg.model.zoo", "model", "class Settings and no function build", _model_of, "{what} {name!r} is unknown"
)


def models() -> list[str]:
    """Return the names of the models, sorted."""
    return list(MODELS.all())


@dataclass(frozen=True)
class Model:
    """A model found by ``find``.

    Attributes:
        name: its name in records and results.
        file: the module of its file.
        content: the bytes of a user's own file; None: the model is MGG's.
    """

    name: str
    file: Any
    content: bytes | None = field(default=None, repr=False)

    @property
    def sha256(self) -> str | None:
        """The hash of ``content``, or None."""
        return None if self.content is None else hashlib.sha256(self.content).hexdigest()

    @contextmanager
    def blamed(self, *, passing: bool = False, building: bool = False) -> Iterator[None]:
        """Turn exceptions of the model's file into an InputError with file, line and exception.

        Args:
            building: the code inside runs the file or its ``build``: an InputError that a line of the user's own file
                causes gets file and line, too, if it does not name the file.
            passing: the code inside is a pass over the layers. Then only exceptions raised by a line of the user's own
                file are changed; others may be MGG's own, or end a recording.
        """
        try:
            yield
        except (MggError, MemoryError) as error:
            own = building and self.content is not None and isinstance(error, InputError)
            if not own or self.file.__file__ in str(error):
                raise
            raise InputError(f"model {self.name}: {blamed(error, Path(self.file.__file__), alone=True)}") from error
        except (Exception, SystemExit) as error:
            if passing and (self.content is None or extract_tb(error.__traceback__)[-1].filename != self.file.__file__):
                raise
            blame = blamed(error, Path(self.file.__file__), alone=self.content is not None)
            raise InputError(f"model {self.name}: {blame}") from error


def find(model: str | Model, sha256: str | None = None) -> Model:
    """Return the model of that name, or the model in the user's own file at that path, which is executed.

    Args:
        model: a name or path; a model that was found already is returned unchanged.
        sha256: the hash that the user's own file must have; None: any.

    Raises:
        InputError: the model is unknown, or the file cannot be read, has another hash, or is no model (with file, line
            and exception).
    """
    if isinstance(model, Model):
        return model
    if not is_own_model(model):
        return Model(model, MODELS.find(model))
    path, content = user_models.read(model, _taken())
    found = Model(model_name(model), ModuleType(path.stem), content)
    if sha256 not in (None, found.sha256):
        raise InputError(
            f"model {model!r}: the file has changed: its sha256 is {str(found.sha256)[:12]}, asked for is"
            f" {str(sha256)[:12]}: run the workflow again, or put back what was there"
        )
    found.file.__file__ = str(path)
    with found.blamed(building=True):
        found = Model(found.name, user_models.module_of(path, content), content)
    if not _model_of(found.file):
        raise lacking(found.file, "has no class Settings and no function build, so it is no model")
    return found


def check_names(models: list[str]) -> None:
    """Raise InputError for user files that cannot be read or whose names are not allowed; no file is executed."""
    user_models.check_names(models, _taken())


def _taken() -> list[str]:
    return [*MODELS.all(), *MODELS.broken]


def settings_of(model: str | Model, values: dict[str, Any] | None = None) -> ModelSettings:
    """Return the hyperparameters of ``model``: the published values, overridden by ``values``.

    Raises:
        InputError: unknown model or setting (both with the nearest names), or a value out of range.
    """
    found = find(model)
    settings: type[ModelSettings] = found.file.Settings
    with found.blamed():
        return parsed(settings, values or {}, f"setting of model {found.name}: ")


def build(
    model: str | Model, settings: ModelSettings, features: int, classes: int, nodes: int = 0, relations: int = 0
) -> Chain:
    """Return the modules of ``model`` for ``features`` input columns and ``classes`` output columns.

    Args:
        model: its name, its path, or a model returned by ``find``.
        settings: its hyperparameters.
        features, classes: columns of the input and of the output.
        nodes, relations: numbers of nodes and arc types of the graph.

    Raises:
        InputError: the model needs something that the graph lacks, its file cannot build it (with file, line and
            exception), or two of its layers have the same name.
    """
    found = find(model)
    name, file = found.name, found.file
    if not features and not getattr(file, "FEATURELESS", False):
        raise InputError(f"model {name}: the graph has no node features to train on")
    with found.blamed(building=True):
        chain = file.build(settings, Sizes(features, classes, nodes, relations))
    at = file.build if isfunction(file.build) else file
    if not isinstance(chain, Chain):
        raise lacking(at, f"model {name}: build returned a {type(chain).__name__}, not a Chain")
    if not chain.parameters:
        raise lacking(at, f"model {name}: no layer of it has a parameter, so there is nothing to train")
    shared: dict[str, Parameter] = {}
    with found.blamed():
        names = [*_names(chain, shared), *shared]
        twice = [each for each, count in Counter(names).items() if count > 1]
    if twice:
        layer = twice[0].rpartition(".")[0] or twice[0]
        raise lacking(at, f"model {name}: two layers are called {layer!r} ({twice[0]}): give each a name of its own")
    return chain


def _names(module: Module, shared: dict[str, Parameter]) -> list[str]:
    """Return the names of all parameters and running statistics; a module used twice contributes its names twice.

    Parameters shared by layers go into ``shared`` instead.
    """
    if isinstance(module, Composite):
        return [name for each in module.modules for name in _names(each, shared)]
    for each in (each for each in module.parameters if each.shared):
        if (other := shared.setdefault(each.name, each)) != each:
            raise InputError(
                f"parameter {each.name}, which layers share, has shape {list(other.shape)}, init {other.init}, decay"
                f" {other.decay} in one and {list(each.shape)}, {each.init}, {each.decay} in another: give it alike"
            )
    return [*(each.name for each in module.parameters if not each.shared), *module.state]
