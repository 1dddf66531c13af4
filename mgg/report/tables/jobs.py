"""Workflow runs: jobs over time, and their requested and used resources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgg.job_record import JobRecord
from mgg.record import read_lines
from mgg.report.figures import timeline
from mgg.report.page.parts import Section, chapter
from mgg.report.tables import requests
from mgg.report.tables.compute import Row, Rows, noted
from mgg.report.tables.numbers import utc
from mgg.report.tables.requests import stage_place

#: Seconds without any job that separate two runs. With a scheduler, Snakemake may take minutes to see that a job has
#: ended.
_LULL = {False: 60.0, True: 600.0}


def read_jobs(path: Path | None) -> list[JobRecord]:
    """Read the records of the workflow's jobs; empty if the file does not exist.

    Raises:
        InputError: the file has other contents.
    """
    return read_lines(path, JobRecord) if path is not None and path.is_file() else []


def compute(records: Sequence[JobRecord]) -> Rows:
    """Compute the rows of table jobs, in the order of stages and starts."""
    rows = [_row(record) for record in records]
    for number, run in enumerate(_runs([row for row in rows if row["started_unix_s"] is not None]), 1):
        for row in run:
            row["workflow_run"] = number

    def place(row: Row) -> tuple[Any, ...]:
        run, start = row["workflow_run"] or 0, row["started_unix_s"] or 0.0
        return (run, stage_place(row["stage"]), start, row["rule"], row["wildcards"])

    return sorted(rows, key=place)


def section(tables: dict[str, Rows]) -> Section | None:
    """Return the section; None without records of jobs."""
    return chapter("jobs", [*timeline.parts(tables["jobs"]), *requests.parts(tables["jobs"], tables["requests"])])


def _row(record: JobRecord) -> Row:
    start = None
    if record.ended is not None and record.seconds is not None:
        start = max(record.ended - record.seconds, record.submitted or 0.0)
    cores = record.cpu_seconds / record.seen if record.cpu_seconds is not None and record.seen else None
    return {
        **noted(record, "jobs"),
        "workflow_run": None,
        "ran_s": record.seconds,
        "slurm_job": record.slurm_job,
        "started_unix_s": start,
        "started": None if start is None else utc(start),
        "waited_s": None if start is None or record.submitted is None else start - record.submitted,
        "runtime_share": _share(record.seconds, record.runtime_asked),
        "memory_share": _share(record.memory, record.memory_asked),
        "cores": cores,
        "cores_share": _share(cores, record.cores_asked),
    }


def _share(used: float | None, asked: float | None) -> float | None:
    return used / asked if used is not None and asked else None


def _runs(rows: Rows) -> list[Rows]:
    """Split rows with a start into workflow runs, separated by lulls in which no job ran or waited."""
    found: list[Rows] = []
    until = 0.0
    for row in sorted(rows, key=lambda row: row["started_unix_s"] - (row["waited_s"] or 0.0)):
        begin = row["started_unix_s"] - (row["waited_s"] or 0.0)
        if not found or begin - until > _LULL[row["granted"]]:
            found.append([])
        found[-1].append(row)
        until = max(until, row["started_unix_s"] + row["ran_s"])
    return found
