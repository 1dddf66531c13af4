"""Properties of graphs, before and after rabbit order."""

from __future__ import annotations

from collections.abc import Callable

from mgg.report.page.parts import Cell, Columns, Part, Section, table
from mgg.report.tables.compute import Row, Rows
from mgg.report.tables.numbers import ABSENT, number, percent, quantity


def _counted(column: str) -> Callable[[Row], str]:
    return lambda row: ABSENT if row[column] is None else f"{row[column]:,}"


def _mean(what: str) -> Callable[[Row], Cell]:
    def cell(row: Row) -> Cell:
        mean, deviation = row[f"{what}_mean"], row[f"{what}_deviation"]
        return Cell(number(mean), "" if mean is None else f"± {number(deviation)}")

    return cell


def _in_rabbit_order(row: Row) -> Cell:
    known = row["communities"] is not None and row["span"]
    return Cell(number(row["span_rabbit"]), percent(row["span_rabbit"] / row["span"]) if known else "")


_COLUMNS: Columns = [
    ("order", lambda row: row["order"]),
    ("arcs of a row", _mean("degree")),
    ("most", _counted("degree_largest")),
    ("rows without arcs", _counted("empty_rows")),
    ("communities", _counted("communities")),
    ("nodes of one", _mean("community")),
    ("most", _counted("community_largest")),
    ("span", lambda row: number(row["span"])),
    ("span in rabbit order", _in_rabbit_order),
    ("the paper's test", lambda row: "renumber" if row["reorder_pays"] else "leave it"),
    ("rabbit order took", lambda row: ABSENT if row["rabbit_s"] is None else quantity(row["rabbit_s"])),
]


def section(tables: dict[str, Rows]) -> Section | None:
    """Return the section, one line per graph; None if no graph was described."""
    rows = tables["described"]
    if not rows:
        return None
    note = (
        "Behind ±: standard deviations. Communities: those that rabbit order finds at resolution 1. Span: the mean "
        "distance between the ids of an arc's ends, as the nodes are numbered, and in rabbit order with its share of "
        "the former; a random order of n nodes has about n / 3. The paper's test: sqrt(span) > floor(sqrt(n) / 100). "
        "Rabbit order: one core, the graph in memory."
    )
    caption = "What decides how a graph is aggregated"
    grid = table(caption, "graph", _COLUMNS, rows, "graph", note, words=["order"])
    intro = "By mgg describe: what GNNAdvisor (OSDI'21, section 3) extracts of a graph before it chooses."
    return Section("described", "What the graphs are like", intro, [Part("Graphs", "", [grid])])
