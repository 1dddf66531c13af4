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
from mgg.report.tables.numbers import clock_unit, count, duration, utc

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


def _begin(row: Row) -> float:
    """Return when a job began to wait, or to run if it did not wait."""
    return float(row["started_unix_s"] - (row["waited_s"] or 0.0))


def _end(row: Row) -> float:
    return float(row["started_unix_s"] + row["ran_s"])


def _place(row: Row) -> tuple[float, str]:
    return row["started_unix_s"], _name(row)


def _caption(rows: Rows) -> str:
    first = min(rows, key=_begin)
    whole = max(map(_end, rows)) - _begin(first)
    thin = len(rows) <= ROWS and any(row["waited_s"] for row in rows)
    waits = " Thin lines: from submission to the start of the command." if thin else ""
    return f"Run of {utc(_begin(first))} UTC: {count(len(rows), 'job')} in {duration(whole)}.{waits}"


def _name(row: Row) -> str:
    """Return what distinguishes a job from others of its rule."""
    short = {"pes": "p", "seed": "s"}
    return " ".join(f"{short.get(key, '')}{value}" for key, value in json.loads(row["wildcards"]).items())


def _title(row: Row) -> str:
    words = [row["rule"], *(f"{key}={value}" for key, value in json.loads(row["wildcards"]).items())]
    told = [" ".join(words), duration(row["ran_s"]), f"{row['started']} UTC"]
    told += [f"Slurm job {row['slurm_job']}"] if row["slurm_job"] else []
    told += [f"waited {duration(row['waited_s'])}"] if row["waited_s"] is not None else []
    told += [f"attempt {row['attempts']}"] if row["attempts"] > 1 else []
    return ", ".join(told)


def _drawn(rows: Rows) -> Markup:
    """Draw the jobs of a run by rule: one row each with name and seconds or, if there are many, in narrow lanes."""
    first, many = min(map(_begin, rows)), len(rows) > ROWS
    unit = clock_unit(max(map(_end, rows)) - first)
    rules = list(group(rows, "stage", "rule").values())
    rules.sort(key=lambda jobs: (stage_place(jobs[0]["stage"]), min(map(_begin, jobs))))

    def bar(row: Row) -> Bar:
        # Colors repeat if there are many stages.
        color, start = SERIES[stage_place(row["stage"])[0] % len(SERIES)], (row["started_unix_s"] - first) / unit.size
        wait = (start - row["waited_s"] / unit.size, start) if row["waited_s"] and not many else None
        note = "" if many else duration(row["ran_s"])
        return Bar(_name(row), row["ran_s"] / unit.size, note, color, wait, start=start, tip=_title(row))

    told = {jobs[0]["rule"]: _spread(jobs) for jobs in rules}
    lanes = {
        jobs[0]["rule"]: [
            list(map(bar, lane)) for lane in (_packed(jobs) if many else ([job] for job in sorted(jobs, key=_place)))
        ]
        for jobs in rules
    }
    groups = {f"{rule}: {told[rule]}" if many else rule: found for rule, found in lanes.items()}
    alt = f"Timeline. {_caption(rows)} {'; '.join(f'{rule}: {text}' for rule, text in told.items())}."
    row = {heading: min(1.0, _LANES / len(found)) for heading, found in groups.items()} if many else {}
    return bars(groups, f"time since the start ({unit.name})", row=row, alt=alt)


def _spread(jobs: Rows) -> str:
    times = [row["ran_s"] for row in jobs]
    most = duration(max(times))
    return f"{count(len(jobs), 'job')}, {most if len(jobs) == 1 else f'{duration(min(times))} to {most}'}"


def _packed(jobs: Iterable[Row]) -> list[Rows]:
    """Pack jobs into lanes without overlap, each into the first free lane."""
    lanes: list[Rows] = []
    for row in sorted(jobs, key=_place):
        lane = next((lane for lane in lanes if _end(lane[-1]) <= row["started_unix_s"]), None)
        if lane is None:
            lanes.append(lane := [])
        lane.append(row)
    return lanes
