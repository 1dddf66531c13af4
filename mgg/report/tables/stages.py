"""The stages of the workflow in their order."""

from __future__ import annotations

STAGES = (
    "retrieve", "graph", "describe", "partition", "layout", "tune", "predict", "links", "aggregate", "train", "lookup",
    "report",
)  # fmt: skip


def stage_place(stage: str) -> tuple[int, str]:
    """Where a stage stands among the others; one that is not known comes last."""
    return (STAGES.index(stage) if stage in STAGES else len(STAGES), stage)
