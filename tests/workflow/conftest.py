"""Working folders for the workflow's tests."""

from pathlib import Path

import pytest
from support.workflow import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty working folder."""
    return Folder(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A working folder in which the whole tiny workflow has run."""
    made = Folder(tmp_path_factory.mktemp("finished"))
    run = made.run()
    assert run.returncode == 0, run.stdout
    return made
