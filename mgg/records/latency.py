"""Records of ``mgg links --latency``: transfer times by size, row by row and in one piece (CoLa's table 4)."""

from __future__ import annotations

import statistics
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from mgg.records import Count, Machine, Origin, Seconds, Used

#: How bytes move: one request per row (fine), or one request for all rows (coarse).
Grain = Literal["fine", "coarse"]


class LatencyRecord(Origin):
    """Times of one transfer size over one class of links; all PEs of the job transfer at once."""

    again: ClassVar[str] = "run mgg links --latency again"

    schema_version: Literal[1] = 1
    kind: Literal["latency"] = "latency"
    backend: str = Field(description="what the PEs were: simulated (threads), mpi (processes) or nvshmem (GPUs)")
    pes: int = Field(ge=2, description="number of PEs, all of which move as many bytes at once")
    machine: Machine
    versions: dict[str, str] = Field(description="versions of MGG and of the libraries that do the work")
    used: Used | None = Field(None, description="what the job had used until then; None: unknown")
    gpu_memory: Count | None = Field(None, description="most bytes held of a GPU's memory; None: CPUs, or not noted")
    link: str = Field(description="class of the link: nvlink, shared_memory, mpi, or network (GPUs of several hosts)")
    grain: Grain = Field(description="fine: one request per row; coarse: one transfer of all bytes")
    bytes: int = Field(ge=1, description="bytes that each PE moves; all PEs move them at the same time")
    row_bytes: int = Field(ge=1, description="bytes of one row")
    seconds: list[Seconds] = Field(min_length=1, description="of each repetition, slowest PE")
    median: Seconds = Field(description="median of the times of these transfers")

    @model_validator(mode="after")
    def _adds_up(self) -> LatencyRecord:
        if self.median != statistics.median(self.seconds):
            raise ValueError(f"median: {self.median} is not that of seconds")
        if self.bytes % self.row_bytes:
            raise ValueError(f"bytes: {self.bytes} are not whole rows of {self.row_bytes}")
        return self
