"""Hyperparameters that every model has; a model's file adds its own and sets the published defaults."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ModelSettings(BaseModel):
    """Hyperparameters of one model; a name that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    hidden: int = Field(16, ge=1, le=65536, description="columns of the hidden layers")
    dropout: float = Field(0.5, ge=0, lt=1, description="share of the values that dropout sets to zero")
    learning_rate: float = Field(0.01, gt=0, le=10, description="step size of Adam")
    row_normalize: bool | None = Field(False, description="scale every node's features to an absolute sum of 1")
