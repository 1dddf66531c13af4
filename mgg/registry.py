"""Plugin discovery: each file of a package is loaded separately, so one broken file does not break the rest."""

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
    """Named plugins defined by the files of a package. A broken file raises its error only when it is asked for.

    Args:
        package: full name of the package.
        what: the plugins' kind in messages: ``technique``.
        holds: what a plugin file must define, for messages (``has no ...``): ``function split``.
        of: returns the plugins of a module by name; raises InputError (``lacking``) if one is incomplete. None: the
            files call ``add``.
        unknown: start of the message about an unknown name.
    """

    def __init__(
        self, package: str, what: str, holds: str, of: Callable[[ModuleType], Mapping[str, T]] | None = None,
        unknown: str = "{what} {name!r}: unknown",
    ) -> None:  # fmt: skip
        self._package, self._what, self._holds, self._of, self._unknown = package, what, holds, of, unknown
        self.added: dict[str, T] = {}
        self._origins: dict[str, str] = {}

    def add(self, name: str, value: T, module: str) -> None:
        """Add ``value`` from ``module`` (full name); raises InputError if another module already uses ``name``."""
        other = self._origins.setdefault(name, module)
        if other != module:
            raise InputError(f"{self._what} {name!r} is there already, in {other}: give this one another name")
        self.added[name] = value

    def all(self) -> dict[str, T]:
        """Return the plugins of all readable files, sorted by name."""
        _ = self.broken  # loads all files
        return dict(sorted(self.added.items()))

    def find(self, name: str) -> T:
        """Return the plugin ``name``.

        Raises:
            InputError: the file of that name is broken (states file, line and exception), or the name is unknown
                (states the nearest names and the broken files).
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
        """Errors of the broken files, by name without ``.py``; the first access loads all files."""
        found = {}
        for each in pkgutil.iter_modules(importlib.import_module(self._package).__path__):
            full = f"{self._package}.{each.name}"
            try:
                module = importlib.import_module(full)
                for name, value in (self._of(module) if self._of else {}).items():
                    self.add(name, value, full)
            except MemoryError:
                raise  # not the file's fault
            except Exception as error:
                # Drop what the file had added before it failed.
                for name in [name for name, origin in self._origins.items() if origin == full]:
                    del self._origins[name], self.added[name]
                spec = importlib.util.find_spec(full)
                found[each.name] = blamed(error, Path((spec and spec.origin) or full))
        return found


def blamed(error: BaseException, file: Path, *, alone: bool = False) -> InputError:
    """Return the one-line error (file, line and exception) for an ``error`` raised while loading ``file``.

    The line is the innermost one in the package's folder, because a file that imports a broken one is not at fault.
    A file that stands ``alone`` belongs to no package, so only its own lines count.
    """
    package = file.parents[file.name == "__init__.py"]  # the package that contains the file or its folder
    around = file if alone else package
    if isinstance(error, MggError) and str(around) in str(error):
        place = ""
    elif isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_file():
        place = f"{error.filename}:{error.lineno}: "
    else:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if Path(frame.filename).is_relative_to(around)]
        # Frames of the package's __init__.py belong to the registry, not to the file.
        inside = [frame for frame in inside if Path(frame.filename) != package / "__init__.py"]
        place = f"{inside[-1].filename}:{inside[-1].lineno}: " if inside else f"{file}: "
    kind = "" if isinstance(error, MggError) else f"{type(error).__name__}: "
    made = InputError(f"{place}{kind}{' '.join(str(getattr(error, 'msg', error)).split())}")
    made.__cause__ = error
    return made


def lacking(of: Any, what: str) -> InputError:
    """Return the error, with file and line, for a module, class or function ``of``; ``what`` says what it lacks."""
    file = inspect.getsourcefile(of)
    line = "" if inspect.ismodule(of) else f":{inspect.getsourcelines(of)[1]}"
    return InputError(f"{file}{line}: {what}")
