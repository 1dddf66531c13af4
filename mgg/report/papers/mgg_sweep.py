"""Section on the knobs of MGG's kernel: best and default setting, and the swept planes."""

from __future__ import annotations

from collections.abc import Mapping

from mgg.report.figures import charts
from mgg.report.page.parts import Cell, Columns, Drawing, Grid, Part, Section, across, table
from mgg.report.tables import mgg_sweep
from mgg.report.tables.compute import SETTING, Row, Rows, where
from mgg.report.tables.mgg_sweep import Times
from mgg.report.tables.numbers import ABSENT, listing, number, percent, quantity, time_unit, within
from mgg.tune.setting import NAMES, START, Setting

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
    summary = Part("Best, default, and the paper's search", told, [_summary(tables["mgg_sweep"])], outcome=told)
    return [summary, *(_sweep(rows, f"k{index}") for index, rows in enumerate(found.values(), 1))]


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


def _summary(rows: Rows) -> Grid:
    unit = time_unit([row["best_s"] for row in rows])

    def at(row: Row, which: str) -> str:
        values = [row[f"{which}_{name}"] for name in NAMES]
        return "" if None in values else str(Setting(*values))

    def end(row: Row) -> str:
        return f"{at(row, 'search')}; {row['search_steps']} settings" if at(row, "search") else ""

    columns: Columns = [
        (f"best ({unit.name})", lambda row: Cell(within(row["best_s"], unit), at(row, "best"), True)),
        (f"default ({unit.name})", lambda row: Cell(within(row["default_s"], unit), at(row, "default"))),
        ("default / best", lambda row: f"{number(row['default_s'] / row['best_s'])} x" if row["default_s"] else ABSENT),
        (f"start ({unit.name})", lambda row: Cell(within(row["start_s"], unit), str(START))),
        (f"end of the search ({unit.name})", lambda row: Cell(within(row["search_s"], unit), end(row))),
        ("settings measured", lambda row: str(row["settings_measured"])),
    ]
    caption, note, by = "Best and default setting", "Small: ps, dist, wpb.", ["graph", *SETTING]
    return table(caption, "PEs, width", columns, rows, "pes, dim", note, by=by, heading="graph (machine, device)")


def _sweep(rows: Rows, key: str) -> Part:
    """Show the two planes of the paper's figure: ps and dist at the lowest wpb, wpb and dist at the search's ps."""
    first, times = rows[0], mgg_sweep.times(rows)
    tried = {at: number for number, at in enumerate(mgg_sweep.search(mgg_sweep.spread(rows)), 1)}
    end = min(tried or times, key=lambda at: (times[at], at))
    marks = {at: f"searched {number}" for at, number in tried.items()}
    if tried:
        marks[end] = f"search ends ({tried[end]})"
    usual = first["usual"]
    if usual:
        marks[usual] = f"default, {marks[usual]}" if usual in marks else "default"
    lowest = min(at.wpb for at in times)
    planes = [
        ("ps", f"wpb = {lowest}", {at: time for at, time in times.items() if at.wpb == lowest}),
        ("wpb", f"ps = {end.ps}", {at: time for at, time in times.items() if at.ps == end.ps}),
    ]
    place = where(first, "graph", "pes", "dim")
    intro = f"{len(times)} settings."
    grids, drawings, walked = [], [], []
    for knob, fixed, plane in planes:
        if len({getattr(at, knob) for at in plane}) == 1:
            intro += f" With {fixed} only one {knob} was measured."
            continue
        rows = [
            {"dist": f"dist = {at.dist}", "x": getattr(at, knob), "time": plane[at]}
            for at in sorted(plane, key=lambda at: at.dist)
        ]
        curves = charts.series(rows, "dist", "x", "time")
        grids.append(_plane(plane, knob, f"{place}: {knob} (down) and dist (across), {fixed}", marks))
        svg = charts.lines(curves, f"{knob} ({fixed})", f"{key}{knob}", f"{place}, {fixed}")
        drawings.append(Drawing(svg, f"{place}: median time of one aggregation over {knob}, {fixed}."))
        walked.append(_walked(plane, knob, fixed, tried, end))
    if tried and walked:
        caption = f"{place}: what the search tried, in its order, among all that was measured."
        drawings.insert(0, Drawing(charts.walk(walked, f"{key}w", place), caption))
    return Part(f"{place} ({where(first, 'machine', 'device')})", intro, grids, drawings)


def _walked(plane: Times, knob: str, fixed: str, tried: Mapping[Setting, int], end: Setting) -> charts.Plane:
    """Return the search's steps in a plane; the fastest is the plane's own."""

    def at(setting: Setting) -> tuple[int, int]:
        return setting.dist, getattr(setting, knob)

    return charts.Plane(
        title=fixed,
        x="dist",
        y=knob,
        measured=[at(each) for each in sorted(plane)],
        tried={number: at(each) for each, number in tried.items() if each in plane},
        end=at(end) if end in plane else None,
        best=at(min(plane, key=lambda each: (plane[each], each))),
    )


def _plane(plane: Times, knob: str, caption: str, marks: Mapping[Setting, str]) -> Grid:
    unit = time_unit(list(plane.values()))
    low, high = min(plane.values()), max(plane.values())

    def cell(row: Row) -> Cell:
        heat = round(SHADES * (row["time"] - low) / (high - low)) if high > low else 0
        return Cell(within(row["time"], unit), marks.get(row["at"], ""), row["time"] == low, heat)

    dists = sorted({each.dist for each in plane})
    rows = [{"at": at, "time": plane[at], **at._asdict()} for at in sorted(plane, key=lambda at: getattr(at, knob))]
    lines = across(rows, lambda row: f"{knob} = {row[knob]}", "dist", dists, cell)
    note = f"Median times in {unit.name}; the stronger the shade, the longer. Longest: {quantity(high)}."
    return Grid(caption, knob, [f"dist = {dist}" for dist in dists], [("", lines)], note)
