"""How rows of embeddings are padded, and how columns are dealt to lanes."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.ranks import changed_environment

from mgg.kernel.pitch import row_pitch

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.mark.parametrize("itemsize", [2, 4])
def test_rows_are_aligned_and_never_shrink(itemsize):
    before = 0
    for columns in range(1, 3000):
        pitch, size = row_pitch(columns, itemsize), columns * itemsize
        assert columns <= pitch and pitch >= before
        step = pitch * itemsize
        if size > 256:
            assert step % 32 == 0 and step - size < 32
        elif size > 16:
            assert step % 16 == 0 and step - size < 16
        else:  # one load takes the row
            assert step in (2, 4, 8, 16) and step < 2 * size
        before = pitch


@pytest.mark.parametrize(
    ("columns", "itemsize", "pitch"),
    [(1, 4, 1), (2, 4, 2), (3, 4, 4), (16, 4, 16), (41, 4, 44), (47, 4, 48), (100, 4, 104), (602, 4, 608), (1, 2, 1),
     (3, 2, 4), (41, 2, 48), (128, 2, 128), (130, 2, 144)],
)  # fmt: skip
def test_pitches(columns, itemsize, pitch):
    assert row_pitch(columns, itemsize) == pitch


def test_tiles_of_columns():
    """In a process with stand-ins for CuPy."""
    command = [sys.executable, str(SUPPORT / "fake_gpu" / "run.py"), str(SUPPORT / "tiles_program.py")]
    environment = changed_environment({})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
