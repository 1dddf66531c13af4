"""Sections of the report: figures and tables of papers (``foreseen``) beside the predictions of the cost model."""

from __future__ import annotations

from markupsafe import Markup

from mgg.report import figures
from mgg.report.foreseen import FORESEEN, Foreseen, Noted
from mgg.report.numbers import ABSENT, count, number
from mgg.report.parts import Cell, Drawing, Grid, Part, Section
from mgg.report.predictions import CASE, links_text
from mgg.report.tables import Rows, graph_names, group


def sections(tables: dict[str, Rows], chosen: Noted) -> list[Section]:
    """A section for each (figure, note) of ``chosen``."""
    return [_section(tables, name, note) for name, note in chosen]


def _section(tables: dict[str, Rows], name: str, note: str) -> Section:
    shown = FORESEEN[name]
    names = graph_names(tables["graphs"])
    rows = [
        row
        for row in tables["predictions"]
        if row["technique"] in shown.methods.values() and row["pes"] in _pes(shown, row["dataset"])
    ]
    parts = [
        _part(found, shown, names[found[0]["dataset"], found[0]["graph_hash"]], f"{name}{number_}")
        for number_, found in enumerate(group(rows, *CASE).values(), 1)
    ]
    if not parts:
        parts.append(Part("No predictions", "The records of this report predict nothing of this figure."))
    if note:
        parts.append(Part("Remark", note))
    intro = (
        f"{shown.source}; the paper's machine: {shown.machine}. {shown.says} Here nothing was measured: these are "
        "predictions by the cost model (docs/costs.md), on generated graphs that stand for the paper's."
    )
    return Section(name, shown.title, intro, parts)


def _pes(shown: Foreseen, dataset: str) -> list[int]:
    """The numbers of PEs that the paper has; for a graph that it does not have, those of the others."""
    return list(shown.printed.get(dataset) or next(iter(shown.printed.values())))


def _part(rows: Rows, shown: Foreseen, name: str, key: str) -> Part:
    first = rows[0]
    printed = shown.printed.get(first["dataset"], {})
    at = {(row["technique"], row["pes"]): row["seconds"] for row in rows}
    own = list(shown.methods.values())[-1]
    lines = []
    for pes in sorted({row["pes"] for row in rows}):
        cells = []
        for place, technique in enumerate(shown.methods.values()):
            seconds, base = at.get((technique, pes)), at.get((own, pes))
            over = f"{number(seconds / base)} x" if seconds and base else ABSENT
            theirs = printed.get(pes)
            said = (
                f"paper {number(theirs[place])}, {number(theirs[place] / theirs[-1])} x"
                if theirs
                else "not in the paper"
            )
            cells.append(Cell(ABSENT if seconds is None else f"{number(seconds * 1e3)}, {over}", said))
        lines.append((count(pes, "PE"), cells))
    grid = Grid(
        f"{name}, D = {first['dim']}: predicted milliseconds, and times CoLa",
        "PEs",
        [f"{method} ({technique})" for method, technique in shown.methods.items()],
        [("predicted", lines)],
        "Large: predicted here; small: what the paper measured on its graph and machine.",
    )
    drawings = []
    if shown.curves and len(lines) > 1:
        series = {
            f"{method}, predicted": sorted((pes, seconds) for (each, pes), seconds in at.items() if each == technique)
            for method, technique in shown.methods.items()
            if any(each == technique for each, _ in at)
        }
        svg = figures.lines(series, "PEs (predicted)", key, f"{name}, predicted")
        drawings.append(Drawing(Markup(svg), f"{name}, D = {first['dim']}: predicted, not measured."))
    return Part(f"{name}, predicted for {first['model_machine']}", links_text(first), [grid], drawings)
