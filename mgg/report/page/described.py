"""Properties of graphs, before and after rabbit order."""

from __future__ import annotations

from mgg.report.page.parts import Cell, Grid, Part, Section
from mgg.report.tables.compute import Rows, graph_names
from mgg.report.tables.numbers import ABSENT, number, percent, quantity

_COLUMNS = (
    "order", "arcs of a row", "most", "rows without arcs", "communities", "nodes of one", "most", "span",
    "span in rabbit order", "the paper's test", "rabbit order took",
)  # fmt: skip


def section(tables: dict[str, Rows]) -> Section | None:
    """Return the section, one line per graph; None if no graph was described."""
    rows = tables["described"]
    if not rows:
        return None
    names, lines = graph_names(tables["graphs"]), []
    for row in rows:
        found = row["communities"] is not None
        cells = [
            Cell(row["order"]),
            Cell(number(row["degree_mean"]), f"± {number(row['degree_deviation'])}"),
            Cell(f"{row['degree_largest']:,}"),
            Cell(f"{row['empty_rows']:,}"),
            Cell(f"{row['communities']:,}" if found else ABSENT),
            Cell(number(row["community_mean"]), f"± {number(row['community_deviation'])}" if found else ""),
            Cell(f"{row['community_largest']:,}" if found else ABSENT),
            Cell(number(row["span"])),
            Cell(
                number(row["span_rabbit"]), percent(row["span_rabbit"] / row["span"]) if found and row["span"] else ""
            ),
            Cell("renumber" if row["reorder_pays"] else "leave it"),
            Cell(quantity(row["rabbit_s"]) if found else ABSENT),
        ]
        lines.append((names[row["dataset"], row["graph_hash"]], cells))
    note = (
        "Behind ±: standard deviations. Communities: those that rabbit order finds at resolution 1. Span: the mean "
        "distance between the ids of an arc's ends, as the nodes are numbered, and in rabbit order with its share of "
        "the former; a random order of n nodes has about n / 3. The paper's test: sqrt(span) > floor(sqrt(n) / 100). "
        "Rabbit order: one core, the graph in memory."
    )
    grid = Grid("What decides how a graph is aggregated", "graph", _COLUMNS, [("", lines)], note, words=("order",))
    intro = "By mgg describe: what GNNAdvisor (OSDI'21, section 3) extracts of a graph before it chooses."
    return Section("described", "What the graphs are like", intro, [Part("Graphs", "", [grid])])
