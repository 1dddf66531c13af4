"""The operator interface that techniques use; each kind of device implements it."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from mgg.kernel.random import Draws


class Operators(Protocol):
    """Arithmetic of one PE. Embeddings are row-major matrices of float32 or, for ``gather_rows`` and ``spmm_rows``,
    bfloat16 stored as uint16; sums are rounded to float32 once. Rows may be padded, but the entries of a row are
    contiguous. Ids are int32, or int64 with 2^31 nodes or more. Arrays are in this PE's device memory.
    """

    def gather_rows(self, source: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy ``source[rows]`` into ``out``.

        Args:
            source: [*, D], float32 or bfloat16.
            rows: ids [k] of rows of ``source``; repeats are allowed.
            out: [k, D], of the dtype of ``source``.
        """

    def add_rows(self, source: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        """Add ``source`` to ``out[rows]``.

        Args:
            source: [k, D], float32, or float64 on CPUs.
            rows: distinct ids [k] of rows of ``out``.
            out: [*, D], of the dtype of ``source``.
        """

    def pack_rows(
        self, source: np.ndarray, rows: np.ndarray, ids: np.ndarray, draws: Draws, bits: int, out: np.ndarray
    ) -> None:
        """Pack ``source[rows]`` into ``out`` (``mgg.kernel.wire``), the same bits on any device.

        Args:
            source: [*, D], float32 or bfloat16.
            rows: ids [k] of rows of ``source``.
            ids: int64 [k], ids that select each row's random numbers.
            draws: seed, epoch and stream of these numbers; the epoch is float64 [1] in device memory.
            bits: bits per value: 2, 4, 8 or 16.
            out: uint32 [k, words(D, bits)], with contiguous rows.
        """

    def unpack_rows(self, packed: np.ndarray, bits: int, out: np.ndarray) -> None:
        """Unpack the ``packed`` rows into ``out`` [k, D], float32 or bfloat16 (rounded)."""

    def spmm_rows(
        self, indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, b: np.ndarray, c: np.ndarray,
        accumulate: bool,
    ) -> None:  # fmt: skip
        """Row-wise SpMM: ``c[r] (=|+=) sum_k weights[k] * b[indices[k]]`` over the arcs k of row r.

        Args:
            indptr: int64 [rows + 1], ascending; row r has the arcs ``indptr[r] .. indptr[r + 1]``.
            indices: ids [arcs] of rows of ``b``; a slice of a matrix's rows comes with the ids of all its arcs.
            weights: float32 [arcs]; None: 1.
            b: [*, D], float32 or bfloat16.
            c: [rows, D], float32 or an accumulator.
            accumulate: add to ``c`` instead of overwriting it.
        """

    def accumulator(self, rows: int, columns: int) -> np.ndarray:
        """Return an uninitialized matrix [rows, columns] for partial sums: float64 on CPUs, float32 on GPUs."""

    def spmm_partitions(
        self, rows: np.ndarray, starts: np.ndarray, stops: np.ndarray, indices: np.ndarray,
        weights: np.ndarray | None, b: np.ndarray, acc: np.ndarray,
    ) -> None:  # fmt: skip
        """Add the partial sum of each neighbor partition (arcs starts[i]..stops[i] of row rows[i]) to ``acc``.

        Args:
            rows: int64 [pieces], rows of ``acc``; repeats are allowed.
            starts, stops: int64 [pieces], first arc of each piece, and the end of its arcs.
            indices: ids [arcs] of rows of ``b``.
            weights: float32 [arcs]; None: 1.
            b: float32 [*, D].
            acc: accumulator [*, D].
        """

    def spmm_columns(
        self, colptr: np.ndarray, rows: np.ndarray, weights: np.ndarray | None, b: np.ndarray, acc: np.ndarray
    ) -> None:
        """Column-wise SpMM: ``acc[rows[k]] += weights[k] * b[j]`` over the arcs k of column j.

        Args:
            colptr: int64 [columns + 1], ascending; ``rows[0]`` is arc ``colptr[0]``.
            rows: ids [arcs] of rows of ``acc``.
            weights: float32 [arcs]; None: 1.
            b: float32 [columns, D].
            acc: accumulator [*, D].
        """

    def write(self, values: np.ndarray, out: np.ndarray) -> None:
        """Write float32 ``values`` to ``out``, float32 or bfloat16 (rounded); same shape, separate memory."""

    def widen_bf16(self, values: np.ndarray, out: np.ndarray) -> None:
        """Write bfloat16 ``values`` to float32 ``out`` of the same shape."""

    def finish(self, acc: np.ndarray, c: np.ndarray) -> None:
        """Round an accumulator [rows, D] to ``c``, float32 [rows, D]."""
