"""An undisturbed run of every stage, which each test compares with."""

from pathlib import Path

import pytest
from support.ranks.shared import made_once
from support.workflow import Folder
from support.workflow.faults import FaultFolder


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A working folder in which the whole workflow has run, undisturbed."""

    def make(path: Path) -> None:
        run = FaultFolder(path).run()
        assert run.returncode == 0, run.stdout

    return FaultFolder.at(made_once(tmp_path_factory, "undisturbed", make))


@pytest.fixture
def before(finished: Folder, tmp_path: Path):
    """``before(stage)``: a copy of the undisturbed folder as it was before ``stage``; what works in it ends."""
    made: list[FaultFolder] = []

    def copied(stage: str) -> FaultFolder:
        made.append(FaultFolder.before(stage, finished, tmp_path / "run"))
        return made[-1]

    yield copied
    for folder in made:
        folder.end()
