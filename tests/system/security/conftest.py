"""Working folders for the tests that run the workflow."""

from pathlib import Path

import pytest
from support.workflow import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty working folder."""
    return Folder(tmp_path)
