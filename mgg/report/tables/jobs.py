"""Jobs of the workflow: when they ran, and their requested and used resources."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mgg.records import read_lines
from mgg.records.job import JobRecord
from mgg.report.page.parts import Grid, Part, grid, say
from mgg.report.tables.compute import Row, Rows, group, joined, noted
from mgg.report.tables.numbers import ABSENT, duration, percent, quantity, utc

#: Seconds without any job that separate two runs. With a scheduler, Snakemake may take minutes to see that a job has
#: ended.
_LULL = {False: 60.0, True: 600.0}
#: Stages of the workflow in order.
STAGES = (
    "retrieve", "graph", "describe", "partition", "layout", "tune", "predict", "links", "aggregate", "train", "lookup",
    "report",
)  # fmt: skip
#: A request is far too large if no job of its rule used ``LARGE`` of it, too small if one used more than ``SMALL``.
LARGE, SMALL = 0.25, 0.9
#: Headroom of the advice: the request should be this many times the observed use.
ROOM = 2.0
FITS, TOO_LARGE, TOO_SMALL, UNKNOWN = "fits", "far too large", "too small", "unknown"
#: A job passed on a later attempt; records do not say what the first one lacked.
AGAIN = "tried again"


def stage_place(stage: str) -> tuple[int, str]:
    """Return a stage's sort key; unknown stages come last."""
    return (STAGES.index(stage) if stage in STAGES else len(STAGES), stage)


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


