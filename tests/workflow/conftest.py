"""Working folders for the workflow's tests."""

import os
from pathlib import Path

import pytest
from support.workflow import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty working folder."""
    return Folder(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A working folder in which the whole tiny workflow has run, for a user whose files everybody may write."""
    made = Folder(tmp_path_factory.mktemp("finished"))
    before = os.umask(0)
    try:
        run = made.run()
    finally:
        os.umask(before)
    assert run.returncode == 0, run.stdout
    return made
