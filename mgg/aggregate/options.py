"""Base class of technique options."""

from __future__ import annotations

from mgg.config import Assigned


class TechniqueOptions(Assigned):
    """Options of a technique; each has a default."""

    @property
    def per_direction(self) -> bool:
        """Whether the plans of A and of its transpose differ even if the matrices are equal: each keeps state of its
        own between products, or computes another way.
        """
        return False
