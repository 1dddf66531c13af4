"""Record which files are flushed to the disk."""

import os
from pathlib import Path

import pytest


def note_syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list to which the path of each file and folder is added that ``os.fsync`` flushes from now on."""
    synced: list[str] = []
    fsync = os.fsync

    def note(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    return synced
