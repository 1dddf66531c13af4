"""Time to prepare a technique, compared with its product (MGG arXiv, table 4)."""

from __future__ import annotations

from collections.abc import Callable
from statistics import geometric_mean

from mgg.report.page.parts import Cell, Part, table
from mgg.report.papers.catalogue import claimed_as
from mgg.report.papers.kinds import Preparation
from mgg.report.tables.comparisons import timings
from mgg.report.tables.compute import SETTING, Row, Rows, best, group, sound, where
from mgg.report.tables.numbers import ABSENT, Unit, number, quantity, time_unit, within


def parts(tables: dict[str, Rows], _: str, shown: Preparation) -> list[Part]:
    """Return one part, a line per graph and width; empty if no pair of sides was measured."""
    rows = _pairs(tables["aggregate"], shown)
    if not rows:
        return []
    subject, rival = shown.subject.name, shown.rival.name
    columns: list[tuple[str, Callable[[Row], Cell | str]]] = []
    for place, (what, column) in enumerate((("preparing", "prepare_s"), ("a product by", "median_s"))):
        unit = time_unit([each[column] for row in rows for each in row["pair"]])
        columns += [
            *(
                (f"{what} {each} ({unit.name})", _time(column, unit, place, n))
                for n, each in enumerate((subject, rival))
            ),
            (f"{rival} / {subject}", _ratio(column, place)),
        ]
    note = (
        "Preparing: from a layout in memory to a plan, slowest PE, median over launches; partition and layout, which "
        "all techniques share, come before it and the paper's times have theirs in them. Small: the paper's."
    )
    grid = table(
        "Preparing, and a product",
        "graph, width",
        columns,
        rows,
        lambda row: where(row, "graph", "dim"),
        note,
        by=["machine", "device", "pes"],
        heading=lambda row: f"{where(row, 'pes')} ({where(row, 'machine', 'device')})",
    )
    told = _told(rows, shown)
    return [Part("Preparing beside products", told, [grid], outcome=told)]


def _time(column: str, unit: Unit, place: int, side: int) -> Callable[[Row], Cell]:
    def cell(row: Row) -> Cell:
        paper = row["paper"][2 * place + side] if row["paper"] else None
        return Cell(within(row["pair"][side][column], unit), f"paper {quantity(paper)}" if paper else "")

    return cell


def _ratio(column: str, place: int) -> Callable[[Row], Cell]:
    def cell(row: Row) -> Cell:
        mine, other = (each[column] for each in row["pair"])
        theirs, rivals = row["paper"][2 * place : 2 * place + 2] if row["paper"] else (None, None)
        small = f"paper {number(rivals / theirs)}" if theirs and rivals else ""
        return Cell(number(other / mine) if mine else ABSENT, small)

    return cell


def _pairs(aggregate: Rows, shown: Preparation) -> Rows:
    """Return the fastest timing of the subject, and as ``pair`` those of both sides, for settings that differ only in
    technique; ``paper`` are the paper's numbers.
    """
    rows = [row for row in sound(aggregate) if row["prepare_s"] is not None]
    pairs = []
    for found in group(rows, *SETTING, "dim", "pes").values():
        sides = [timings(side, found) for side in (shown.subject, shown.rival)]
        if all(sides):
            pair = [best(side) for side in sides]
            pairs.append({**pair[0], "pair": pair, "paper": shown.printed.get(claimed_as(pair[0]["dataset"]))})
    return pairs


def _told(rows: Rows, shown: Preparation) -> str:
    """Say how much longer the rival took to prepare."""
    ours = [other["prepare_s"] / mine["prepare_s"] for mine, other in (row["pair"] for row in rows)]
    theirs = [row["paper"][1] / row["paper"][0] for row in rows if row["paper"]]
    text = f"Preparing {shown.rival.name} took {number(geometric_mean(ours))} times as long as {shown.subject.name} ("
    text += f"the geometric mean of {len(ours)} comparisons" if len(ours) > 1 else "one comparison"
    text += f"; in the paper {number(geometric_mean(theirs))}" if theirs else ""
    return f"{text}), {quantity(max(row['pair'][1]['prepare_s'] for row in rows))} at most."
