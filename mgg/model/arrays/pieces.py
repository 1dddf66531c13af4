"""In how many pieces of rows GPUs compute X^T G, and the memory that the pieces take."""

from __future__ import annotations

#: X^T G is computed in so many pieces at most, each of so many rows at least: a matrix of few entries that sums up
#: millions of rows would otherwise be the work of a few multiprocessors.
PIECES, PIECE_ROWS = 512, 256
#: Bytes of all pieces: a matrix of more than 65,536 entries has work for many multiprocessors in fewer pieces.
PIECES_BYTES = 128 << 20
_FLOAT = 4


def pieces_of(rows: int, inputs: int, outputs: int) -> int:
    """Number of pieces for X [rows, inputs] and G [rows, outputs], at least one."""
    return max(1, min(PIECES, rows // PIECE_ROWS, PIECES_BYTES // max(1, _FLOAT * inputs * outputs)))


def pieces_bytes(rows: int, inputs: int, outputs: int) -> int:
    """Bytes of the pieces, and of the rows that are left."""
    pieces = pieces_of(rows, inputs, outputs)
    return _FLOAT * (pieces + (rows % pieces > 0)) * inputs * outputs
