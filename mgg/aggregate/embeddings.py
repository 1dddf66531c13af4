"""Memory layout of a plan's embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mgg.backend.api import SymmetricArray
from mgg.kernel.pitch import row_pitch


class Form(Protocol):
    """Memory layout of rows."""

    def floats(self, rows: int, dim: int) -> int:
        """Return how many floats take as much memory as ``rows`` of ``dim`` columns."""

    def matrix(self, array: SymmetricArray, rows: int, dim: int) -> SymmetricArray:
        """Return the beginning of ``array`` as ``rows`` rows; PEs with different ``rows`` may use only their copy."""


@dataclass(frozen=True)
class Embeddings:
    """Matrices of one element type.

    Attributes:
        element: type of an embedding: float32, or uint16 for bfloat16.
        padded: rows are ``row_pitch`` apart; otherwise they are contiguous.
    """

    element: type
    padded: bool

    def pitch(self, dim: int) -> int:
        """Return the number of elements from one row of ``dim`` columns to the next."""
        return row_pitch(dim, np.dtype(self.element).itemsize) if self.padded else dim

    def floats(self, rows: int, dim: int) -> int:
        """Return how many floats take as much memory as a matrix [rows, dim]."""
        return -(-rows * self.pitch(dim) * np.dtype(self.element).itemsize // 4)

    def matrix(self, array: SymmetricArray, rows: int, dim: int) -> SymmetricArray:
        """Return the beginning of ``array`` as [rows, dim]; PEs with different ``rows`` may use only their copy."""
        return array.view(rows, dim, self.element, self.pitch(dim))
