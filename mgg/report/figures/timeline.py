"""Timeline of the workflow's jobs: one figure per run, with one row per job, or narrow lanes for many jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable

from markupsafe import Markup

from mgg.report.figures.charts import Bar, bars
from mgg.report.figures.svg import SERIES
from mgg.report.page.parts import Drawing, Part, say
from mgg.report.tables.compute import Row, Rows, group
from mgg.report.tables.jobs import stage_place
from mgg.report.tables.numbers import Filled, clock_unit, count, duration, utc

#: Number of latest runs that the page draws; table jobs has all.
SHOWN = 4
#: Largest number of jobs in a run that get one row each.
ROWS = 48
_LANES = 6.0  # largest height of a rule's lanes, in rows


def parts(jobs: Rows) -> list[Part]:
    """Return the timeline of the latest runs; empty if no job has times."""
    runs = group([row for row in jobs if row["workflow_run"] is not None], "workflow_run")
    if not runs:
        return []
    shown = sorted(runs.items(), reverse=True)[:SHOWN]
    drawings = [Drawing(_drawn(rows), _caption(rows)) for _, rows in shown]
    return [Part("Jobs over time", say("workflow_runs", len(runs), SHOWN), (), drawings)]


def _caption(rows: Rows) -> str:
    first, last = min(row["begin"] for row in rows), max(row["end"] for row in rows)
    thin = len(rows) <= ROWS and any(row["waited_s"] for row in rows)
    waits = " Thin lines: from submission to the start of the command." if thin else ""
    return f"Run of {utc(first)} UTC: {count(len(rows), 'job')} in {duration(last - first)}.{waits}"


def _name(row: Row) -> str:
    """Return what distinguishes a job from others of its rule."""
    short = {"pes": "p", "seed": "s"}
    return " ".join(f"{short.get(key, '')}{value}" for key, value in json.loads(row["wildcards"]).items())


def _title(row: Row) -> str:
    words = [row["rule"], *(f"{key}={value}" for key, value in json.loads(row["wildcards"]).items())]
    told = ["{ran_s:clock}", "{started} UTC", "Slurm job {slurm_job}", "waited {waited_s:clock}"]
    told += ["attempt {attempts}"] * (row["attempts"] > 1)
    return ", ".join(filter(None, [" ".join(words), *(Filled()(text, row) for text in told)]))


def _drawn(rows: Rows) -> Markup:
    """Draw the jobs of a run by rule: one row each with name and seconds or, if there are many, in narrow lanes."""
    first, many = min(row["begin"] for row in rows), len(rows) > ROWS
    unit = clock_unit(max(row["end"] for row in rows) - first)
    rules = list(group(rows, "stage", "rule").values())
    rules.sort(key=lambda jobs: (stage_place(jobs[0]["stage"]), min(row["begin"] for row in jobs)))

    def bar(row: Row) -> Bar:
        # Colors repeat if there are many stages.
        color, start = SERIES[stage_place(row["stage"])[0] % len(SERIES)], (row["started_unix_s"] - first) / unit.size
        wait = (start - row["waited_s"] / unit.size, start) if row["waited_s"] and not many else None
        note = "" if many else duration(row["ran_s"])
        return Bar(_name(row), row["ran_s"] / unit.size, note, color, wait, start=start, tip=_title(row))

    groups, told = dict[str, list[list[Bar]]](), []
    for jobs in rules:
        jobs.sort(key=lambda row: (row["started_unix_s"], _name(row)))
        rule, least, most = jobs[0]["rule"], *(duration(end(row["ran_s"] for row in jobs)) for end in (min, max))
        told.append(f"{rule}: {count(len(jobs), 'job')}, {most if len(jobs) == 1 else f'{least} to {most}'}")
        lanes = _packed(jobs) if many else [[row] for row in jobs]
        groups[told[-1] if many else rule] = [list(map(bar, lane)) for lane in lanes]
    row = {heading: min(1.0, _LANES / len(found)) for heading, found in groups.items()} if many else {}
    alt = f"Timeline. {_caption(rows)} {'; '.join(told)}."
    return bars(groups, f"time since the start ({unit.name})", row=row, alt=alt)


def _packed(jobs: Iterable[Row]) -> list[Rows]:
    """Pack jobs, in the order of their starts, into lanes without overlap, each into the first free lane."""
    lanes: list[Rows] = []
    for row in jobs:
        lane = next((lane for lane in lanes if lane[-1]["end"] <= row["started_unix_s"]), None)
        if lane is None:
            lanes.append(lane := [])
        lane.append(row)
    return lanes
