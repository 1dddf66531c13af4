"""Sweeps of MGG's kernel knobs: best and default setting, the end of the paper's search, and the swept planes.

The search is MGG's (OSDI'23, section 6, ``mgg.tune.search``), replayed on the measured times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from mgg.report.figures import charts
from mgg.report.page.parts import Cell, Drawing, Grid, Part, Section, chapter, grid, say
from mgg.report.tables.compute import SETTING, Row, Rows, alike, best, joined, sound, where
from mgg.report.tables.numbers import quantity, time_unit, within
from mgg.tune.search import Search
from mgg.tune.setting import NAMES, START, Setting

SHADES = 8
#: Fewer settings than this count as variants, not as a sweep.
FEWEST = 4


def sweeps(aggregate: Rows) -> list[Rows]:
    """Return sound timings that differ only in the knobs, at least ``FEWEST`` settings, by what they share.

    Their rows have the setting as ``knobs``, the technique's default one, if known, as ``usual``, and ``others``, the
    options that are no knobs.
    """
    rows = [{**row, "knobs": _knobs(row["options"]), "usual": _knobs(row["defaults"])} for row in sound(aggregate)]
    found = alike((row for row in rows if row["knobs"]), NAMES, *SETTING, "dim", "pes", "technique")
    return [rows for rows in found if len(rows) >= FEWEST]


def compute(aggregate: Rows) -> Rows:
    """Compute the rows of table mgg_sweep."""
    return list(map(_row, sweeps(aggregate)))


def telling(aggregate: Rows) -> Rows:
    """Return ``aggregate`` with only the best and the default of each sweep, as more would bury other techniques."""
    return without(aggregate, sweeps(aggregate), lambda row: bool(row["knobs"] == row["usual"]))


def without(aggregate: Rows, groups: Iterable[Rows], kept: Callable[[Row], bool]) -> Rows:
    """Return ``aggregate`` without the rows of ``groups`` that are neither the best of their group nor ``kept``."""
    dropped = {row["timing"] for rows in groups for row in rows if row is not best(rows) and not kept(row)}
    return [row for row in aggregate if row["timing"] not in dropped]


def search(spread: Mapping[Setting, Sequence[float]]) -> list[Setting]:
    """Return the settings that the paper's search measures, in order; it picks the fastest of them.

    Args:
        spread: seconds of each setting; the search skips all other settings.
    """
    values = {name: sorted({getattr(setting, name) for setting in spread}) for name in NAMES}
    return Search(spread.__contains__, values=values).path(spread)


def _walked(rows: Rows) -> tuple[dict[Setting, float], list[Setting]]:
    """Return the median seconds of a sweep by setting, and the settings that the search measures."""
    spread = {row["knobs"]: [row["low_s"], row["median_s"], row["high_s"]] for row in rows}
    return {row["knobs"]: row["median_s"] for row in rows}, search(spread)


def _knobs(text: str) -> Setting | None:
    """Return the knobs among options, as JSON; None if there are none."""
    options = json.loads(text)
    return Setting(*(options[name] for name in NAMES)) if all(name in options for name in NAMES) else None


def _row(rows: Rows) -> Row:
    measured, tried = _walked(rows)
    least, end = (min(each, key=lambda knobs: (measured[knobs], knobs), default=None) for each in (measured, tried))
    first = rows[0]
    at = {"default": first["usual"], "best": least, "search": end}
    told = {
        "options": first["others"],
        "settings_measured": len(measured),
        "start_s": measured.get(START),
        "search_steps": len(tried) or None,
    }
    times_ = {f"{which}_s": measured.get(knobs) for which, knobs in at.items()}
    knobs = {f"{which}_{name}": getattr(knobs, name, None) for which, knobs in at.items() for name in NAMES}
    return first | told | times_ | knobs | joined(rows)


def section(tables: dict[str, Rows]) -> Section | None:
    """Return the section on sweeps outside the papers' figures; None if nothing was swept."""
    return chapter("knobs", parts(tables))


def parts(tables: dict[str, Rows], *_: object) -> list[Part]:
    """Return a summary and the planes of each sweep; empty if nothing was swept."""
    found = sweeps(tables["aggregate"])
    if not found:
        return []
    told = _said(tables["mgg_sweep"])
    over = [row | {"over": row["default_s"] and row["default_s"] / row["best_s"]} for row in tables["mgg_sweep"]]
    summary = Part("Best, default, and the paper's search", told, [grid("swept", over)], outcome=told)
    return [summary, *map(_sweep, found)]


def _said(rows: Rows) -> str:
    """Say what the paper's search would have found."""
    ended = [row for row in rows if row["search_s"] is not None]
    gains = [1 - row["search_s"] / row["start_s"] for row in ended]
    over = max((row["search_s"] / row["best_s"] for row in ended), default=None)
    return say("walked", START, sorted({str(row["search_steps"]) for row in ended}, key=int), gains, over)


def _sweep(rows: Rows) -> Part:
    """Show the two planes of the paper's figure: ps and dist at the lowest wpb, wpb and dist at the search's ps."""
    first, (times, walked) = rows[0], _walked(rows)
    tried = {at: number for number, at in enumerate(walked, 1)}
    end = min(tried or times, key=lambda at: (times[at], at))
    marks = {at: f"searched {number}" for at, number in tried.items()}
    if tried:
        marks[end] = f"search ends ({tried[end]})"
    if usual := first["usual"]:
        marks[usual] = f"default, {marks[usual]}" if usual in marks else "default"
    lowest, place = min(at.wpb for at in times), where(first, "graph", "pes", "dim")
    intro, way, grids, drawings = f"{len(times)} settings.", list[str](), [], []
    for knob, fixed, plane in (
        ("ps", f"wpb = {lowest}", [at for at in times if at.wpb == lowest]),
        ("wpb", f"ps = {end.ps}", [at for at in times if at.ps == end.ps]),
    ):
        told = [
            {"time": times[at], "x": getattr(at, knob), "line": f"dist = {at.dist}", "mark": marks.get(at, "")}
            | {"knob": knob}
            | at._asdict()
            for at in sorted(plane, key=lambda at: (getattr(at, knob), at.dist))
        ]
        if len({row["x"] for row in told}) == 1:
            intro += f" With {fixed} only one {knob} was measured."
            continue
        grids.append(_plane(told, knob, place, fixed))
        lines = sorted(told, key=lambda row: row["dist"])
        svg = charts.curves(lines, "line", "x", f"{knob} ({fixed})", f"{place}, {fixed}", value="time")
        drawings.append(Drawing(svg, f"{place}: median time of one aggregation over {knob}, {fixed}."))
        way += [f"{fixed}: " + ", ".join(f"{knob} {getattr(at, knob)} dist {at.dist}" for at in tried if at in plane)]
    if tried and way:
        intro += f" The search tried, in this order, {'; '.join(way)}."
    return Part(f"{place} ({where(first, 'machine', 'device')})", intro, grids, drawings)


def _plane(rows: Rows, knob: str, place: str, fixed: str) -> Grid:
    """Return the times of a plane, a line per value of ``knob``, a column per dist."""
    times = [row["time"] for row in rows]
    unit, low, high = time_unit(times), min(times), max(times)

    def cell(row: Row) -> Cell:
        heat = round(SHADES * (row["time"] - low) / (high - low)) if high > low else 0
        return Cell(within(row["time"], unit), row["mark"], row["time"] == low, heat)

    longest = quantity(high)
    return grid("plane", rows, show=cell, case=place, knob=knob, fixed=fixed, unit=unit.name, longest=longest)
