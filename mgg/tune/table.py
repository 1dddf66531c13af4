"""The lookup table of the tuner (MGG, OSDI'23, section 6): one file per entry in the user's cache folder.

The key of an entry holds everything that the time of a product depends on, so an entry is never out of date: another
GPU, layout or kernel has another key. Files are written atomically; if two jobs write one entry, the last one wins.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from mgg.errors import InputError
from mgg.files import cache_folder, write_text
from mgg.hashed import sealed, unsealed
from mgg.schema import Fixed, explain
from mgg.tune.setting import SettingRecord, Tried

_log = logging.getLogger(__name__)


class Key(Fixed):
    """The facts that the time of a product depends on."""

    device: str = Field(description="models of the GPUs, or of the processor")
    backend: str = Field(description="what the PEs are")
    hosts: int = Field(description="that they are on")
    pes: int = Field(description="number of PEs")
    layout: str = Field(description="digest of the layout's manifest")
    direction: Literal["forward", "transpose"] = Field(description="A B or its transpose")
    dim: int = Field(description="embedding columns")
    dtype: str = Field(description="type of the embeddings")
    technique: str = Field(description="name of the technique")
    options: dict[str, Any] = Field(description="its options beside ps, dist and wpb")
    kernel: str = Field(description="sha256 of the kernel's sources")

    @property
    def path(self) -> Path:
        """Return the file of the entry."""
        digest = hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()[:24]
        return cache_folder("tune") / f"{digest}.json"


class Entry(Fixed):
    """The result of a search."""

    schema_version: Literal[1] = 1
    key: Key
    chosen: SettingRecord = Field(description="the fastest of those tried")
    tried: tuple[Tried, ...] = Field(min_length=1, description="all that were measured, in their order")


def read(key: Key) -> Entry | None:
    """Return the entry of ``key``; None if there is none, or, with a warning, if it is damaged."""
    path = key.path
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        _log.warning("%s: not readable (%s): as good as none", path, error)
        return None
    try:
        entry = Entry.model_validate(unsealed(text, str(path), ""))
    except InputError as error:
        _log.warning("%s as good as none", error)
        return None
    except ValidationError as error:
        _log.warning("%s: %s: as good as none", path, explain(error, Entry))
        return None
    if entry.key != key:
        _log.warning("%s: is of something else (%s, D = %d): as good as none", path, entry.key.device, entry.key.dim)
        return None
    return entry


def write(entry: Entry) -> Path:
    """Store ``entry`` and return its file; raise MachineError if the cache folder cannot be written."""
    path = entry.key.path
    write_text(path, json.dumps(sealed(entry.model_dump(mode="json")), indent=1) + "\n")
    return path
