"""Modules that a folder of this package has, found by themselves.

One that cannot be loaded, somebody's own with a mistake, keeps none of the others from its work: it is told of where a
name is asked for that nobody has.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import cache
from types import ModuleType

from mgg.schema import nearest


def modules(package: str) -> Mapping[str, ModuleType]:
    """The modules of ``package`` by their names, in order; those that cannot be loaded are left out."""
    return _loaded(package)[0]


def unknown(name: str, known: Iterable[str], package: str) -> str:
    """What to say of a name that is not among ``known``, which the modules of ``package`` have.

    Returns:
        The nearest names, and each module that cannot be loaded: its file, line and error.
    """
    return "; ".join([nearest(name, known), *_loaded(package)[1]])


@cache
def _loaded(package: str) -> tuple[dict[str, ModuleType], list[str]]:
    found, broken = {}, []
    for name in sorted(info.name for info in pkgutil.iter_modules(sys.modules[package].__path__)):
        try:
            found[name] = importlib.import_module(f"{package}.{name}")
        except Exception as error:  # whatever a file may raise
            broken.append(_told(f"{package}.{name}", error))
    return found, broken


def _told(module: str, error: Exception) -> str:
    """``PATH, line 3: cannot be loaded: NameError: ...``."""
    spec = importlib.util.find_spec(module)
    path = str(spec.origin if spec else module)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines.append(error.lineno)
    line = f", line {lines[-1]}" if lines else ""
    text = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return f"{path}{line}: cannot be loaded: {type(error).__name__}: {text}"
