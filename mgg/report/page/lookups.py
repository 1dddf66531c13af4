"""Embedding lookups: every side by batch size, and the points where one side overtakes another."""

from __future__ import annotations

from collections.abc import Callable

from mgg.lookup_record import Crossover, crossover, crossovers, told
from mgg.report.figures import charts
from mgg.report.page.parts import Cell, Drawing, Grid, Part, Section
from mgg.report.papers.kinds import LookedUp
from mgg.report.tables import spread
from mgg.report.tables.compute import Row, Rows, group, shared, sound
from mgg.report.tables.numbers import ABSENT, bytes_unit, count, number, percent, time_unit, within

#: Columns that sides and batch sizes must share to be in one table.
CASE = ("machine", "dataset", "samples_hash", "device", "dim", "pes")


def section(tables: dict[str, Rows]) -> Section | None:
    """Return the section, with a part for each data set, machine, width and number of PEs; None without lookups."""
    rows = tables["lookups"]
    if not rows:
        return None
    parts = [_part(found, f"l{number_}") for number_, found in enumerate(group(rows, *CASE).values(), 1)]
    intro = (
        "Rows of embedding tables, fetched and summed by bags that are new in every batch (docs/lookup.md); what a "
        "side plans for a batch is part of its time."
    )
    return Section("lookups", "Embedding lookup", intro, parts)


def parts(tables: dict[str, Rows], _: str, shown: LookedUp) -> list[Part]:
    """Return the paper's comparison, with a part for each case in which the subject and a rival were measured."""
    return [part for found in group(tables["lookups"], *CASE).values() if (part := _against(found, shown))]


def outcome(tables: dict[str, Rows], shown: LookedUp) -> str:
    """Return a sentence per rival and case; empty if the subject or all of its rivals were not measured."""
    sentences = [
        f"{name}: {told(each)}."
        for found in group(sound(tables["lookups"]), *CASE).values()
        for name, each in _named(found, shown)
        if each.ratios
    ]
    mine, theirs = shown.printed
    return " ".join([*sentences, f"The paper: {number(theirs / mine)} times."]) if sentences else ""


def _named(rows: Rows, shown: LookedUp) -> list[tuple[str, Crossover]]:
    medians = _medians(rows)
    if shown.subject not in medians:
        return []
    name = f"{rows[0]['dataset']} on {count(rows[0]['pes'], 'PE')}, D = {rows[0]['dim']}"
    mine = medians[shown.subject]
    return [(name, crossover(shown.subject, mine, each, medians[each])) for each in shown.rivals if each in medians]


def _medians(rows: Rows) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        found.setdefault(row["side"], {})[row["batch"]] = row["median_s"]
    return found


def _where(row: Row) -> str:
    return f"{row['dataset']}, D = {row['dim']}, {count(row['pes'], 'PE')} ({row['device']}, machine {row['machine']})"


def _against(rows: Rows, shown: LookedUp) -> Part | None:
    found = [each for _, each in _named(sound(rows), shown) if each.ratios]
    if not found:
        return None
    medians = _medians(sound(rows))
    unit = time_unit([row["median_s"] for row in rows])
    mine = medians[shown.subject]
    lines = []
    for size in sorted(mine):
        cells = [Cell(within(mine[size], unit))]
        for each in found:
            theirs = medians[each.against].get(size)
            cells += [Cell(ABSENT), Cell(ABSENT)] if theirs is None else [
                Cell(within(theirs, unit)), Cell(number(each.ratios[size]))
            ]  # fmt: skip
        lines.append((f"{size:,}", cells))
    paper = [Cell(f"{shown.printed[0]:g} ms")]
    for _ in found:
        paper += [Cell(f"{shown.printed[1]:g} ms"), Cell(number(shown.printed[1] / shown.printed[0]))]
    columns = [shown.subject]
    for each in found:
        columns += [each.against, f"{each.against} / {shown.subject}"]
    caption = (
        f"{_where(rows[0])}: median time of a batch ({unit.name}), and times of others over that of {shown.subject}"
    )
    grid = Grid(caption, "samples", columns, [("here", lines), ("the paper, batch size unknown", [("", paper)])])
    sentences = [f"Side {told(each)}." for each in found]
    return Part(f"Here: {_where(rows[0])}", " ".join([*sentences, *_conditions(rows)]), [grid])


def _conditions(rows: Rows) -> list[str]:
    found = []
    if any(row["device"] != "GPUs" for row in rows):
        found.append("These PEs were CPU cores, which move and compute in other ways than the paper's GPUs.")
    if shared(rows):
        found.append(f"They shared {shared(rows)}, which blurs all of it.")
    return found


def _part(rows: Rows, key: str) -> Part:
    first = rows[0]
    sizes = sorted({row["batch"] for row in rows})
    judged = [{**row, "label": row["side"]} for row in rows]
    for found in group(sound(judged), "batch").values():
        if len(found) > 1:
            spread.judge(found)
    unit, volume = time_unit([row["median_s"] for row in rows]), bytes_unit([row["bytes_wire_mean"] for row in rows])

    def time(row: Row) -> Cell:
        wrong = {"failed": "; wrong result", "not checked": "; not checked", "passed": ""}[row["check"]]
        small = f"{within(row['low_s'], unit)} to {within(row['high_s'], unit)}{wrong}"
        return Cell(within(row["median_s"], unit), small, row.get("starred", False))

    def lines(cell: Callable[[Row], Cell]) -> list[tuple[str, list[Cell]]]:
        at = {(row["side"], row["batch"]): cell(row) for row in judged}
        sides = list(dict.fromkeys(row["side"] for row in judged))
        return [(side, [at.get((side, size), Cell(ABSENT)) for size in sizes]) for side in sides]

    groups = [
        (f"median time of a batch ({unit.name}); below it the fastest and the slowest launch", lines(time)),
        ("rows a second", lines(lambda row: Cell(number(row["rows_per_s"])))),
        (
            f"embeddings on the wire of a batch ({volume.name})",
            lines(lambda row: Cell(within(row["bytes_wire_mean"], volume))),
        ),
        ("share of remote indices", lines(lambda row: Cell(percent(row["remote_share"])))),
    ]
    note = (
        "Marked: its slowest launch was faster than the fastest of every other side. alltoall_tables has whole tables "
        "on a PE: other indices are remote there, and one row a bag crosses for all of an owner's tables."
    )
    grid = Grid(f"{_where(first)}: samples of a batch", "side", [f"{size:,}" for size in sizes], groups, note)
    drawings = []
    if len(sizes) > 1:
        series = {
            side: sorted((row["batch"], row["median_s"]) for row in found)
            for (side,), found in group(rows, "side").items()
        }
        svg = charts.lines(series, "samples of a batch", key, _where(first), "one batch")
        drawings.append(Drawing(svg, f"{_where(first)}: median time of a batch."))
    medians = _medians(sound(rows))
    ordered = {side: medians[side] for side in sorted(medians, key=lambda side: side != "mgg")}
    sentences = [f"Side {told(each)}." for each in (crossovers(ordered) if ordered else [])]
    text = " ".join([f"Samples: {first['source']}.", *sentences, *_conditions(rows)])
    return Part(_where(first), text, [grid], drawings)
