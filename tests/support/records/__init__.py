"""Records with other values, as an MGG would have written them that measured these."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mgg.hashed import LAST, PREVIOUS, SEAL, file_hash, lines, sealed
from mgg.records import RUN_FILE


def altered(text: str, **fields: Any) -> str:
    """A JSON object with other ``fields`` and a hash that fits."""
    return changed(text, lambda values: values.update(fields))


def file_of(*texts: str) -> str:
    """A file of JSON lines that hold these objects, with hashes that fit."""
    fields = (SEAL, PREVIOUS, LAST)
    return lines({key: value for key, value in json.loads(text).items() if key not in fields} for text in texts)


def changed(text: str, change: Callable[[dict[str, Any]], object]) -> str:
    """A JSON object once ``change`` was called with its values, with a hash that fits."""
    values = json.loads(text)
    values.pop(SEAL, None)
    change(values)
    return json.dumps(sealed(values)) + "\n"


def alter(path: Path, **fields: Any) -> None:
    """``altered``, of a file that holds one object."""
    path.write_text(altered(path.read_text(), **fields))


def alter_run(folder: Path, **fields: Any) -> Path:
    """A run's folder with other ``fields`` in its record, which names its files as they are now."""
    files = {path.name: file_hash(path) for path in folder.iterdir() if path.name != RUN_FILE}
    alter(folder / RUN_FILE, files=files, **fields)
    return folder
