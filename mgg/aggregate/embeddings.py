"""How the embeddings of a plan lie in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mgg.backend.api import SymmetricArray
from mgg.kernel.pitch import row_pitch


class Form(Protocol):
    """How rows lie in memory."""

    def floats(self, rows: int, dim: int) -> int:
        """Floats that take as much memory as ``rows`` of ``dim`` columns."""

    def matrix(self, array: SymmetricArray, rows: int, dim: int) -> SymmetricArray:
        """The beginning of ``array`` as so many rows; PEs whose ``rows`` differ may use their own copy alone."""


@dataclass(frozen=True)
class Embeddings:
    """Matrices of one type.

    Attributes:
        element: of an embedding: float32, or uint16 for bfloat16.
        padded: rows are ``row_pitch`` apart; else one follows the other.
    """

    element: type
    padded: bool

    def pitch(self, dim: int) -> int:
        """Elements from one row of ``dim`` columns to the next."""
        return row_pitch(dim, np.dtype(self.element).itemsize) if self.padded else dim

    def floats(self, rows: int, dim: int) -> int:
        """Floats that take as much memory as a matrix [rows, dim]."""
        return -(-rows * self.pitch(dim) * np.dtype(self.element).itemsize // 4)

    def matrix(self, array: SymmetricArray, rows: int, dim: int) -> SymmetricArray:
        """The beginning of ``array`` as [rows, dim]; PEs whose ``rows`` differ may use their own copy alone."""
        return array.view(rows, dim, self.element, self.pitch(dim))
