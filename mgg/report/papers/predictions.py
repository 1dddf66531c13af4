"""Sections that compare the papers' figures and tables (``foreseen``) with the cost model's predictions."""

from __future__ import annotations

from statistics import geometric_mean

from mgg.report.figures import charts
from mgg.report.page.parts import Cell, Drawing, Grid, Part, Section
from mgg.report.page.predictions import CASE, links_text
from mgg.report.papers.catalogue import FORESEEN, Noted
from mgg.report.papers.kinds import Foreseen, Side
from mgg.report.tables.collect import canonical
from mgg.report.tables.compute import Row, Rows, graph_names, group
from mgg.report.tables.numbers import ABSENT, count, number


def sections(tables: dict[str, Rows], chosen: Noted) -> list[Section]:
    """Return a section for each (figure, note) in ``chosen``."""
    return [_section(tables, name, note) for name, note in chosen]


def _section(tables: dict[str, Rows], name: str, note: str) -> Section:
    shown = FORESEEN[name]
    names = graph_names(tables["graphs"])
    rows = [
        row
        for row in tables["predictions"]
        if any(_is(row, side) for side in shown.methods) and row["pes"] in _pes(shown, row["dataset"])
    ]
    papers = [row for row in rows if shown.means and row["dataset"] in shown.printed]
    parts = [_means(found, shown) for found in group(papers, *CASE[2:]).values()]
    parts += [
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


def _is(row: Row, side: Side) -> bool:
    """Return whether a prediction has the technique and options that represent a method of the paper."""
    return bool(row["technique"] == side.technique and row["options"] == canonical(side.options))


def _pes(shown: Foreseen, dataset: str) -> list[int]:
    """Return the paper's numbers of PEs; for a graph not in the paper, those of the others."""
    return list(shown.printed.get(dataset) or next(iter(shown.printed.values())))


def _columns(shown: Foreseen) -> list[str]:
    told = [[side.technique, *(f"{key}={value}" for key, value in side.options.items())] for side in shown.methods]
    return [f"{side.name} ({', '.join(words)})" for side, words in zip(shown.methods, told, strict=True)]


def _seconds(rows: Rows, shown: Foreseen) -> dict[tuple[str, int], float]:
    return {(side.name, row["pes"]): row["predicted_s"] for side in shown.methods for row in rows if _is(row, side)}


def _means(rows: Rows, shown: Foreseen) -> Part:
    """Show geometric means, over the paper's graphs, of each method's time over the paper's own."""
    graphs = [_seconds(found, shown) for found in group(rows, "dataset", "graph_hash").values()]
    own, lines = shown.methods[-1].name, []
    for pes, printed in shown.means.items():
        cells = []
        for side, theirs in zip(shown.methods, printed, strict=True):
            ratios = [at[side.name, pes] / at[own, pes] for at in graphs if (side.name, pes) in at and (own, pes) in at]
            mean = f"{number(geometric_mean(ratios))} x, {count(len(ratios), 'graph')}" if ratios else ABSENT
            cells.append(Cell(mean, f"paper {number(theirs)} x"))
        lines.append((count(pes, "PE"), cells))
    first = rows[0]
    grid = Grid(
        f"D = {first['dim']}: predicted time over that of {own}, geometric means over the graphs",
        "PEs",
        _columns(shown),
        [("predicted", lines)],
        f"Large: predicted here; small: what the paper prints, over its {count(len(shown.printed), 'graph')}.",
    )
    return Part(f"Means over the graphs, predicted for {first['model_machine']}", links_text(first), [grid])


def _part(rows: Rows, shown: Foreseen, name: str, key: str) -> Part:
    first = rows[0]
    printed = shown.printed.get(first["dataset"], {})
    at, own = _seconds(rows, shown), shown.methods[-1].name
    lines = []
    for pes in sorted({row["pes"] for row in rows}):
        cells = []
        for place, side in enumerate(shown.methods):
            seconds, base = at.get((side.name, pes)), at.get((own, pes))
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
        _columns(shown),
        [("predicted", lines)],
        "Large: predicted here; small: what the paper measured on its graph and machine.",
    )
    drawings = []
    if shown.curves and len(lines) > 1:
        series = {
            f"{method}, predicted": sorted((pes, seconds) for (each, pes), seconds in at.items() if each == method)
            for method in dict.fromkeys(each for each, _ in at)
        }
        svg = charts.lines(series, "PEs (predicted)", key, f"{name}, predicted")
        drawings.append(Drawing(svg, f"{name}, D = {first['dim']}: predicted, not measured."))
    return Part(f"{name}, predicted for {first['model_machine']}", links_text(first), [grid], drawings)
