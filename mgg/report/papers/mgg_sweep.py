"""Section on the knobs of MGG's kernel: best and default setting, and the swept planes."""

from __future__ import annotations

from mgg.report.figures import charts
from mgg.report.page.parts import Cell, Drawing, Grid, Part, Section, grid
from mgg.report.tables import mgg_sweep
from mgg.report.tables.compute import Row, Rows, where
from mgg.report.tables.numbers import listing, number, percent, quantity, time_unit, within
from mgg.tune.setting import START

SHADES = 8


def section(tables: dict[str, Rows]) -> Section | None:
    """Return the section on sweeps outside the papers' figures; None if nothing was swept."""
    intro = (
        "MGG's kernel at different sizes of neighbor partitions (ps), interleaving distances (dist) and warps a block "
        "(wpb)."
    )
    found = parts(tables)
    return Section("knobs", "Knobs of the kernel, swept", intro, found) if found else None


def parts(tables: dict[str, Rows], *_: object) -> list[Part]:
    """Return a summary and the planes of each sweep; empty if nothing was swept."""
    found = mgg_sweep.sweeps(tables["aggregate"])
    if not found:
        return []
    told = _told(tables["mgg_sweep"])
    over = [row | {"over": row["default_s"] and row["default_s"] / row["best_s"]} for row in tables["mgg_sweep"]]
    summary = Part("Best, default, and the paper's search", told, [grid("swept", over)], outcome=told)
    return [summary, *map(_sweep, found.values())]


def _told(rows: Rows) -> str:
    """Say what the paper's search would have found."""
    text = (
        f"The search of MGG's section 6 starts at {START} and raises ps, dist and wpb in turn; it is played on the "
        "times measured here."
    )
    ended = [row for row in rows if row["search_s"] is not None]
    if ended:
        gains = [1 - row["search_s"] / row["start_s"] for row in ended]
        over = max(row["search_s"] / row["best_s"] for row in ended)
        steps = listing(sorted({str(row["search_steps"]) for row in ended}, key=int))
        text += (
            f" It would measure {steps} settings, take {percent(max(gains))} off its start at most, and end at most "
            f"{number(over)} times the best measured time."
        )
    return text


def _sweep(rows: Rows) -> Part:
    """Show the two planes of the paper's figure: ps and dist at the lowest wpb, wpb and dist at the search's ps."""
    first, times = rows[0], mgg_sweep.times(rows)
    tried = {at: number for number, at in enumerate(mgg_sweep.search(mgg_sweep.spread(rows)), 1)}
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
