"""Options of techniques."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class TechniqueOptions(BaseModel):
    """Options of a technique; each has a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
