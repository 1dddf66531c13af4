"""Records of the workflow's jobs."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from mgg.record import Origin, Seconds


class JobRecord(Origin):
    """A job of the workflow: what it asked for, when it ran, what it used. None: nobody measured or told it."""

    again: ClassVar[str] = "remove it, and the workflow writes it anew"

    schema_version: Literal[2] = 2
    kind: Literal["job"] = "job"
    stage: str = Field(description="stage of the rule")
    rule: str = Field(description="rule of the workflow")
    wildcards: dict[str, str] = Field(description="what the job was for")
    attempts: int = Field(1, ge=1, description="how often it was started until it passed")
    slurm_job: str | None = Field(None, description="Slurm's number of the job")
    submitted: Seconds | None = Field(None, description="when Slurm got it, seconds since 1970-01-01 UTC")
    ended: Seconds | None = Field(None, description="when its output was there, the same")
    seconds: Seconds | None = Field(None, description="that its command ran")
    memory: int | None = Field(
        None, ge=0, description="most bytes in use by its processes, seen on its own host; of Slurm's ranks as they say"
    )
    cpu_seconds: Seconds | None = Field(None, description="CPU seconds of the same processes when last looked at")
    seen: Seconds | None = Field(None, description="how long its command had run when last looked at")
    runtime_asked: Seconds | None = Field(None, description="seconds it might have run")
    memory_asked: int | None = Field(None, ge=0, description="bytes it might have used on each host")
    ranks: int = Field(1, ge=1, description="tasks of Slurm that shared its cores evenly")
    cores_asked: int | None = Field(None, ge=1, description="cores it was given, all hosts together")
    granted: bool = Field(False, description="a scheduler had reserved what it asked for")
