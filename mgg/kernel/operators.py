"""The table of operators that techniques are written with; every kind of device has its own."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Operators(Protocol):
    """Arithmetic of one PE. Embeddings are row-major matrices of float32 or, for ``gather_rows`` and ``spmm_rows``,
    bfloat16, which is held as uint16; sums are rounded to float32 once.
    """

    def gather_rows(self, source: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy ``source[rows]`` into ``out`` [len(rows), columns]."""

    def spmm_rows(
        self, indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, b: np.ndarray, c: np.ndarray,
        accumulate: bool,
    ) -> None:  # fmt: skip
        """Row-wise SpMM: ``c[r] (=|+=) sum_k weights[k] * b[indices[k]]`` over the arcs k of row r.

        ``c`` is an embedding matrix or an accumulator.
        """

    def accumulator(self, rows: int, columns: int) -> np.ndarray:
        """An uninitialized matrix [rows, columns], precise enough for many partial sums of one row."""

    def spmm_partitions(
        self, rows: np.ndarray, starts: np.ndarray, stops: np.ndarray, indices: np.ndarray,
        weights: np.ndarray | None, b: np.ndarray, acc: np.ndarray,
    ) -> None:  # fmt: skip
        """Add the partial sum of each neighbor partition (arcs starts[i]..stops[i] of row rows[i]) to ``acc``."""

    def spmm_columns(
        self, colptr: np.ndarray, rows: np.ndarray, weights: np.ndarray | None, b: np.ndarray, acc: np.ndarray
    ) -> None:
        """Column-wise SpMM: ``acc[rows[k]] += weights[k] * b[j]`` over the arcs k of column j."""

    def round_to_bf16(self, values: np.ndarray, out: np.ndarray) -> None:
        """Round float32 ``values`` to bfloat16 ``out``, same shape."""

    def widen_bf16(self, values: np.ndarray, out: np.ndarray) -> None:
        """Write bfloat16 ``values`` into float32 ``out``, same shape."""

    def finish(self, acc: np.ndarray, c: np.ndarray) -> None:
        """Round an accumulator into ``c``."""
