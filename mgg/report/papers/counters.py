"""Page faults of unified memory, counted by the driver, and occupancy from Nsight Compute (MGG's two versions)."""

from __future__ import annotations

import json
from statistics import geometric_mean

from mgg.report.figures import bars
from mgg.report.figures.bars import Bar, Bars
from mgg.report.figures.svg import SERIES
from mgg.report.page.parts import Cell, Drawing, Grid, Part
from mgg.report.papers.kinds import Occupied, Side
from mgg.report.papers.verdicts import remarks
from mgg.report.tables.comparisons import AGREES, DISAGREES
from mgg.report.tables.compute import SETTING, Row, Rows, graph_names, group, sound
from mgg.report.tables.numbers import ABSENT, bytes_unit, count, listing, number, percent, time_unit, within

#: Columns of occupancy and their names on the page.
SHARES = {"occupancy": "Achieved occupancy", "sm_utilization": "SM utilization"}
_FAULTS = {"page_faults": "page faults", "fault_s": "time of page faults"}


def fault_parts(tables: dict[str, Rows], name: str, technique: str) -> list[Part]:
    """Show page faults of ``technique`` over numbers of PEs; empty if they were not requested."""
    rows = _asked(tables["aggregate"], technique)
    if not rows:
        return []
    names = graph_names(tables["graphs"])
    known = [row for row in rows if row["page_faults"] is not None]
    times, unit = time_unit([row["fault_s"] for row in known]), bytes_unit([r["migrated_bytes"] for r in known])
    groups, drawn = [], dict[str, list[Bars]]()
    for key, found in group(rows, *SETTING, "dim", "label").items():
        where = _where(found[0], names)
        least = _least(found)
        lines = []
        for row in sorted(found, key=lambda row: row["pes"]):
            cells = [
                Cell(number(row["page_faults"])),
                Cell(_over(row, least, "page_faults")),
                Cell(within(row["fault_s"], times)),
                Cell(_over(row, least, "fault_s")),
                Cell(within(row["migrated_bytes"], unit)),
            ]
            lines.append((count(row["pes"], "PE"), cells))
        groups.append((f"{where}, {key[-1]} ({found[0]['machine']}, {found[0]['device']})", lines))
        for column in _FAULTS:
            if least and least[column] and len(found) > 1:
                drawn.setdefault(column, []).append(Bars(where, _bars(found, least, column)))
    grid = Grid(
        "Page faults of GPUs in one product",
        "PEs",
        ["page faults", "over the fewest PEs'", f"their time ({times.name})", "over the fewest PEs'",
         f"pages moved ({unit.name})"],
        groups,
        "Mean of as many products as were timed; all GPUs together. A group of faults on one page counts once; times "
        "of page faults that the driver worked on side by side are added up.",
    )  # fmt: skip
    drawings = [
        Drawing(
            bars.drawn(
                each,
                f"{_FAULTS[column]}, over the fewest PEs'",
                key=f"{name}{column}",
                alt=f"Bar chart: {bars.told(each)}.",
            ),
            f"{_FAULTS[column].capitalize()} of one product by PEs, over those of the fewest PEs.",
        )
        for column, each in drawn.items()
    ]
    told = " ".join([fault_outcome(tables, technique), *remarks(tables["graphs"], rows)])
    return [Part("Here", told, [grid], drawings)]


def fault_outcome(tables: dict[str, Rows], technique: str) -> str:
    """Say whether page faults rise with the number of PEs, as in the paper, or why they are unknown."""
    rows = _asked(tables["aggregate"], technique)
    told = []
    for found in group(rows, *SETTING, "dim", "label").values():
        least, most = _least(found), max(found, key=lambda row: row["pes"])
        if least is None or least["pes"] == most["pes"] or most["page_faults"] is None:
            continue
        have = f"{count(most['pes'], 'PE')} have {number(most['page_faults'])} page faults a product"
        where = f"On {most['dataset']}, D = {most['dim']}, {have}"
        if not least["page_faults"]:
            told.append(f"{where}, {least['pes']} none.")
            continue
        word = AGREES if most["page_faults"] > least["page_faults"] else DISAGREES
        told.append(f"{where}, {_over(most, least, 'page_faults')} times those of {least['pes']}: {word}.")
    return " ".join([*told, *_untold(rows, "faults_untold", "Page faults were not counted")])


