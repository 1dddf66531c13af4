"""Sweeps of MGG's kernel knobs: best and default setting, the end of the paper's search, and the swept planes.

The search is MGG's (OSDI'23, section 6, ``mgg.tune.search``), replayed on the measured times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from mgg.report.figures import charts
from mgg.report.page.parts import Drawing, Part, Section, chapter, grid, say
from mgg.report.tables.compute import SETTING, Row, Rows, alike, best, joined, sound, where
from mgg.report.tables.numbers import quantity
from mgg.tune.search import Search
from mgg.tune.setting import NAMES, START, Setting

SHADES = 8
#: Fewer settings than this count as variants, not as a sweep.
FEWEST = 4


def sweeps(aggregate: Rows) -> list[Rows]:
    """Return sound timings that differ only in the knobs, at least ``FEWEST`` settings, by what they share.

    Their rows have the setting as ``knobs`` and by its names, the technique's default one, if known, as ``usual``,
    ``others``, the options that are no knobs, and ``tried``, the place among the settings that the search measures (0:
    it does not).
    """
    rows = [{**row, "knobs": _knobs(row["options"]), "usual": _knobs(row["defaults"])} for row in sound(aggregate)]
    rows = [row | row["knobs"]._asdict() for row in rows if row["knobs"]]
    found = [rows for rows in alike(rows, NAMES, *SETTING, "dim", "pes", "technique") if len(rows) >= FEWEST]
    for rows in found:
        tried = search({row["knobs"]: [row["low_s"], row["median_s"], row["high_s"]] for row in rows})
        for row in rows:
            row["tried"] = tried.index(row["knobs"]) + 1 if row["knobs"] in tried else 0
    return found


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


def _knobs(text: str) -> Setting | None:
    """Return the knobs among options, as JSON; None if there are none."""
    options = json.loads(text)
    return Setting(*(options[name] for name in NAMES)) if all(name in options for name in NAMES) else None


def _row(rows: Rows) -> Row:
    first, measured = rows[0], {row["knobs"]: row["median_s"] for row in rows}
    tried = [row["knobs"] for row in rows if row["tried"]]
    least, end = (min(each, key=lambda knobs: (measured[knobs], knobs), default=None) for each in (measured, tried))
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
    rows = [row | {"over": row["default_s"] and row["default_s"] / row["best_s"]} for row in tables["mgg_sweep"]]
    told = say("walked", START, [row for row in rows if row["search_s"] is not None])
    summary = Part("Best, default, and the paper's search", told, [grid("swept", rows)], outcome=told)
    return [summary, *map(_sweep, found)]


def _sweep(rows: Rows) -> Part:
    """Show the two planes of the paper's figure: ps and dist at the lowest wpb, wpb and dist at the search's ps."""
    first, tried = rows[0], [row for row in rows if row["tried"]]
    end = min(tried or rows, key=lambda row: (row["median_s"], row["knobs"]))
    place, intro, grids, drawings = where(first, "graph", "pes", "dim"), f"{len(rows)} settings.", [], []
    for knob, fixed, value in (("ps", "wpb", min(row["wpb"] for row in rows)), ("wpb", "ps", end["ps"])):
        at = f"{fixed} = {value}"
        plane = [
            row | {"mark": _mark(row, end), "line": f"dist = {row['dist']}", "x": f"{knob} = {row[knob]}"}
            for row in sorted(rows, key=lambda row: (row[knob], row["dist"]))
            if row[fixed] == value
        ]
        if len({row[knob] for row in plane}) == 1:
            intro += f" With {at} only one {knob} was measured."
            continue
        times = [row["median_s"] for row in plane]
        low, high = min(times), max(times)
        for row in plane:
            row["heat"] = round(SHADES * (row["median_s"] - low) / (high - low)) if high > low else 0
            row["least"] = row["median_s"] == low
        grids.append(grid("plane", plane, case=place, knob=knob, fixed=at, longest=quantity(high)))
        lines = sorted(plane, key=lambda row: row["dist"])
        svg = charts.curves(lines, "line", knob, f"{knob} ({at})", f"{place}, {at}")
        drawings.append(Drawing(svg, f"{place}: median time of one aggregation over {knob}, {at}."))
    return Part(f"{place} ({where(first, 'machine', 'device')})", intro, grids, drawings)


def _mark(row: Row, end: Row) -> str:
    told = ["default"] if row["knobs"] == row["usual"] else []
    if row["tried"]:
        told.append(f"search ends ({row['tried']})" if row["knobs"] == end["knobs"] else f"searched {row['tried']}")
    return ", ".join(told)
