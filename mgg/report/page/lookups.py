"""Embedding lookups: every side by batch size, and the points where one side overtakes another."""

from __future__ import annotations

from dataclasses import replace

from mgg.lookup_record import crossover, crossovers, told
from mgg.report.figures import charts
from mgg.report.page.parts import Cell, Columns, Drawing, Grid, Line, Part, Section, across
from mgg.report.papers.kinds import LookedUp
from mgg.report.tables import spread
from mgg.report.tables.compute import Row, Rows, group, shared, sound, where
from mgg.report.tables.numbers import bytes_unit, number, percent, time_unit, within

#: Columns that sides and batch sizes must share to be in one table.
CASE = ("machine", "dataset", "samples_hash", "device", "dim", "pes")


def section(tables: dict[str, Rows]) -> Section | None:
    """Return the section, with a part for each data set, machine, width and number of PEs; None without lookups."""
    rows = tables["lookups"]
    if not rows:
        return None
    parts = [_part(found, f"l{number_}") for number_, found in enumerate(group(rows, *CASE).values(), 1)]
    intro = (
        "Rows of embedding tables, fetched and summed by bags that are new in every batch (docs/concepts/lookup.md); "
        "what a side plans for a batch is part of its time."
    )
    return Section("lookups", "Embedding lookup", intro, parts)


def parts(tables: dict[str, Rows], _: str, shown: LookedUp) -> list[Part]:
    """Return the paper's comparison, with a part for each case in which the subject and a rival were measured."""
    found = [part for rows in group(tables["lookups"], *CASE).values() if (part := _against(rows, shown))]
    if found:
        mine, theirs = shown.printed
        outcome = f"{found[-1].outcome} The paper: {number(theirs / mine)} times."
        found[-1] = replace(found[-1], outcome=outcome)
    return found


def _medians(rows: Rows) -> dict[str, dict[int, float]]:
    return {side: dict(points) for side, points in charts.series(sound(rows), "side", "batch").items()}


def _where(row: Row) -> str:
    return f"{where(row, 'dataset', 'dim', 'pes')} ({row['device']}, machine {row['machine']})"


def _against(rows: Rows, shown: LookedUp) -> Part | None:
    medians, subject = _medians(rows), shown.subject
    mine = medians.get(subject, {})
    against = [crossover(subject, mine, each, medians[each]) for each in shown.rivals if mine and each in medians]
    found = [each for each in against if each.ratios]
    if not found:
        return None
    unit, (ours, theirs) = time_unit([row["median_s"] for row in rows]), shown.printed
    lines: list[Line] = []
    for size in sorted(mine):
        cells = [Cell(within(mine[size], unit))]
        for each in found:
            cells += [Cell(within(medians[each.against].get(size), unit)), Cell(number(each.ratios.get(size)))]
        lines.append((f"{size:,}", cells))
    paper = [Cell(f"{ours:g} ms"), *[Cell(f"{theirs:g} ms"), Cell(number(theirs / ours))] * len(found)]
    columns = [subject, *(name for each in found for name in (each.against, f"{each.against} / {subject}"))]
    caption = f"{_where(rows[0])}: median time of a batch ({unit.name}), and times of others over that of {subject}"
    grid = Grid(caption, "samples", columns, [("here", lines), ("the paper, batch size unknown", [("", paper)])])
    sentences = [f"Side {told(each)}." for each in found]
    case = f"{rows[0]['dataset']} on {where(rows[0], 'pes', 'dim')}"
    outcome = " ".join(f"{case}: {told(each)}." for each in found)
    return Part(f"Here: {_where(rows[0])}", " ".join([*sentences, *_conditions(rows)]), [grid], outcome=outcome)


def _conditions(rows: Rows) -> list[str]:
    found = []
    if over := sorted({row["side"] for row in rows if row["transport"] == "nccl"}):
        found.append(f"Over NCCL's grouped sends and receives: {', '.join(over)}; the others are one-sided.")
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

    shown: Columns = [
        (f"median time of a batch ({unit.name}); below it the fastest and the slowest launch", time),
        ("rows a second", lambda row: number(row["rows_per_s"])),
        (f"embeddings on the wire of a batch ({volume.name})", lambda row: within(row["bytes_wire_mean"], volume)),
        ("share of remote indices", lambda row: percent(row["remote_share"])),
    ]
    groups = [(heading, across(judged, "side", "batch", sizes, show)) for heading, show in shown]
    note = (
        "Marked: its slowest launch was faster than the fastest of every other side. alltoall_tables has whole tables "
        "on a PE: other indices are remote there, and one row a bag crosses for all of an owner's tables."
    )
    grid = Grid(f"{_where(first)}: samples of a batch", "side", [f"{size:,}" for size in sizes], groups, note)
    drawings = []
    if len(sizes) > 1:
        curves = dict(sorted(charts.series(rows, "side", "batch").items()))
        svg = charts.lines(curves, "samples of a batch", key, _where(first), "one batch")
        drawings.append(Drawing(svg, f"{_where(first)}: median time of a batch."))
    medians = _medians(rows)
    ordered = {side: medians[side] for side in sorted(medians, key=lambda side: side != "mgg")}
    sentences = [f"Side {told(each)}." for each in (crossovers(ordered) if ordered else [])]
    text = " ".join([f"Samples: {first['source']}.", *sentences, *_conditions(rows)])
    return Part(_where(first), text, [grid], drawings)
