"""The pieces of rows in which GPUs compute the gradient by weights: as many as help, within their bytes."""

import pytest

from mgg.model.arrays.pieces import PIECES_BYTES, pieces_bytes, pieces_of

ROWS = (0, 1, 255, 256, 2_999, 70_001, 131_072, 10_000_000)


@pytest.mark.parametrize("rows", ROWS)
def test_small_matrices_have_as_many_pieces_as_rows_allow(rows):
    for inputs, outputs in ((1, 1), (16, 7), (128, 256), (256, 256), (0, 5)):
        assert pieces_of(rows, inputs, outputs) == max(1, min(512, rows // 256))


@pytest.mark.parametrize("rows", ROWS)
def test_large_matrices_have_fewer_pieces(rows):
    for inputs, outputs in ((602, 256), (2048, 2048), (10_000, 10_000)):
        pieces, matrix = pieces_of(rows, inputs, outputs), 4 * inputs * outputs
        assert pieces == 1 or pieces * matrix <= PIECES_BYTES
        assert pieces * matrix <= pieces_bytes(rows, inputs, outputs) <= (pieces + 1) * matrix
    assert pieces_of(131_072, 2048, 2048) == 8
