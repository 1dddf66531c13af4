"""Working folders for the workflow's tests."""

import os
import shutil
from pathlib import Path

import pytest
from support.ranks.shared import made_once
from support.workflow import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty working folder."""
    return Folder(tmp_path)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder in which the whole tiny workflow has run, for a user whose files everybody may write."""

    def make(path: Path) -> None:
        before = os.umask(0)
        try:
            run = Folder(path).run()
        finally:
            os.umask(before)
        assert run.returncode == 0, run.stdout

    return made_once(tmp_path_factory, "tiny", make)


@pytest.fixture(scope="module")
def finished(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A copy of it, which the tests of a module may change one after the other."""
    path = tmp_path_factory.mktemp("finished") / "copy"
    shutil.copytree(whole, path, symlinks=True)
    return Folder.at(path)
