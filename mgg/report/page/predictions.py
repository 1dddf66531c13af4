"""Predictions of the cost model for numbers of PEs that were not run: curves and tables, labelled as predictions."""

from __future__ import annotations

import json

from mgg.report.figures import charts
from mgg.report.page.parts import Cell, Drawing, Grid, Part, Section, across
from mgg.report.tables.compute import Row, Rows, group, where
from mgg.report.tables.numbers import count, listing, number, time_unit, within

#: Columns that predictions must share to be in one figure.
CASE = ("dataset", "graph_hash", "scheme", "model_machine", "network", "workgroup", "dtype", "dim", "links")


def section(tables: dict[str, Rows]) -> Section | None:
    """Return the section, with a part for each graph, machine and width; None without predictions."""
    rows = tables["predictions"]
    if not rows:
        return None
    parts = [_part(found, f"f{number_}") for number_, found in enumerate(group(rows, *CASE).values(), 1)]
    intro = (
        "Predicted, not measured: times by the cost model (docs/costs.md) for numbers of PEs that nothing here ran on, "
        "from how each graph splits and the links named below."
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
