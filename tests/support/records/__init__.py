"""Records with changed values and hashes that fit, as MGG would have written them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mgg.hashed import LAST, PREVIOUS, SEAL, file_hash, lines, sealed
from mgg.records import RUN_FILE


def altered(text: str, **fields: Any) -> str:
    """A JSON object with these fields changed, and a hash that fits."""
    return changed(text, lambda values: values.update(fields))


def file_of(*texts: str) -> str:
    """The text of a file of JSON lines with these objects, and hashes that fit."""
    fields = (SEAL, PREVIOUS, LAST)
    return lines({key: value for key, value in json.loads(text).items() if key not in fields} for text in texts)


def changed(text: str, change: Callable[[dict[str, Any]], object]) -> str:
    """A JSON object after ``change`` has changed its values, with a hash that fits."""
    values = json.loads(text)
    values.pop(SEAL, None)
    change(values)
    return json.dumps(sealed(values)) + "\n"


def alter(path: Path, **fields: Any) -> None:
    """``altered`` for a file with one object."""
    path.write_text(altered(path.read_text(), **fields))


def alter_run(folder: Path, **fields: Any) -> Path:
    """Change fields in the record of a run's folder, and update the hashes of its files; returns the folder."""
    files = {path.name: file_hash(path) for path in folder.iterdir() if path.name != RUN_FILE}
    alter(folder / RUN_FILE, files=files, **fields)
    return folder
