"""MGG: full-graph GNN training and distributed SpMM on every GPU of a cluster, or on CPU ranks.

``mgg.graph``, ``mgg.train``, ``mgg.aggregate`` and ``mgg.report`` are subpackages that can also be called: a call runs
the function of the same name in ``mgg.api``. Each is imported on first use.
"""

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any

__version__ = "0.2.0"
_CALLED = ("aggregate", "graph", "report", "train")


class _Called(ModuleType):
    """A subpackage whose call runs the function of the same name in ``mgg.api``."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.__wrapped__(*arguments, **options)

    @property
    def __wrapped__(self) -> Any:
        return getattr(importlib.import_module("mgg.api"), self.__name__.removeprefix("mgg."))

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.__wrapped__)


class _Mgg(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        """Set a module attribute and make imported subpackages callable; every subpackage import ends here."""
        if name in _CALLED and isinstance(value, ModuleType):
            value.__class__ = _Called
        super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    """Import a callable subpackage on first access."""
    if name not in _CALLED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"mgg.{name}")


sys.modules[__name__].__class__ = _Mgg
