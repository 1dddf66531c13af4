"""Records of ``mgg predict``: times of products by the cost model."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from mgg.records import Origin, Seconds


class PredictionRecord(Origin):
    """Prediction of the cost model for one technique, width and number of PEs; nothing ran (docs/concepts/costs.md)."""

    again: ClassVar[str] = "run mgg predict again"
    called: ClassVar[str] = "predictions"
    schema_version: Literal[2] = 2
    kind: Literal["prediction"] = "prediction"
    dataset: str = Field(description="name of the graph")
    graph_hash: str = Field(description="hash of the graph's shards; graphs with equal hashes are equal")
    nodes: int = Field(ge=0, description="number of nodes")
    arcs: int = Field(ge=0, description="number of stored arcs")
    scheme: str = Field(description="partition scheme")
    technique: str = Field(description="aggregation technique")
    options: dict[str, Any] = Field(
        default_factory=dict, description="options of the technique that differ from the defaults"
    )
    pes: int = Field(ge=1, description="number of PEs")
    workgroup: int = Field(ge=1, description="number of PEs joined by fast links")
    dim: int = Field(ge=1, description="D, the number of embedding columns")
    dtype: str = Field(description="type of the embeddings")
    machine: str = Field(description="machine of the model")
    basis: str = Field(description="where the constants of the machine come from: measured, fitted, or not measured")
    links: dict[str, dict[str, float]] = Field(
        description="links of the machine by class: latency and message in seconds, bandwidth in bytes per second and "
        "PE"
    )
    network: str = Field(description="class of the link between workgroups")
    seconds: Seconds = Field(
        description="predicted time of one forward product on the slowest PE: arithmetic + transfer + fixed - hidden"
    )
    arithmetic: Seconds = Field(description="predicted time of that PE's arithmetic")
    transfer: Seconds = Field(description="predicted time of its transfers")
    fixed: Seconds = Field(description="predicted time of barriers and launches")
    hidden: Seconds = Field(
        description="predicted time of the shorter of arithmetic and transfers that passes beside the longer one"
    )
    chosen: bool = Field(
        description="whether auto would pick it of the techniques that the model knows there (docs/concepts/costs.md)"
    )

    @model_validator(mode="after")
    def _adds_up(self) -> PredictionRecord:
        total = self.arithmetic + self.transfer + self.fixed - self.hidden
        if abs(total - self.seconds) > 1e-6 * max(total, 1e-9):
            raise ValueError(f"seconds: {self.seconds} is not arithmetic + transfer + fixed - hidden")
        return self
