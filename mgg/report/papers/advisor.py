"""Effect of technique gnnadvisor's parameters on products: figures 12 and 14 of GNNAdvisor (OSDI'21)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from statistics import mean

from mgg.report.figures import charts
from mgg.report.page.parts import Drawing, Part, grid, say
from mgg.report.tables.compute import SETTING, Row, Rows, alike, best, group, sound, where
from mgg.report.tables.mgg_sweep import without
from mgg.report.tables.numbers import listing, percent

#: Deciders of the parameters and their names on the page.
DECIDERS = {"paper": "as printed", "artifact": "as released", "fitted": "fitted"}
#: A pick is good within this factor of the grid's best; fewer settings do not count as a grid.
GOOD, FEWEST = 1.1, 4
#: GNNAdvisor 7.4: share of atomics that the leader saves, on average over three graphs.
SAVED = 0.4785
_KNOBS = ("ngs", "dw", "tpb")


def parts(tables: dict[str, Rows], _: str, shown: Sequence[str]) -> list[Part]:
    """Return a part for each item in ``shown`` of an ``Experiment``; none for what was not measured."""
    return [part for what in shown if (part := _PARTS[what](tables))]


def telling(aggregate: Rows) -> Rows:
    """Return ``aggregate`` with only the best of each grid, because more would bury the other techniques."""
    return without(aggregate, _grids(_rows(aggregate)), lambda row: bool(row["decide"] != "none"))


def _rows(aggregate: Rows) -> Rows:
    """Return the sound products of gnnadvisor with their options and, as ``ngs``, ``dw`` and ``tpb``, the decided ones.

    ``setting`` are these three in words.
    """
    rows = []
    for row in sound(aggregate):
        if row["technique"] == "gnnadvisor" and row["decided"]:
            decided = json.loads(row["decided"])
            setting = ", ".join(str(decided[knob]) for knob in _KNOBS)
            rows.append({**row, **json.loads(row["options"]), **decided, "setting": setting})
    return rows


def _grids(rows: Rows) -> list[Rows]:
    """Return grids: timings that differ only in decider, ngs, dw and tpb, if the user set enough of them."""
    found = alike(rows, (*_KNOBS, "decide"), *SETTING, "dim", "pes")
    return [each for each in found if len({row["decided"] for row in each if row["decide"] == "none"}) >= FEWEST]


def _over(tables: dict[str, Rows], option: str) -> Part | None:
    """Show times over ngs or dw: a figure per graph and width, a line for each other difference."""
    known = [row for row in _rows(tables["aggregate"]) if row["decide"] == "none"]
    found = alike(known, [option], *SETTING, "dim")
    rows = [row for each in found if len({row[option] for row in each}) > 2 for row in each]
    if not rows:
        return None
    lines, drawings, told = list[Row](), [], []
    for graph in group(rows, *SETTING, "dim").values():
        mine, at = _series(graph, option), where(graph[0], "graph", "dim")
        lines += mine
        least = min(graph, key=lambda row: (row["median_s"], row[option]))
        told.append(f"{least[option]} ({at})")
        svg = charts.curves(mine, "series", option, option, at)
        drawings.append(Drawing(svg, f"{at}: median time of one aggregation over {option}."))
    table = grid("knob", lines, over=option, at=f"{option} = {{}}".format, knob=option)
    text = f"The least time is at {option} {listing(told)}.{_on_cpus(rows)}"
    return Part(f"Over {option}", text, [table], drawings, text)


def _series(rows: Rows, option: str) -> Rows:
    """Return the least time at each value of an option, by the other knobs that differ in ``rows`` (one graph, width).

    ``best``: it is the least of its ``series``.
    """
    varying = [each for each in _KNOBS if each != option and len({row[each] for row in rows}) > 1]
    found = []
    for series in group(rows, *varying).values():
        label = ", ".join(f"{each} = {series[0][each]}" for each in varying) or "gnnadvisor"
        points = [best(at) for at in group(series, option).values()]
        least = min(row["median_s"] for row in points)
        found += [row | {"series": label, "best": row["median_s"] == least} for row in points]
    return found


def _on_cpus(rows: Rows) -> str:
    return " On CPU cores ngs alone changes what is done." if any(row["device"] != "GPUs" for row in rows) else ""


def _picks(tables: dict[str, Rows]) -> Part | None:
    """Compare the grid's best with each Decider's pick."""
    lines: Rows = []
    for rows in _grids(_rows(tables["aggregate"])):
        first = min((row for row in rows if row["decide"] == "none"), key=lambda row: row["median_s"])
        picked = {row["decide"]: {"over": row["median_s"] / first["median_s"], **row} for row in rows}
        settings = len({row["decided"] for row in rows})
        lines.append({**first, "picked": dict.fromkeys(DECIDERS) | picked, "settings": settings})
    if not lines:
        return None
    told = []
    for who, name in DECIDERS.items():
        if ratios := [row["picked"][who]["over"] for row in lines if row["picked"][who]]:
            told.append((name, ratios, sum(ratio <= GOOD for ratio in ratios)))
    text = say("decided", told, _on_cpus(lines))
    return Part("Picks of the Decider", text, [grid("decided", lines)], outcome=text)


def _atomics(tables: dict[str, Rows]) -> Part | None:
    """Compare counted atomics with and without the leader."""
    atomic = [row for row in _rows(tables["aggregate"]) if row["sums"] == "atomic"]
    rows: Rows = []
    for found in alike(atomic, ["leader"], *SETTING, "dim"):
        by_leader = {row["leader"]: row["atomics"] for row in found}
        if len(by_leader) == 2:
            alone, joined = by_leader[False], by_leader[True]
            saved = 1 - joined / alone if alone else None
            rows.append({**found[0], "alone": alone, "joined": joined, "saved": saved})
    if not rows:
        return None
    shares = [row["saved"] for row in rows if row["saved"] is not None]
    saved = percent(mean(shares) if shares else None)
    text = f"The leader saves {saved} of the atomics on average; in the paper {100 * SAVED:.2f} %."
    return Part("Atomics", text, [grid("atomics", rows)], outcome=text)


def _spans(tables: dict[str, Rows]) -> Part | None:
    """Show the averaged edge span of each graph that has one."""
    rows = {row["graph"]: row for row in tables["quality"] if row["span"] is not None}
    return Part("Averaged edge span", "", [grid("span", [rows[each] for each in sorted(rows)])]) if rows else None


_PARTS: dict[str, Callable[[dict[str, Rows]], Part | None]] = {
    "ngs": lambda tables: _over(tables, "ngs"),
    "dw": lambda tables: _over(tables, "dw"),
    "picks": _picks,
    "atomics": _atomics,
    "span": _spans,
}
