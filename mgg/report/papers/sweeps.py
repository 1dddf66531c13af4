"""Times of several techniques over numbers of PEs or over widths, such as CoLa's figures 3 and 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mgg.report.figures import charts
from mgg.report.page.parts import Cell, Drawing, Grid, Part
from mgg.report.papers.catalogue import claimed_as
from mgg.report.papers.kinds import Side, Sweep
from mgg.report.papers.verdicts import EVEN, remarks
from mgg.report.tables.comparisons import AGREES, CLOSE, DISAGREES, geometric_mean, timings
from mgg.report.tables.compute import SETTING, Row, Rows, graph_names, group, sound
from mgg.report.tables.numbers import ABSENT, Unit, count, listing, number, time_unit, within

#: For each side, the best row at each number of PEs or width.
Lines = dict[str, dict[int, Row]]
_AXES = {"pes": ("PEs", "dim"), "dim": ("D", "pes")}


def parts(tables: dict[str, Rows], name: str, shown: Sweep) -> list[Part]:
    """Return a table and a figure per graph; empty if no technique was timed at two points."""
    found = _sweeps(tables["aggregate"], shown)
    if not found:
        return []
    names = graph_names(tables["graphs"])
    axis, fixed = _AXES[shown.over]
    drawings = []
    for index, (rows, lines) in enumerate(found, 1):
        where = _where(rows[0], names, fixed)
        points = {side: [(x, row["median_s"]) for x, row in at.items()] for side, at in lines.items()}
        svg = charts.lines(points, axis, f"{name}s{index}", where)
        drawings.append(Drawing(svg, f"{where}: median time of one aggregation over {axis}."))
    used = [row for rows, _ in found for row in rows]
    text = " ".join([outcome(tables, shown), *remarks(tables["graphs"], used)])
    return [Part("Here", text, [_grid(shown, found, names)], drawings)]


def _where(row: Row, names: dict[tuple[str, str], str], fixed: str) -> str:
    at = f"D = {row['dim']}" if fixed == "dim" else count(row["pes"], "PE")
    return f"{names[row['dataset'], row['graph_hash']]}, {at}"


def outcome(tables: dict[str, Rows], shown: Sweep) -> str:
    """Say whether the times fall or differ as in the paper; empty if nothing was measured."""
    found = [lines for _, lines in _sweeps(tables["aggregate"], shown)]
    if not found:
        return ""
    return " ".join(_falls(found, shown) if shown.falls else _steepness(found, shown))


def lacking(aggregate: Rows, shown: Sweep) -> str:
    """Say what is missing if techniques were timed without the side that represents them on one PE."""
    rows = sound(aggregate)
    if shown.single is None or timings(shown.single, [row for row in rows if row["pes"] == 1]):
        return ""
    if not any(row["pes"] > 1 for side in shown.sides for row in timings(side, rows)):
        return ""
    return f"the baseline “{shown.single.technique}” on 1 PE was not measured: add 1 to partition.pes"


def _falls(found: Sequence[Lines], shown: Sweep) -> list[str]:
    """Describe the change from the first number of PEs to the second, per side; the paper covers only 1 and 2 PEs."""
    sentences = []
    for side, falls in shown.falls.items():
        lines = [each[side] for each in found if side in each]
        if not lines:
            continue
        first, second = min(tuple(sorted(at)[:2]) for at in lines)
        ratios = [at[second]["median_s"] / at[first]["median_s"] for at in lines if first in at and second in at]
        mean = geometric_mean(ratios)
        verdict = CLOSE if 1 / EVEN < mean < EVEN else AGREES if (mean < 1) == falls else DISAGREES
        judged = f": {verdict}" if (first, second) == (1, 2) else ""
        less = sum(ratio < 1 for ratio in ratios)
        sentences.append(
            f"“{side}” took {number(mean)} times as long on {count(second, 'PE')} as on {first}, less time in {less} "
            f"of {count(len(ratios), 'case')}{judged}."
        )
    return sentences


def _steepness(found: Sequence[Lines], shown: Sweep) -> list[str]:
    """Say how much longer the last point takes than the first, per side."""
    means = {}
    for side in (each.name for each in shown.sides):
        ratios = [
            at[max(at)]["median_s"] / at[min(at)]["median_s"] for lines in found if len(at := lines.get(side, {})) > 1
        ]
        if ratios:
            means[side] = geometric_mean(ratios)
    if not means:
        return []
    ranked = sorted(means, key=lambda side: -means[side])
    told = listing([f"“{side}” {number(means[side])}" for side in ranked])
    ends = sorted({x for lines in found for at in lines.values() for x in at})
    text = f"Time at D = {ends[-1]} over that at D = {ends[0]}: {told}."
    if shown.steepest in means:
        verdict = AGREES if ranked[0] == shown.steepest else DISAGREES
        verdict = CLOSE if len(ranked) > 1 and means[ranked[0]] / means[ranked[1]] < EVEN else verdict
        text += f" The paper's steepest is “{shown.steepest}”: {verdict}."
    return [text]


def _sweeps(aggregate: Rows, shown: Sweep) -> list[tuple[Rows, Lines]]:
    """Return rows and lines of what was timed at two or more points."""
    found = []
    for rows in group(sound(aggregate), *SETTING, _AXES[shown.over][1]).values():
        lines = {each.name: at for each in shown.sides if len(at := _line(shown, each, rows)) > 1}
        if lines:
            used = [row for at in lines.values() for row in at.values()]
            found.append((used, lines))
    return found


def _line(shown: Sweep, side: Side, rows: Rows) -> dict[int, Row]:
    """Return the best row of ``side`` at each point, ascending; empty if it has no point of its own."""
    own = timings(side, rows)
    if shown.single is not None:
        several = [row for row in own if row["pes"] > 1]
        own = [*several, *timings(shown.single, [row for row in rows if row["pes"] == 1])] if several else []
    points = group(own, shown.over)
    return {x: min(found, key=lambda row: (row["median_s"], row["label"])) for (x,), found in points.items()}


def _grid(shown: Sweep, found: Sequence[tuple[Rows, Lines]], names: dict[tuple[str, str], str]) -> Grid:
    """Return a block per graph, a line per side, a column per number of PEs or width."""
    axis, fixed = _AXES[shown.over]
    points = sorted({x for _, lines in found for at in lines.values() for x in at})
    unit = time_unit([row["median_s"] for rows, _ in found for row in rows])
    groups = []
    for rows, lines in found:
        first = rows[0]
        heading = f"{_where(first, names, fixed)} ({first['machine']}, {first['device']}, {first['dtype']})"
        printed = shown.printed.get(claimed_as(first["dataset"]), {})
        groups.append((heading, [(side, _cells(shown, lines, side, points, printed, unit)) for side in lines]))
    note = f"Medians of the slowest PE, in {unit.name}."
    note += f" One PE: technique {shown.single.name} for all." if shown.single else ""
    note += " Small: the paper's, of its graph on its machine." if shown.printed else ""
    columns = [count(x, "PE") if shown.over == "pes" else f"D = {x}" for x in points]
    return Grid(f"Time of one aggregation over {axis}", "method", columns, groups, note)


def _cells(
    shown: Sweep, lines: Lines, side: str, points: Sequence[int], printed: Mapping[int, Sequence[float]], unit: Unit
) -> list[Cell]:
    place = [each.name for each in shown.sides].index(side)
    cells = []
    for x in points:
        if x not in lines[side]:
            cells.append(Cell(ABSENT))
            continue
        time = lines[side][x]["median_s"]
        paper = printed.get(x, ())
        small = f"paper {number(paper[place])} ms" if place < len(paper) else ""
        others = [at[x]["median_s"] for at in lines.values() if x in at]
        cells.append(Cell(within(time, unit), small, time == min(others) < max(others)))
    return cells
