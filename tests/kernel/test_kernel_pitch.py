"""How rows of embeddings are padded."""

import pytest

from mgg.kernel.pitch import row_pitch


@pytest.mark.parametrize("itemsize", [2, 4])
def test_pitch_is_aligned_and_monotonic(itemsize):
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
def test_pitches_have_their_values(columns, itemsize, pitch):
    assert row_pitch(columns, itemsize) == pitch