def _row(record: JobRecord) -> Row:
    """Return a row that also has ``begin``, when the job began to wait (or to run, if it did not wait), and ``end``."""
    start = begin = end = None
    if record.ended is not None and record.seconds is not None:
        start = max(record.ended - record.seconds, record.submitted or 0.0)
        begin, end = start if record.submitted is None else record.submitted, start + record.seconds
    cores = record.cpu_seconds / record.seen if record.cpu_seconds is not None and record.seen else None
    return {
        **noted(record, "jobs"),
        "workflow_run": None,
        "ran_s": record.seconds,
        "slurm_job": record.slurm_job,
        "started_unix_s": start,
        "begin": begin,
        "end": end,
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
    for row in sorted(rows, key=lambda row: row["begin"]):
        if not found or row["begin"] - until > _LULL[row["granted"]]:
            found.append([])
        found[-1].append(row)
        until = max(until, row["end"])
    return found


class Resource(NamedTuple):
    """A kind of request: columns of table jobs, its name and unit in a profile, and the smallest useful request."""

    name: str
    asked: str
    used: str
    field: str
    unit: float
    least: float
    show: Callable[[float], str]


RESOURCES = (
    Resource("time", "runtime_asked_s", "ran_s", "runtime", 60.0, 600.0, duration),
    Resource(
        "memory", "memory_asked_bytes", "memory_bytes", "mem_mb", 1e6, 1e9, lambda value: quantity(value, "memory")
    ),
    Resource("cores", "cores_asked", "cores", "cpus_per_task", 1.0, 1.0, "{:.3g}".format),
)


def compute_requests(jobs: Rows) -> Rows:
    """Compute the rows of table requests from those of table jobs: one per rule and requested resource."""
    rows = []
    for (rule,), found in group(jobs, "rule").items():
        rows += [row for resource in RESOURCES if (row := _request(rule, found, resource))]
    return sorted(rows, key=lambda row: stage_place(row["stage"]))


def _request(rule: str, jobs: Rows, resource: Resource) -> Row | None:
    asked = [_each(job, resource.asked, resource) for job in jobs if job[resource.asked]]
    if not asked:
        return None
    known = [job for job in jobs if job[resource.asked] and job[resource.used] is not None]
    share = max((job[resource.used] / job[resource.asked] for job in known), default=None)
    verdict = _verdict(jobs, known, share, resource)
    most = max(asked)
    factor = None
    if verdict in (TOO_LARGE, TOO_SMALL) and share is not None:
        factor = max(ROOM * share, min(1.0, resource.least / most))
        # A factor near 1, due to the smallest useful request, is no advice.
        verdict, factor = (FITS, None) if verdict == TOO_LARGE and factor > ROOM * LARGE else (verdict, factor)
    return {
        "stage": jobs[0]["stage"],
        "rule": rule,
        "resource": resource.name,
        "jobs": len(jobs),
        "known": len(known),
        "asked": most,
        "used": max((_each(job, resource.used, resource) for job in known), default=None),
        "share": share,
        "verdict": verdict,
        "factor": factor,
        "enough": None if factor is None else float(math.ceil(most * factor / resource.unit)),
        **joined(jobs),
    }


def _each(job: Row, column: str, resource: Resource) -> float:
    """Return a column's value for the whole job; for cores the value per rank, as in profiles."""
    return float(job[column]) / (job["ranks"] if resource.name == "cores" else 1)


def _verdict(jobs: Rows, known: Rows, share: float | None, resource: Resource) -> str:
    """Return the verdict on a rule's requests; on cores only if a scheduler reserved them, else jobs share them."""
    if resource.name == "cores" and not all(job["granted"] for job in known):
        return FITS if known else UNKNOWN
    if share is None:
        return UNKNOWN
    # The memory of several ranks counts shared pages once per rank, so it may exceed the real total.
    exact = [job for job in known if resource.name == "time" or job["ranks"] == 1]
    if resource.name != "cores" and any(job[resource.used] > SMALL * job[resource.asked] for job in exact):
        return TOO_SMALL
    if any(job["attempts"] > 1 for job in jobs):
        return AGAIN
    # If half of a job's time was unobserved, it may have used more.
    unseen = resource.name != "time" and any(
        not job["ran_s"] or 2 * (job["seen_s"] or 0) < job["ran_s"] for job in known
    )
    if len(known) < len(jobs) or unseen:
        return UNKNOWN
    return TOO_LARGE if share < LARGE else FITS


def parts(jobs: Rows, requests: Rows) -> list[Part]:
    """Show what jobs used and requested, by rule; empty without jobs."""
    if not jobs:
        return []
    granted, grids = any(job["granted"] for job in jobs), []
    advice = [row for row in requests if granted and row["factor"] is not None]
    if advice:
        of = {each.name: each for each in RESOURCES}
        lines = [row | {"field": of[row["resource"]].field} for row in advice]
        lines = [row | {name: of[row["resource"]].show(row[name]) for name in ("asked", "used")} for row in lines]
        grids.append(grid("changes", lines, large=percent(LARGE), small=percent(SMALL), room=ROOM))
    heading = "Requested and used" if granted and requests else "Used"
    return [Part(heading, say("requested", granted, requests, advice), [_grid(jobs, requests, granted), *grids])]


def _grid(jobs: Rows, requests: Rows, granted: bool) -> Grid:
    """Return a line per rule: times of its jobs, and the largest use and request of each resource."""
    at, lines = {(row["rule"], row["resource"]): row for row in requests}, []
    for (_, rule), found in sorted(group(jobs, "stage", "rule").items(), key=lambda each: stage_place(each[0][0])):
        seconds, waits = ([job[column] for job in found if job[column] is not None] for column in ("ran_s", "waited_s"))
        line: Row = {each.name: _shown(at.get((rule, each.name)), found, each, granted) for each in RESOURCES}
        line |= {"rule": rule, "jobs": len(found), "whole": sum(seconds) if seconds else None}
        lines.append(line | {"waited": max(waits, default=None)})
    return grid("jobs", lines, note="Small: what was asked for." * granted)


def _shown(row: Row | None, jobs: Rows, resource: Resource, granted: bool) -> Row:
    """Return the most that jobs of a rule used, with what they asked for (of table requests, if they did)."""
    used = max((_each(job, resource.used, resource) for job in jobs if job[resource.used] is not None), default=None)
    shown = ABSENT if used is None else resource.show(used)
    if row is None:
        return {"shown": shown, "small": "", "hint": ""}
    asked = resource.show(row["asked"])
    loud = f", {row['verdict']}" if row["verdict"] in (TOO_SMALL, AGAIN) else ""
    hint = f"at most {percent(row['share'])} of {asked}"
    return {"shown": shown, "small": f"{asked}{loud}" if granted else loud.removeprefix(", "), "hint": hint}
