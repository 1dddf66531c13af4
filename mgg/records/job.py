"""Records of the workflow's jobs and of the resources they used."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from mgg.records import RUN_FILE, Origin, Seconds, Used, parsed, read_lines, text_of


class JobRecord(Origin):
    """A job of the workflow: its requests, times and resource use. None means not measured or not reported."""

    again: ClassVar[str] = "remove it, and the workflow writes it anew"

    schema_version: Literal[2] = 2
    kind: Literal["job"] = "job"
    stage: str = Field(description="stage of the workflow")
    rule: str = Field(description="rule of the workflow")
    wildcards: dict[str, str] = Field(description="what the job was for")
    attempts: int = Field(1, ge=1, description="how often the job was started until it passed")
    slurm_job: str | None = Field(None, description="Slurm's number of the job; None: none, or unknown")
    submitted: Seconds | None = Field(None, description="when Slurm got it, seconds since 1970-01-01 UTC")
    ended: Seconds | None = Field(None, description="when its output was there, the same")
    seconds: Seconds | None = Field(None, description="that its command ran")
    memory: int | None = Field(
        None,
        ge=0,
        description="most memory in use by its processes, observed or reported by Slurm's ranks; None: neither",
    )
    cpu_seconds: Seconds | None = Field(None, description="CPU seconds of the same processes when last looked at")
    seen: Seconds | None = Field(None, description="how long it had run when its memory and cores were last observed")
    runtime_asked: Seconds | None = Field(None, description="how long it was allowed to run; None: unknown")
    memory_asked: int | None = Field(
        None, ge=0, description="memory that it was allowed to use on each host; None: unknown"
    )
    ranks: int = Field(
        1, ge=1, description="number of processes that its cores were for: Slurm's tasks; 1 on one machine"
    )
    cores_asked: int | None = Field(
        None, ge=1, description="cores that it was given, on all hosts together; None: unknown"
    )
    granted: bool = Field(False, description="whether a scheduler had reserved what it requested")


class _Using(BaseModel):
    """The field of any record that gives its job's resource use."""

    used: Used | None = None


def read_used(paths: Iterable[str | Path]) -> Used | None:
    """Return the largest resource use noted in ``paths``, or None if none is noted.

    Args:
        paths: files of records and run folders that one job wrote.

    Raises:
        InputError: a record is invalid; names the file, the line and the field.
    """
    found = []
    for path in map(Path, paths):
        run = path / RUN_FILE
        found += [parsed(text_of(run), _Using, str(run))] if path.is_dir() else read_lines(path, _Using)
    used = [each.used for each in found if each.used is not None]
    return Used(**{name: max(getattr(each, name) for each in used) for name in Used.model_fields}) if used else None
