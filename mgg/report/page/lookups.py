"""Embedding lookups: every side by batch size, and the points where one side overtakes another."""

from __future__ import annotations

from dataclasses import replace

from mgg.records.lookup import crossover, crossovers, told
from mgg.report.figures import charts
from mgg.report.page.parts import Cell, Drawing, Part, Section, chapter, grid, say
from mgg.report.papers.kinds import LookedUp
from mgg.report.papers.verdicts import remarks
from mgg.report.tables import spread
from mgg.report.tables.compute import WRONG, Row, Rows, group, sound, where
from mgg.report.tables.numbers import Filled, number, sentences

#: Columns that sides and batch sizes must share to be in one table.
CASE = ("machine", "dataset", "samples_hash", "device", "dim", "pes")
#: What is shown of each side by batch size.
_MEASURES = {
    "median time of a batch ({t}); below it the fastest and the slowest launch": (
        "{median_s:t}\n{low_s:t} to {high_s:t}{wrong}"
    ),
    "rows a second": "{rows_per_s:n}",
    "embeddings on the wire of a batch ({b})": "{bytes_wire_mean:b}",
    "share of remote indices": "{remote_share:%}",
}


def section(tables: dict[str, Rows]) -> Section | None:
    """Return the section, with a part for each data set, machine, width and number of PEs; None without lookups."""
    return chapter("lookups", [_part(found) for found in group(tables["lookups"], *CASE).values()])


def parts(tables: dict[str, Rows], _: str, shown: LookedUp) -> list[Part]:
    """Return the paper's comparison, with a part for each case in which the subject and a rival were measured."""
    found = [part for rows in group(tables["lookups"], *CASE).values() if (part := _against(rows, shown))]
    if found:
        mine, theirs = shown.printed
        outcome = f"{found[-1].outcome} The paper: {number(theirs / mine)} times."
        found[-1] = replace(found[-1], outcome=outcome)
    return found


def _where(row: Row) -> str:
    return f"{where(row, 'dataset', 'dim', 'pes')} ({row['device']}, machine {row['machine']})"


def _against(rows: Rows, shown: LookedUp) -> Part | None:
    times, subject = charts.series(sound(rows), "side", "batch"), shown.subject
    mine = times.get(subject, {})
    against = [crossover(subject, mine, each, times[each]) for each in shown.rivals if mine and each in times]
    found = [each for each in against if each.ratios]
    if not found:
        return None
    columns: dict[str, str] = {subject: f"{{{subject}:t}}"}
    for each in found:
        columns[each.against] = f"{{{each.against}:t}}"
        columns[f"{each.against} / {subject}"] = f"{{over {each.against}:n}}"
    lines = [
        {"batch": f"{size:,}", "group": "here"}
        | {side: at.get(size) for side, at in times.items()}
        | {f"over {each.against}": each.ratios.get(size) for each in found}
        for size in sorted(mine)
    ]
    table, (ours, theirs) = grid("looked_up", lines, columns, case=_where(rows[0]), subject=subject), shown.printed
    paper = [Cell(f"{ours:g} ms"), *[Cell(f"{theirs:g} ms"), Cell(number(theirs / ours))] * len(found)]
    table = replace(table, groups=[*table.groups, ("the paper, batch size unknown", [("", paper)])])
    told_ = [f"Side {told(each)}." for each in found]
    case = f"{rows[0]['dataset']} on {where(rows[0], 'pes', 'dim')}"
    outcome = " ".join(f"{case}: {told(each)}." for each in found)
    intro = sentences(*told_, say("transports", rows), remarks([], rows))
    return Part(f"Here: {_where(rows[0])}", intro, [table], outcome=outcome)


def _part(rows: Rows) -> Part:
    at = _where(rows[0])
    judged = [{**row, "label": row["side"], "starred": False, "wrong": WRONG[row["check"]]} for row in rows]
    for found in group(sound(judged), "batch").values():
        if len(found) > 1:
            spread.judge(found)
    filled, lines = Filled(judged, *_MEASURES.values()), []
    for place, (measure, show) in enumerate(_MEASURES.items()):
        text, _, small = show.partition("\n")
        for row in sorted(judged, key=lambda row: row["side"]):
            cell = {"measure": filled.said(measure), "shown": filled(text, row), "small": filled(small, row)}
            lines.append(row | cell | {"place": place, "starred": row["starred"] and not place})
    drawings = []
    if len({row["batch"] for row in rows}) > 1:
        svg = charts.curves(lines[: len(rows)], "side", "batch", "samples of a batch", at, what="one batch")
        drawings.append(Drawing(svg, f"{at}: median time of a batch."))
    medians = charts.series(sound(rows), "side", "batch")
    ordered = {side: medians[side] for side in sorted(medians, key=lambda side: side != "mgg")}
    told_ = [f"Side {told(each)}." for each in (crossovers(ordered) if ordered else [])]
    text = sentences(f"Samples: {rows[0]['source']}.", *told_, say("transports", rows), remarks([], rows))
    return Part(at, text, [grid("lookups", lines, case=at)], drawings)
