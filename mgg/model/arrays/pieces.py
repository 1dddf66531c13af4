"""The number of row pieces in which GPUs compute X^T G, and the memory of these pieces."""

from __future__ import annotations

#: The most pieces of X^T G, and the fewest rows per piece: without pieces, a small result that sums millions of rows
#: would occupy only a few multiprocessors.
PIECES, PIECE_ROWS = 512, 256
#: Most bytes of all pieces: results of more than 65,536 entries occupy many multiprocessors with fewer pieces.
PIECES_BYTES = 128 << 20
_FLOAT = 4


def pieces_of(rows: int, inputs: int, outputs: int) -> int:
    """Return the number of pieces for X [rows, inputs] and G [rows, outputs], at least one."""
    return max(1, min(PIECES, rows // PIECE_ROWS, PIECES_BYTES // max(1, _FLOAT * inputs * outputs)))


def pieces_bytes(rows: int, inputs: int, outputs: int) -> int:
    """Return the bytes of the pieces, including one for the remaining rows."""
    pieces = pieces_of(rows, inputs, outputs)
    return _FLOAT * (pieces + (rows % pieces > 0)) * inputs * outputs