def occupancy_parts(tables: dict[str, Rows], _: str, shown: Occupied) -> list[Part]:
    """Show the occupancy of each side by graph; empty if profiling was not tried."""
    rows = _tried(tables["aggregate"], shown)
    if not rows:
        return []
    names, groups = graph_names(tables["graphs"]), []
    for found in group(rows, *SETTING).values():
        lines = []
        for (pes, dim), mine in group(found, "pes", "dim").items():
            for side in shown.sides:
                lines += [
                    (f"{side.name}, {count(pes, 'PE')}, D = {dim}", [
                        Cell(percent(row["occupancy"])), Cell(percent(row["occupancy_limit"])),
                        Cell(percent(row["sm_utilization"])),
                    ])
                    for row in _of(mine, side, shown)
                ]  # fmt: skip
        first = found[0]
        where = f"{first['machine']}, {first['device']}, {first['direction']}"
        groups.append((f"{names[first['dataset'], first['graph_hash']]} ({where})", lines))
    grid = Grid(
        "Occupancy and SM utilization",
        "side",
        ["achieved occupancy", "its limit", "SM utilization"],
        groups,
        "By Nsight Compute, mean of a product's kernels and PEs by their time. Occupancy: active warps over the most "
        "that a multiprocessor takes, in its active cycles; its limit is what blocks, registers and shared memory of "
        "the launch leave. SM utilization: cycles in which a multiprocessor had a warp, over all.",
    )
    told = " ".join([occupancy_outcome(tables, shown), *remarks(tables["graphs"], rows)])
    return [Part("Here", told, [grid])]


def occupancy_outcome(tables: dict[str, Rows], shown: Occupied) -> str:
    """Say how much higher the first side's values are than the second's, with the paper's, or why they are unknown."""
    rows = _tried(tables["aggregate"], shown)
    subject, rival = shown.sides[:2]
    told = []
    for column, title in SHARES.items():
        ratios = [
            one[column] / other[column]
            for found in group(rows, *SETTING, "pes", "dim").values()
            for one in _of(found, subject, shown)
            for other in _of(found, rival, shown)
            if one[column] and other[column]
        ]
        if ratios:
            mean, paper = geometric_mean(ratios), shown.gains[column]
            word = AGREES if (mean > 1) == (paper > 0) else DISAGREES
            cases = count(len(ratios), "case")
            text = f"{title} of {subject.name} is {number(mean)} times that of {rival.name} ({cases})"
            told.append(f"{text}, {number(1 + paper, 4)} times in the paper: {word}.")
    return " ".join([*told, *_untold(rows, "profile_untold", "Occupancy and SM utilization were not found")])


def _asked(aggregate: Rows, technique: str) -> Rows:
    return [
        row
        for row in sound(aggregate)
        if row["technique"] == technique and (row["page_faults"] is not None or row["faults_untold"])
    ]


def _tried(aggregate: Rows, shown: Occupied) -> Rows:
    rows = [row for row in sound(aggregate) if row["occupancy"] is not None or row["profile_untold"]]
    return [row for row in rows if any(_of([row], side, shown) for side in shown.sides)]


def _of(rows: Rows, side: Side, shown: Occupied) -> Rows:
    """Return the side's rows: each option that separates the technique's sides has the side's value or the default."""
    keys = {key for each in shown.sides if each.technique == side.technique for key in each.options}
    found = []
    for row in rows:
        if row["technique"] == side.technique:
            given, usual = json.loads(row["options"]), json.loads(row["defaults"])
            if all(given.get(key) == side.options.get(key, usual.get(key)) for key in keys):
                found.append(row)
    return found


def _least(rows: Rows) -> Row | None:
    """Return the row with the fewest PEs whose page faults are known."""
    return min((row for row in rows if row["page_faults"] is not None), key=lambda row: row["pes"], default=None)


def _over(row: Row, least: Row | None, column: str) -> str:
    return number(row[column] / least[column]) if least and least[column] and row[column] is not None else ABSENT


def _bars(rows: Rows, least: Row, column: str) -> list[Bar]:
    known = sorted((row for row in rows if row[column] is not None), key=lambda row: row["pes"])
    return [
        Bar(count(row["pes"], "PE"), row[column] / least[column], _over(row, least, column), SERIES[0]) for row in known
    ]


def _where(row: Row, names: dict[tuple[str, str], str]) -> str:
    return f"{names[row['dataset'], row['graph_hash']]}, D = {row['dim']}"


def _untold(rows: Rows, column: str, begin: str) -> list[str]:
    reasons = sorted({row[column] for row in rows if row[column]})
    return [f"{begin}: {listing(reasons)}."] if reasons else []
