"""Sections that compare the papers' figures and tables (``foreseen``) with the cost model's predictions."""

from __future__ import annotations

from statistics import geometric_mean

from mgg.report.figures import charts
from mgg.report.page.parts import Cell, Drawing, Grid, Line, Part, Section
from mgg.report.page.predictions import CASE, links_text
from mgg.report.papers.catalogue import FORESEEN, Noted
from mgg.report.papers.kinds import Foreseen
from mgg.report.tables.collect import canonical
from mgg.report.tables.compute import Rows, group, where
from mgg.report.tables.numbers import ABSENT, count, number


def sections(tables: dict[str, Rows], chosen: Noted) -> list[Section]:
    """Return a section for each (figure, note) in ``chosen``."""
    return [_section(tables, name, note) for name, note in chosen]


def _section(tables: dict[str, Rows], name: str, note: str) -> Section:
    shown = FORESEEN[name]
    # A prediction represents a method if it has the technique and options.
    rows = [
        {**row, "method": side.name, "place": place}
        for row in tables["predictions"]
        for place, side in enumerate(shown.methods)
        if (row["technique"], row["options"]) == (side.technique, canonical(side.options))
        and row["pes"] in _pes(shown, row["dataset"])
    ]
    papers = [row for row in rows if shown.means and row["dataset"] in shown.printed]
    parts = [_means(found, shown) for found in group(papers, *CASE[2:]).values()]
    parts += [_part(found, shown, f"{name}{index}") for index, found in enumerate(group(rows, *CASE).values(), 1)]
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
    """Return the paper's numbers of PEs; for a graph not in the paper, those of the others."""
    return list(shown.printed.get(dataset) or next(iter(shown.printed.values())))


def _grid(caption: str, shown: Foreseen, lines: list[Line], note: str) -> Grid:
    columns = []
    for side in shown.methods:
        told = [side.technique, *(f"{key}={value}" for key, value in side.options.items())]
        columns.append(f"{side.name} ({', '.join(told)})")
    return Grid(caption, "PEs", columns, [("predicted", lines)], note)


def _means(rows: Rows, shown: Foreseen) -> Part:
    """Show geometric means, over the paper's graphs, of each method's time over the paper's own."""
    graphs = [_seconds(found) for found in group(rows, "graph").values()]
    own, lines = shown.methods[-1].name, list[Line]()
    for pes, printed in shown.means.items():
        cells = []
        for side, theirs in zip(shown.methods, printed, strict=True):
            ratios = [at[side.name, pes] / at[own, pes] for at in graphs if (side.name, pes) in at and (own, pes) in at]
            mean = f"{number(geometric_mean(ratios))} x, {count(len(ratios), 'graph')}" if ratios else ABSENT
            cells.append(Cell(mean, f"paper {number(theirs)} x"))
        lines.append((count(pes, "PE"), cells))
    first = rows[0]
    caption = f"D = {first['dim']}: predicted time over that of {own}, geometric means over the graphs"
    note = f"Large: predicted here; small: what the paper prints, over its {count(len(shown.printed), 'graph')}."
    grid = _grid(caption, shown, lines, note)
    return Part(f"Means over the graphs, predicted for {first['model_machine']}", links_text(first), [grid])


def _part(rows: Rows, shown: Foreseen, key: str) -> Part:
    first, at, own = rows[0], _seconds(rows), shown.methods[-1].name
    name, printed = first["graph"], shown.printed.get(first["dataset"], {})
    lines: list[Line] = []
    for pes in sorted({row["pes"] for row in rows}):
        cells = []
        for place, side in enumerate(shown.methods):
            seconds, base, theirs = at.get((side.name, pes)), at.get((own, pes)), printed.get(pes)
            over = f"{number(seconds / base)} x" if seconds and base else ABSENT
            said = (
                f"paper {number(theirs[place])}, {number(theirs[place] / theirs[-1])} x"
                if theirs
                else "not in the paper"
            )
            cells.append(Cell(ABSENT if seconds is None else f"{number(seconds * 1e3)}, {over}", said))
        lines.append((count(pes, "PE"), cells))
    caption = f"{where(first, 'graph', 'dim')}: predicted milliseconds, and times CoLa"
    grid = _grid(
        caption, shown, lines, "Large: predicted here; small: what the paper measured on its graph and machine."
    )
    drawings = []
    if shown.curves and len(lines) > 1:
        named = [{**row, "curve": f"{row['method']}, predicted"} for row in sorted(rows, key=lambda row: row["place"])]
        series = charts.series(named, "curve", "pes", "predicted_s")
        svg = charts.lines(series, "PEs (predicted)", key, f"{name}, predicted")
        drawings.append(Drawing(svg, f"{where(first, 'graph', 'dim')}: predicted, not measured."))
    return Part(f"{name}, predicted for {first['model_machine']}", links_text(first), [grid], drawings)


def _seconds(rows: Rows) -> dict[tuple[str, int], float]:
    return {(row["method"], row["pes"]): row["predicted_s"] for row in rows}
