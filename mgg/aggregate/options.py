"""Base class of technique options."""

from __future__ import annotations

from mgg.config import Assigned


class TechniqueOptions(Assigned):
    """Options of a technique; each has a default."""
