"""Folders that workers of pytest-xdist share, because they take long to make."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that the first caller fills by ``make`` while the others wait. No test may change it."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # each worker has its own folder in the shared one
        base = base.parent
    folder = base / name
    with (base / f"{name}.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        state = lock.read()
        if not state:
            folder.mkdir()
            lock.write("being made\n")
            lock.flush()
            make(folder)
            lock.write("whole\n")
        elif not state.endswith("whole\n"):
            pytest.fail(f"{name} could not be made: another test that needs it says why")
    return folder
