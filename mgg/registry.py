"""What is found by being a file of a package: every file is read by itself, so that a mistake in one is its alone."""

from __future__ import annotations

import importlib.util
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from mgg.errors import InputError, MggError
from mgg.schema import nearest

T = TypeVar("T")


class Registry(Generic[T]):
    """Things by name that the files of a package hold. What is wrong with a file is told to who asks for it.

    Args:
        package: its full name.
        what: what they are called in messages, ``technique``.
        holds: what a file has that holds one, for messages (``has no ...``): ``function split``.
        of: those of a module, by name; raises InputError (``lacking``) where one is not whole. None: files call
            ``add``.
        unknown: how the message about an unknown name begins.
    """

    def __init__(
        self, package: str, what: str, holds: str, of: Callable[[ModuleType], Mapping[str, T]] | None = None,
        unknown: str = "{what} {name!r}: unknown",
    ) -> None:  # fmt: skip
        self._package, self._what, self._holds, self._of, self._unknown = package, what, holds, of, unknown
        self.added: dict[str, T] = {}
        self._origins: dict[str, str] = {}

    def add(self, name: str, value: T, module: str) -> None:
        """Add ``value``, of the module of that full name; raises InputError where another module has the name."""
        other = self._origins.setdefault(name, module)
        if other != module:
            raise InputError(f"{self._what} {name!r} is there already, in {other}: give this one another name")
        self.added[name] = value

    def all(self) -> dict[str, T]:
        """Those of all files that can be read, sorted by name."""
        _ = self.broken  # reads them
        return dict(sorted(self.added.items()))

    def find(self, name: str) -> T:
        """The one called ``name``.

        Raises:
            InputError: the file of that name cannot be read (file, line and exception), or there is none of that name
                (the nearest ones, and the files that cannot be read).
        """
        if name in self.broken:
            raise InputError(f"{self._what} {name!r}: {self.broken[name]}") from self.broken[name].__cause__
        if name in self.added:
            return self.added[name]
        hints = [nearest(name, self.added)]
        file = getattr(sys.modules.get(f"{self._package}.{name}"), "__file__", None)
        hints += [f"{file} has no {self._holds}"] if file else []
        hints += [f"could not be read: {error}" for error in self.broken.values()]
        raise InputError("; ".join([self._unknown.format(what=self._what, name=name), *hints]))

    @cached_property
    def broken(self) -> dict[str, InputError]:
        """What is wrong with the files that cannot be read, by name without ``.py``; reads all of them."""
        found = {}
        for each in pkgutil.iter_modules(importlib.import_module(self._package).__path__):
            full = f"{self._package}.{each.name}"
            try:
                module = importlib.import_module(full)
                for name, value in (self._of(module) if self._of else {}).items():
                    self.add(name, value, full)
            except MemoryError:
                raise  # no mistake of the file
            except Exception as error:
                # What it had added by then is as incomplete as the file.
                for name in [name for name, origin in self._origins.items() if origin == full]:
                    del self._origins[name], self.added[name]
                spec = importlib.util.find_spec(full)
                found[each.name] = blamed(error, Path((spec and spec.origin) or full))
        return found


def blamed(error: BaseException, file: Path, *, alone: bool = False) -> InputError:
    """The line for an ``error`` that ``file`` of a package raised while it was read: file, line and exception.

    The line is the last one in the package's folder: a file that imports a broken one is not at fault itself. A file
    that stands ``alone`` is of no package: the line is its own.
    """
    package = file.parents[file.name == "__init__.py"]  # that the file, or its folder, is of
    around = file if alone else package
    if isinstance(error, MggError) and str(around) in str(error):
        place = ""
    elif isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_file():
        place = f"{error.filename}:{error.lineno}: "
    else:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if Path(frame.filename).is_relative_to(around)]
        # Without the registry's own frames: those of a package's __init__.py are not the file's.
        inside = [frame for frame in inside if Path(frame.filename) != package / "__init__.py"]
        place = f"{inside[-1].filename}:{inside[-1].lineno}: " if inside else f"{file}: "
    kind = "" if isinstance(error, MggError) else f"{type(error).__name__}: "
    made = InputError(f"{place}{kind}{' '.join(str(getattr(error, 'msg', error)).split())}")
    made.__cause__ = error
    return made


def lacking(of: Any, what: str) -> InputError:
    """The error of a module, or of a class or function in one, that lacks ``what``: with its file and line."""
    file = inspect.getsourcefile(of)
    line = "" if inspect.ismodule(of) else f":{inspect.getsourcelines(of)[1]}"
    return InputError(f"{file}{line}: {what}")
