"""Times of several techniques over numbers of PEs or over widths, such as CoLa's figures 3 and 5."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from mgg.report.figures import charts
from mgg.report.page.parts import Drawing, Part, grid, say
from mgg.report.papers.catalogue import claimed_as
from mgg.report.papers.kinds import Side, Sweep
from mgg.report.papers.verdicts import EVEN, judged, remarks
from mgg.report.tables.comparisons import CLOSE, timings
from mgg.report.tables.compute import SETTING, Rows, best, group, sound, where
from mgg.report.tables.numbers import sentences

#: For each side, the median seconds at each number of PEs or width.
Lines = dict[str, dict[int, float]]
_AXES = {"pes": ("PEs", "dim"), "dim": ("D", "pes")}


def parts(tables: dict[str, Rows], _: str, shown: Sweep) -> list[Part]:
    """Return a table and a figure per graph; empty if no technique was timed at two points."""
    axis, fixed = _AXES[shown.over]
    alike = group(sound(tables["aggregate"]), *SETTING, fixed).values()
    found = [rows for each in alike if (rows := _lines(shown, each))]
    if not found:
        return []
    drawings = []
    for rows in found:
        at = where(rows[0], "graph", fixed)
        svg = charts.curves(rows, "name", shown.over, axis, at)
        drawings.append(Drawing(svg, f"{at}: median time of one aggregation over {axis}."))
    everything = [row for rows in found for row in rows]
    table = grid(
        "sweep", everything, over=shown.over, by=["setting", fixed], heading=f"graph, {fixed} (machine, device, dtype)",
        axis=axis, single=f" One PE: technique {shown.single.name} for all." if shown.single else "",
        printed=" Small: the paper's, of its graph on its machine." if shown.printed else "",
    )  # fmt: skip
    lines = [charts.series(rows, "name", shown.over) for rows in found]
    told = sentences(*_falls(lines, shown)) if shown.falls else _steepness(lines, shown)
    return [Part("Here", sentences(told, remarks(tables["graphs"], everything)), [table], drawings, told)]


def lacks_baseline(aggregate: Rows, shown: Sweep) -> str:
    """Return the technique that represents all on one PE if they were timed without it, else nothing."""
    rows = sound(aggregate)
    if shown.single is None or timings(shown.single, [row for row in rows if row["pes"] == 1]):
        return ""
    several = any(row["pes"] > 1 for side in shown.sides for row in timings(side, rows))
    return shown.single.technique if several else ""


def _lines(shown: Sweep, rows: Rows) -> Rows:
    """Return the best row of each side that was timed at two or more points, at each point, with the side's ``name``.

    ``paper``: the paper's milliseconds, if any; ``least``: whether it is the fastest of several different ones.
    """
    found: Rows = []
    for place, side in enumerate(shown.sides):
        points = group(_own(shown, side, rows), shown.over)
        if len(points) > 1:
            found += [best(each) | {"name": side.name, "place": place} for each in points.values()]
    for at in group(found, shown.over).values():
        times = [row["median_s"] for row in at]
        printed = dict(enumerate(shown.printed.get(claimed_as(at[0]["dataset"]), {}).get(at[0][shown.over], ())))
        for row in at:
            row |= {"paper": printed.get(row["place"]), "least": row["median_s"] == min(times) < max(times)}
    return found


def _own(shown: Sweep, side: Side, rows: Rows) -> Rows:
    """Return the timings of ``side``; on one PE those of the side that stands for all, if there is one."""
    own = timings(side, rows)
    if shown.single is None:
        return own
    several = [row for row in own if row["pes"] > 1]
    return [*several, *timings(shown.single, [row for row in rows if row["pes"] == 1])] if several else []


def _falls(found: Sequence[Lines], shown: Sweep) -> list[str]:
    """Describe the change from the first number of PEs to the second, per side; the paper covers only 1 and 2 PEs."""
    found_ = []
    for side, falls in shown.falls.items():
        lines = [each[side] for each in found if side in each]
        if not lines:
            continue
        first, second = min(tuple(sorted(at)[:2]) for at in lines)
        ratios = [at[second] / at[first] for at in lines if first in at and second in at]
        mean = geometric_mean(ratios)
        verdict = CLOSE if 1 / EVEN < mean < EVEN else judged((mean < 1) == falls)
        found_.append(say("fall", side, mean, first, second, ratios, verdict if (first, second) == (1, 2) else ""))
    return found_


def _steepness(found: Sequence[Lines], shown: Sweep) -> str:
    """Say how much longer the last point takes than the first, per side."""
    means = {
        side.name: geometric_mean([at[max(at)] / at[min(at)] for lines in found if (at := lines.get(side.name))])
        for side in shown.sides
        if any(side.name in lines for lines in found)
    }
    (first, most), *others = ranked = sorted(means.items(), key=lambda each: -each[1])
    verdict = CLOSE if others and most / others[0][1] < EVEN else judged(first == shown.steepest)
    ends = sorted({x for lines in found for at in lines.values() for x in at})
    return say("steepness", ranked, ends, shown.steepest, verdict if shown.steepest in means else "")
