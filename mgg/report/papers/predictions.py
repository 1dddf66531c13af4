"""Predictions of the cost model for numbers of PEs that were not run, alone and beside a paper's."""

from __future__ import annotations

import json
from statistics import geometric_mean
from typing import Any

from mgg.report.figures import charts
from mgg.report.page.parts import Drawing, Grid, Part, Section, chapter, grid, say
from mgg.report.papers.catalogue import FORESEEN
from mgg.report.papers.kinds import Foreseen
from mgg.report.tables.collect import canonical
from mgg.report.tables.compute import Row, Rows, group, where
from mgg.report.tables.numbers import ABSENT, count, number

#: Columns that predictions must share to be in one figure.
CASE = ("dataset", "graph_hash", "scheme", "model_machine", "network", "workgroup", "dtype", "dim", "links")


def section(tables: dict[str, Rows]) -> Section | None:
    """Return the section, with a part for each graph, machine and width; None without predictions."""
    return chapter("predictions", list(map(_part, group(tables["predictions"], *CASE).values())))


def _part(rows: Rows) -> Part:
    first, at = rows[0], where(rows[0], "graph", "dim")
    named = [row | {"label": _label(row["technique"], row["options"])} for row in rows]
    named.sort(key=lambda row: (row["technique"], row["options"]))
    table = grid("predicted", named, graph=first["graph"])
    text = f"{at}: predicted time of one aggregation over PEs. Nothing of it was measured."
    heading = f"{first['graph']}, predicted for {first['model_machine']}, D = {first['dim']}"
    return Part(heading, links_text(first), [table], _curves(named, at, text))


def _label(technique: str, options: str) -> str:
    told = ", ".join(f"{key}={value}" for key, value in json.loads(options).items())
    return f"{technique} ({told})" if told else technique


def _curves(rows: Rows, at: str, caption: str) -> list[Drawing]:
    """Draw predicted times over numbers of PEs, if there are several."""
    if len({row["pes"] for row in rows}) == 1:
        return []
    named = [row | {"label": f"{row['label']}, predicted"} for row in rows]
    svg = charts.curves(named, "label", "pes", "PEs (predicted)", f"{at}, predicted", value="predicted_s")
    return [Drawing(svg, caption)]


def links_text(row: Row) -> str:
    """Describe a prediction's links in words."""
    links = json.loads(row["links"])
    told = [
        f"{name} {number(link['bandwidth'] / 1e9)} GB/s and {number(link['latency'] * 1e6)} µs"
        + (f" ({number(link['message'] * 1e6)} µs a row)" if link["message"] else "")
        for name, link in links.items()
        if name == row["network"] or not name.startswith("infiniband")
    ]
    return say("links", row, told)


def foreseen(tables: dict[str, Rows], name: str, note: str) -> Section:
    """Return the section of a figure in ``FORESEEN``, with a remark or ""."""
    shown = FORESEEN[name]
    # A prediction represents a method if it has the technique and options.
    rows = [
        row | {"label": side.name, "place": place}
        for row in tables["predictions"]
        for place, side in enumerate(shown.methods)
        if (row["technique"], row["options"]) == (side.technique, canonical(side.options))
        and row["pes"] in (shown.printed.get(row["dataset"]) or next(iter(shown.printed.values())))
    ]
    papers = [row for row in rows if shown.means and row["dataset"] in shown.printed]
    parts = [_means(found, shown) for found in group(papers, *CASE[2:]).values()]
    parts += [_beside(found, shown) for found in group(rows, *CASE).values()]
    if not parts:
        parts.append(Part("No predictions", "The records of this report predict nothing of this figure."))
    if note:
        parts.append(Part("Remark", note))
    intro = (
        f"{shown.source}; the paper's machine: {shown.machine}. {shown.says} Here nothing was measured: these are "
        "predictions by the cost model (docs/concepts/costs.md), on generated graphs that stand for the paper's."
    )
    return Section(name, shown.title, intro, parts)


def _methods(name: str, shown: Foreseen, rows: Rows, **words: Any) -> Grid:
    names = []
    for side in shown.methods:
        told = [side.technique, *(f"{key}={value}" for key, value in side.options.items())]
        names.append(f"{side.name} ({', '.join(told)})")
    return grid(name, rows, at=names.__getitem__, **words)


def _over_own(rows: Rows, shown: Foreseen) -> dict[tuple[int, int], float]:
    """Return the time of each method, by its place and PEs, over that of the paper's own method."""
    at = {(row["place"], row["pes"]): row["predicted_s"] for row in rows}
    own = len(shown.methods) - 1
    return {(place, pes): time / at[own, pes] for (place, pes), time in at.items() if (own, pes) in at}


def _means(rows: Rows, shown: Foreseen) -> Part:
    """Show geometric means, over the paper's graphs, of each method's time over the paper's own."""
    graphs = [_over_own(found, shown) for found in group(rows, "graph").values()]
    lines: Rows = []
    for pes, printed in shown.means.items():
        for place, paper in enumerate(printed):
            ratios = [at[place, pes] for at in graphs if (place, pes) in at]
            mean = f"{number(geometric_mean(ratios))} x, {count(len(ratios), 'graph')}" if ratios else None
            lines.append({"pes": pes, "place": place, "mean": mean, "paper": paper})
    first, own = rows[0], shown.methods[-1].name
    words: dict[str, Any] = {"dim": first["dim"], "own": own, "graphs": count(len(shown.printed), "graph")}
    table = _methods("means_foreseen", shown, lines, **words)
    return Part(f"Means over the graphs, predicted for {first['model_machine']}", links_text(first), [table])


def _beside(rows: Rows, shown: Foreseen) -> Part:
    first, over, printed = rows[0], _over_own(rows, shown), shown.printed.get(rows[0]["dataset"], {})
    at = {(row["place"], row["pes"]): row["predicted_s"] for row in rows}
    lines = []
    for pes in sorted({row["pes"] for row in rows}):
        for place in range(len(shown.methods)):
            seconds, ratio, theirs = at.get((place, pes)), over.get((place, pes)), printed.get(pes)
            paper = f"paper {number(theirs[place])}, {number(theirs[place] / theirs[-1])} x" if theirs else None
            lines.append(
                {
                    "pes": pes, "place": place, "ms": seconds and seconds * 1e3, "paper": paper or "not in the paper",
                    "over": f"{number(ratio)} x" if ratio else ABSENT,
                }
            )  # fmt: skip
    where_ = where(first, "graph", "dim")
    table = _methods("foreseen", shown, lines, graph=where_)
    ordered = sorted(rows, key=lambda row: row["place"])
    drawings = _curves(ordered, first["graph"], f"{where_}: predicted, not measured.") if shown.curves else []
    return Part(f"{first['graph']}, predicted for {first['model_machine']}", links_text(first), [table], drawings)
