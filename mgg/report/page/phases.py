"""Breakdown of epoch times into aggregations, dense products, communication and the rest."""

from __future__ import annotations

import statistics
from itertools import accumulate

from matplotlib.figure import Figure

from mgg.report.figures.charts import shorten
from mgg.report.figures.svg import INK, SERIES, draw, horizontal
from mgg.report.page.parts import Columns, Drawing, Part, table
from mgg.report.tables.compute import NOT_NOTED, PHASES, Rows, group, varied
from mgg.report.tables.numbers import count, percent, time_unit

_HATCHES = ["", "////", "....", "xx"]


def part(runs: Rows, name: str) -> Part | None:
    """Return the runs (of table training) of one graph with recorded phases; None if there are none."""
    rows = _medians(runs)
    if not rows:
        return None
    gpus = any(run["device"] == "GPUs" for run in runs)
    note = "Communication: transfers and waits for other PEs." + (
        " On GPUs an aggregation hides its transfers behind arithmetic: they count there." if gpus else ""
    )
    columns: Columns = [("epoch ({t})", "{whole:t}"), *((p, f"{{{p}:t}}\n{{shares[{p}]:%}}") for p in PHASES)]
    grid = table(f"{name}: median time of an epoch by phase, mean of the PEs", "run", columns, rows, "name", note)
    unit = time_unit([row["whole"] for row in rows])

    def plot(figure: Figure) -> None:
        figure.set_figheight(1.56 + 0.28 * len(rows))
        axes = horizontal(figure, f"time of an epoch ({unit.name}), less is better")
        for place, row in enumerate(rows):
            parts = [row[phase] / unit.size for phase in PHASES]
            axes.barh(
                place, parts, 0.65, [0.0, *accumulate(parts[:-1])], color=SERIES[: len(PHASES)], hatch=_HATCHES,
                edgecolor=INK, linewidth=0.6, label=PHASES if place == 0 else None,
            )  # fmt: skip
        axes.set_yticks(range(len(rows)), [shorten(row["name"], 34) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        figure.legend(loc="outside lower center", ncols=2)

    told = [f"{row['name']}: " + ", ".join(f"{p} {percent(row['shares'][p])}" for p in PHASES) for row in rows]
    svg = draw(plot, f"Stacked bar chart: time of an epoch by phase, {name}. {'; '.join(told)}.")
    caption = f"{name}: where the time of an epoch goes, evaluation included."
    return Part("Time by phase", "Runs of mgg train --phases.", [grid], [Drawing(svg, caption)])


def _medians(runs: Rows) -> Rows:
    """Return the median of each phase per model, technique, number of PEs and conditions, and their ``shares``."""
    rows: Rows = []
    counted = [run for run in runs if run["aggregate_s"] is not None]
    varying = varied(counted, "dtype", "device", "scheme")
    for (model, label, pes, *rest), found in group(counted, "model_label", "label", "pes", *varying).items():
        times = {phase: statistics.median(run[f"{phase}_s"] for run in found) for phase in PHASES}
        whole = sum(times.values())
        name = ", ".join([model, label, count(pes, "PE"), *(what or NOT_NOTED for what in rest)])
        rows.append({**times, "name": name, "whole": whole, "shares": {p: times[p] / whole for p in PHASES}})
    return rows
