"""Timeline of the workflow's jobs: one figure per run, with one row per job, or narrow lanes for many jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mgg.report.figures.bars import LONGEST, shorten
from mgg.report.figures.svg import INK, SERIES, draw, horizontal
from mgg.report.page.parts import Drawing, Part
from mgg.report.tables.compute import Row, Rows, group
from mgg.report.tables.numbers import clock_unit, count, duration, utc
from mgg.report.tables.requests import stage_place

#: Number of latest runs that the page draws; table jobs has all.
SHOWN = 4
#: Largest number of jobs in a run that get one row each.
ROWS = 48
_ROW = 0.185  # inches per job
_LANES = 1.1  # largest height of a rule's lanes, inches
#: Draws the bar of a job at a place, with a height.
Bar = Callable[[Axes, Row, float, float], None]


def parts(jobs: Rows) -> list[Part]:
    """Return the timeline of the latest runs; empty if no job has times."""
    runs = group([row for row in jobs if row["workflow_run"] is not None], "workflow_run")
    if not runs:
        return []
    shown = sorted(runs.items(), reverse=True)[:SHOWN]
    drawings = [Drawing(_drawn(rows, f"j{number}"), _caption(rows)) for (number,), rows in shown]
    told = []
    if len(runs) > 1:
        told.append(
            f"These results come from {len(runs)} runs of the workflow, the latest first; nothing ran between them."
        )
        if len(runs) > SHOWN:
            told.append(f"The {SHOWN} latest are drawn; table jobs has all.")
        told.append("A job that was run again is in its last run alone.")
    return [Part("Jobs over time", " ".join(told), (), drawings)]


def _begin(row: Row) -> float:
    """Return when a job began to wait, or to run if it did not wait."""
    return float(row["started_unix_s"] - (row["waited_s"] or 0.0))


def _end(row: Row) -> float:
    return float(row["started_unix_s"] + row["ran_s"])


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


def _rules(rows: Rows) -> list[Rows]:
    """Group jobs by rule, in the order of stages and starts."""
    found = group(rows, "stage", "rule").values()
    return sorted(found, key=lambda jobs: (stage_place(jobs[0]["stage"]), min(map(_begin, jobs))))


def _drawn(rows: Rows, key: str) -> Markup:
    begin = min(map(_begin, rows))
    unit = clock_unit(max(map(_end, rows)) - begin)
    rules = _rules(rows)
    gids = {id(row): f"job{number}" for number, row in enumerate(row for jobs in rules for row in jobs)}
    titles = {gids[id(row)]: _title(row) for row in rows}
    told = [f"{jobs[0]['rule']}: {_spread(jobs)}" for jobs in rules]
    alt = f"Timeline. {_caption(rows)} {'; '.join(told)}."
    many = len(rows) > ROWS
    draw_rule, height_of = (_lanes, lambda jobs: _lanes_rows(_packed(jobs))) if many else (_rows, len)
    height = 0.6 + _ROW * sum(height_of(jobs) + 1.3 for jobs in rules)

    def at(moment: float) -> float:
        return (moment - begin) / unit.size

    def bar(axes: Axes, row: Row, place: float, height: float) -> None:
        # The edge keeps a one-second job visible in a run of hours; colors repeat if there are many stages.
        color = SERIES[stage_place(row["stage"])[0] % len(SERIES)]
        bars = axes.barh(
            place, row["ran_s"] / unit.size, left=at(row["started_unix_s"]), height=height, color=color,
            edgecolor=color, linewidth=0.7,
        )  # fmt: skip
        bars[0].set_gid(gids[id(row)])

    def plot(figure: Figure) -> None:
        axes = horizontal(figure, f"time since the start ({unit.name})", 6)
        axes.set_yticks([])
        place = 0.0
        for jobs in rules:
            place = draw_rule(axes, jobs, place, bar, at)
        axes.set_ylim(place - 0.2, -0.7)
        whole = (max(map(_end, rows)) - begin) / unit.size
        # Leave room for the times after the last bars.
        axes.set_xlim(0, (whole or 1.0) * (1.02 if many else 1.2))

    return draw(plot, key=key, alt=alt, height=height, titles=titles)


def _spread(jobs: Rows) -> str:
    times = [row["ran_s"] for row in jobs]
    most = duration(max(times))
    return f"{count(len(jobs), 'job')}, {most if len(jobs) == 1 else f'{duration(min(times))} to {most}'}"


def _lanes_rows(lanes: Sequence[Rows]) -> float:
    return min(len(lanes), _LANES / _ROW)


def _packed(jobs: Iterable[Row]) -> list[Rows]:
    """Pack jobs into lanes without overlap, each into the first free lane."""
    lanes: list[Rows] = []
    for row in sorted(jobs, key=lambda row: (row["started_unix_s"], _name(row))):
        lane = next((lane for lane in lanes if _end(lane[-1]) <= row["started_unix_s"]), None)
        if lane is None:
            lanes.append(lane := [])
        lane.append(row)
    return lanes


def _heading(axes: Axes, text: str, place: float) -> None:
    axes.text(0.01, place, text, weight="bold", va="center", transform=axes.get_yaxis_transform())


def _rows(axes: Axes, jobs: Rows, place: float, bar: Bar, at: Callable[[float], float]) -> float:
    """Draw the jobs of a rule below ``place`` on the y axis, one row each with name and seconds; return the next place.

    ``at`` is where a moment lies on the x axis.
    """
    _heading(axes, jobs[0]["rule"], place)
    for row in sorted(jobs, key=lambda row: (row["started_unix_s"], _name(row))):
        place += 1
        bar(axes, row, place, 0.7)
        if row["waited_s"]:
            axes.plot([at(_begin(row)), at(row["started_unix_s"])], [place, place], color=INK, linewidth=0.8)
        name = shorten(_name(row), LONGEST)
        axes.text(-0.01, place, name, ha="right", va="center", transform=axes.get_yaxis_transform())
        axes.annotate(
            duration(row["ran_s"]), (at(_end(row)), place), (3, 0), textcoords="offset points", va="center",
            fontsize=8.5,
        )  # fmt: skip
    return place + 1.3


def _lanes(axes: Axes, jobs: Rows, place: float, bar: Bar, _: Callable[[float], float]) -> float:
    """Draw jobs side by side in as many lanes as ran concurrently."""
    _heading(axes, f"{jobs[0]['rule']}: {_spread(jobs)}", place)
    lanes = _packed(jobs)
    step = _lanes_rows(lanes) / len(lanes)
    for number, lane in enumerate(lanes):
        for row in lane:
            bar(axes, row, place + 0.5 + (number + 0.5) * step, 0.75 * step)
    return place + _lanes_rows(lanes) + 1.3
