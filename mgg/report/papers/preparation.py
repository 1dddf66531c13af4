"""Time to prepare a technique, compared with its product (MGG arXiv, table 4)."""

from __future__ import annotations

from statistics import geometric_mean

from mgg.report.page.parts import Cell, Grid, Part
from mgg.report.papers.catalogue import claimed_as
from mgg.report.papers.kinds import Preparation
from mgg.report.tables.comparisons import timings
from mgg.report.tables.compute import SETTING, Row, Rows, graph_names, group, sound
from mgg.report.tables.numbers import ABSENT, Unit, count, number, quantity, time_unit, within

Pair = tuple[Row, Row]


def parts(tables: dict[str, Rows], _: str, shown: Preparation) -> list[Part]:
    """Return one part, a line per graph and width; empty if no pair of sides was measured."""
    pairs = _pairs(tables["aggregate"], shown)
    if not pairs:
        return []
    names, groups = graph_names(tables["graphs"]), []
    units = [time_unit([row[column] for pair in pairs for row in pair]) for column in ("prepare_s", "median_s")]
    for found in group([{**mine, "pair": (mine, other)} for mine, other in pairs], "machine", "device", "pes").values():
        lines = [
            (f"{names[row['dataset'], row['graph_hash']]}, D = {row['dim']}", _cells(row["pair"], shown, units))
            for row in found
        ]
        groups.append((f"{count(found[0]['pes'], 'PE')} ({found[0]['machine']}, {found[0]['device']})", lines))
    subject, rival = shown.subject.name, shown.rival.name
    columns = [
        heading
        for what, unit in zip(("preparing", "a product by"), units, strict=True)
        for heading in (f"{what} {subject} ({unit.name})", f"{what} {rival} ({unit.name})", f"{rival} / {subject}")
    ]
    note = (
        "Preparing: from a layout in memory to a plan, slowest PE, median over launches; partition and layout, which "
        "all techniques share, come before it and the paper's times have theirs in them. Small: the paper's."
    )
    grid = Grid("Preparing, and a product", "graph, width", columns, groups, note)
    return [Part("Preparing beside products", _told(pairs, shown), [grid])]


def outcome(tables: dict[str, Rows], shown: Preparation) -> str:
    """Say how much longer the rival took to prepare; empty if it was not measured."""
    pairs = _pairs(tables["aggregate"], shown)
    return _told(pairs, shown) if pairs else ""


def _pairs(aggregate: Rows, shown: Preparation) -> list[Pair]:
    """Return the fastest timing of each side, for settings that differ only in technique."""
    rows = [row for row in sound(aggregate) if row["prepare_s"] is not None]
    pairs = []
    for found in group(rows, *SETTING, "dim", "pes").values():
        sides = [timings(side, found) for side in (shown.subject, shown.rival)]
        if all(sides):
            mine, other = (min(each, key=lambda row: (row["median_s"], row["label"])) for each in sides)
            pairs.append((mine, other))
    return pairs


def _told(pairs: list[Pair], shown: Preparation) -> str:
    ours = [other["prepare_s"] / mine["prepare_s"] for mine, other in pairs]
    theirs = [printed for mine, _ in pairs if (printed := _printed(shown, mine))]
    text = f"Preparing {shown.rival.name} took {number(geometric_mean(ours))} times as long as {shown.subject.name}"
    text += f" ({_over(len(ours))}"
    if theirs:
        text += f"; in the paper {number(geometric_mean([each[1] / each[0] for each in theirs]))}"
    longest = max((other for _, other in pairs), key=lambda row: row["prepare_s"])
    return f"{text}), {quantity(longest['prepare_s'])} at most."


def _over(many: int) -> str:
    return f"the geometric mean of {many} comparisons" if many > 1 else "one comparison"


def _printed(shown: Preparation, row: Row) -> tuple[float, float, float, float] | None:
    return shown.printed.get(claimed_as(row["dataset"]))


def _cells(pair: Pair, shown: Preparation, units: list[Unit]) -> list[Cell]:
    printed, cells = _printed(shown, pair[0]), []
    for place, (column, unit) in enumerate(zip(("prepare_s", "median_s"), units, strict=True)):
        theirs = printed[2 * place : 2 * place + 2] if printed else (None, None)
        values = [row[column] for row in pair]
        cells += [
            Cell(within(value, unit), f"paper {quantity(paper)}" if paper else "")
            for value, paper in zip(values, theirs, strict=True)
        ]
        ratio = f"paper {number(theirs[1] / theirs[0])}" if theirs[0] and theirs[1] else ""
        cells.append(Cell(number(values[1] / values[0]) if values[0] else ABSENT, ratio))
    return cells
