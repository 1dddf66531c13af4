"""Users' own models: files with the same contents as a file of this package, given by path."""

from __future__ import annotations

import hashlib
import re
import sys
import threading
from collections.abc import Collection, Iterable
from pathlib import Path
from types import ModuleType

from mgg.errors import InputError
from mgg.naming import is_own_model, model_name
from mgg.records import INFERENCE_FILE, MODEL_FOLDER, RUN_FILE, run_file

#: Names have no dots, because in MODEL.KEY=VALUE the first dot ends the name.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
#: Modules by path and sha256: PEs that are threads share them, and a file that changed is loaded again.
_MADE: dict[tuple[Path, str], ModuleType] = {}
_LOCK = threading.RLock()


def read(model: str, taken: Collection[str]) -> tuple[Path, bytes]:
    """Return the path and content of the file that ``model`` names, without executing it.

    Args:
        model: the path, relative to the working folder.
        taken: names that are not allowed.

    Raises:
        InputError: the file is no ``.py`` file, cannot be read, has a name that is not allowed, or is an altered copy
            in a run's folder.
    """
    path, name = Path(model).expanduser(), model_name(model)
    if path.suffix != ".py":
        raise InputError(f"model {model!r}: is no .py file: a model of your own is one (docs/guides/own-model.md)")
    if name in taken:
        raise InputError(f"model {model!r}: {name} is a model of MGG's: rename the file, or ask for --model {name}")
    if not _NAME.fullmatch(name):
        raise InputError(
            f"model {model!r}: results are called by the file's name: rename it to letters, digits, '_' and '-', the"
            " first one a letter or a digit, at most 128"
        )
    run = path.parent.parent
    if path.parent.name == MODEL_FOLDER and any((run / each).is_file() for each in (RUN_FILE, INFERENCE_FILE)):
        run_file(run, f"{MODEL_FOLDER}/{path.name}")
    try:
        return path.absolute(), path.read_bytes()
    except OSError as error:
        seen_from = "" if path.is_absolute() else f", seen from {Path.cwd()}"
        raise InputError(f"model {model!r}: {error.strerror}{seen_from}") from None


def module_of(path: Path, content: bytes) -> ModuleType:
    """Return the module made by executing ``content`` of the file ``path``; exceptions propagate."""
    digest = hashlib.sha256(content).hexdigest()
    with _LOCK:
        if (path, digest) not in _MADE:
            # Never load from __pycache__, which checks only time and size: the executed code must be what was hashed.
            module = ModuleType(f"mgg_own_{path.stem}_{digest[:16]}")
            module.__file__ = str(path)
            sys.modules[module.__name__] = module  # pydantic and inspect look there
            exec(compile(content, str(path), "exec", dont_inherit=True), vars(module))  # noqa: S102  # nosec B102
            _MADE[path, digest] = module
        return _MADE[path, digest]


def check_names(models: Iterable[str], taken: Collection[str]) -> None:
    """Raise InputError like ``read`` for the files among ``models``, and if two of them would have the same name."""
    files: dict[str, str] = {}
    for model in filter(is_own_model, models):
        read(model, taken)
        name = model_name(model)
        if (other := files.setdefault(name, model)) != model:
            raise InputError(f"models {other!r} and {model!r}: results of both would be called {name}: rename one")
