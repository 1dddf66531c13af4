"""Predictions of the cost model for numbers of PEs that were not run, alone and beside a paper's."""

from __future__ import annotations

import json
from statistics import geometric_mean

from mgg.report.figures import charts
from mgg.report.page.parts import Cell, Drawing, Grid, Line, Part, Section, across
from mgg.report.papers.catalogue import FORESEEN, Noted
from mgg.report.papers.kinds import Foreseen
from mgg.report.tables.collect import canonical
from mgg.report.tables.compute import Row, Rows, group, where
from mgg.report.tables.numbers import ABSENT, count, listing, number, time_unit, within

#: Columns that predictions must share to be in one figure.
CASE = ("dataset", "graph_hash", "scheme", "model_machine", "network", "workgroup", "dtype", "dim", "links")


def section(tables: dict[str, Rows]) -> Section | None:
    """Return the section, with a part for each graph, machine and width; None without predictions."""
    rows = tables["predictions"]
    if not rows:
        return None
    parts = [_part(found, f"f{number_}") for number_, found in enumerate(group(rows, *CASE).values(), 1)]
    intro = (
        "Predicted, not measured: times by the cost model (docs/concepts/costs.md) for numbers of PEs that nothing "
        "here ran on, from how each graph splits and the links named below."
    )
    return Section("predictions", "Predictions", intro, parts)


def _part(rows: Rows, key: str) -> Part:
    first, at = rows[0], where(rows[0], "graph", "dim")
    ordered = sorted(rows, key=lambda row: (row["technique"], row["options"]))
    drawings = []
    if len({row["pes"] for row in rows}) > 1:
        series = charts.series(
            [{**row, "curve": f"{_label(row)}, predicted"} for row in ordered], "curve", "pes", "predicted_s"
        )
        svg = charts.lines(series, "PEs (predicted)", key, f"{at}, predicted")
        text = f"{at}: predicted time of one aggregation over PEs. Nothing of it was measured."
        drawings.append(Drawing(svg, text))
    heading = f"{first['graph']}, predicted for {first['model_machine']}, D = {first['dim']}"
    return Part(heading, links_text(first), [_grid(ordered)], drawings)


def _label(row: Row) -> str:
    """Return a prediction's technique and its non-default options."""
    options = ", ".join(f"{key}={value}" for key, value in json.loads(row["options"]).items())
    return f"{row['technique']} ({options})" if options else str(row["technique"])


def _grid(rows: Rows) -> Grid:
    """Return predicted times, one row per technique and options, one column per number of PEs."""
    unit = time_unit([row["predicted_s"] for row in rows])
    pes = sorted({row["pes"] for row in rows})

    def cell(row: Row) -> Cell:
        return Cell(within(row["predicted_s"], unit), f"transfer {within(row['transfer_s'], unit)}", row["chosen"])

    lines = across(rows, _label, "pes", pes, cell)
    note = (
        "Below each time that of the transfers, some of which goes on beside arithmetic. Marked: what auto would pick."
    )
    caption = f"{rows[0]['graph']}: predicted time of one aggregation ({unit.name})"
    return Grid(caption, "technique", [count(p, "PE") for p in pes], [("predicted", lines)], note)


def links_text(row: Row) -> str:
    """Describe a prediction's links in words."""
    links = json.loads(row["links"])
    told = [
        f"{name} {number(link['bandwidth'] / 1e9)} GB/s and {number(link['latency'] * 1e6)} µs"
        + (f" ({number(link['message'] * 1e6)} µs a row)" if link["message"] else "")
        for name, link in links.items()
        if name == row["network"] or not name.startswith("infiniband")
    ]
    return (
        f"Workgroups of {count(row['workgroup'], 'PE')}, joined by {row['network']}; {row['dtype']}, partition scheme "
        f"{row['scheme']}. Constants of {row['model_machine']}: {row['basis']}. Links: {listing(told, 12)}."
    )


def sections(tables: dict[str, Rows], chosen: Noted) -> list[Section]:
    """Return a section for each (figure, note) in ``chosen``."""
    return [_foreseen(tables, name, note) for name, note in chosen]


def _foreseen(tables: dict[str, Rows], name: str, note: str) -> Section:
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
    parts += [_beside(found, shown, f"{name}{index}") for index, found in enumerate(group(rows, *CASE).values(), 1)]
    if not parts:
        parts.append(Part("No predictions", "The records of this report predict nothing of this figure."))
    if note:
        parts.append(Part("Remark", note))
    intro = (
        f"{shown.source}; the paper's machine: {shown.machine}. {shown.says} Here nothing was measured: these are "
        "predictions by the cost model (docs/concepts/costs.md), on generated graphs that stand for the paper's."
    )
    return Section(name, shown.title, intro, parts)


def _pes(shown: Foreseen, dataset: str) -> list[int]:
    """Return the paper's numbers of PEs; for a graph not in the paper, those of the others."""
    return list(shown.printed.get(dataset) or next(iter(shown.printed.values())))


def _methods(caption: str, shown: Foreseen, lines: list[Line], note: str) -> Grid:
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
    grid = _methods(caption, shown, lines, note)
    return Part(f"Means over the graphs, predicted for {first['model_machine']}", links_text(first), [grid])


def _beside(rows: Rows, shown: Foreseen, key: str) -> Part:
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
    grid = _methods(
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
