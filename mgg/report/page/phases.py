"""Breakdown of epoch times into aggregations, dense products, communication and the rest."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from markupsafe import Markup
from matplotlib.figure import Figure

from mgg.report.figures.svg import INK, SERIES, draw, horizontal
from mgg.report.page.parts import Cell, Columns, Drawing, Part, table
from mgg.report.tables.compute import NOT_NOTED, PHASES, Row, Rows, group, varied
from mgg.report.tables.numbers import count, percent, time_unit, within

_HATCHES = ["", "////", "....", "xx"]
_LONGEST = 34  # characters of a bar's name


def part(runs: Rows, key: str, name: str) -> Part | None:
    """Return the runs (of table training) of one graph with recorded phases; None if there are none."""
    found = _groups(runs)
    if not found:
        return None
    unit = time_unit([row["whole"] for row in found])
    gpus = any(run["device"] == "GPUs" for run in runs)
    note = "Communication: transfers and waits for other PEs." + (
        " On GPUs an aggregation hides its transfers behind arithmetic: they count there." if gpus else ""
    )

    def share(phase: str) -> Callable[[Row], Cell]:
        return lambda row: Cell(within(row[phase], unit), percent(row[phase] / row["whole"]))

    columns: Columns = [(f"epoch ({unit.name})", lambda row: within(row["whole"], unit))]
    columns += [(phase, share(phase)) for phase in PHASES]
    grid = table(f"{name}: median time of an epoch by phase, mean of the PEs", "run", columns, found, "name", note)
    told = [f"{row['name']}: " + ", ".join(f"{p} {percent(row[p] / row['whole'])}" for p in PHASES) for row in found]
    alt = f"Stacked bar chart: time of an epoch by phase, {name}. {'; '.join(told)}."
    bars = [(row["name"], [row[phase] / unit.size for phase in PHASES]) for row in found]
    svg = _stacked(bars, f"time of an epoch ({unit.name}), less is better", key, alt)
    caption = f"{name}: where the time of an epoch goes, evaluation included."
    return Part("Time by phase", "Runs of mgg train --phases.", [grid], [Drawing(svg, caption)])


def _groups(runs: Rows) -> Rows:
    """Return the median of each phase per model, technique, number of PEs and conditions."""
    rows: Rows = []
    counted = [run for run in runs if run["aggregate_s"] is not None]
    varying = varied(counted, "dtype", "device", "scheme")
    for (model, label, pes, *rest), found in group(counted, "model_label", "label", "pes", *varying).items():
        row: Row = {phase: statistics.median(run[f"{phase}_s"] for run in found) for phase in PHASES}
        name = ", ".join([model, label, count(pes, "PE"), *(what or NOT_NOTED for what in rest)])
        rows.append(row | {"name": name, "whole": sum(row.values())})
    return rows


def _stacked(bars: list[tuple[str, list[float]]], axis: str, key: str, alt: str) -> Markup:
    """Draw one bar per run with one segment per phase."""

    def plot(figure: Figure) -> None:
        axes = horizontal(figure, axis, 5)
        names = [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name, _ in bars]
        begin = [0.0] * len(bars)
        for place, phase in enumerate(PHASES):
            widths = [values[place] for _, values in bars]
            axes.barh(
                range(len(bars)), widths, left=begin, height=0.65, color=SERIES[place], hatch=_HATCHES[place],
                edgecolor=INK, linewidth=0.6, label=phase,
            )  # fmt: skip
            begin = [left + width for left, width in zip(begin, widths, strict=True)]
        axes.set_yticks(range(len(bars)), names)
        axes.set_ylim(len(bars) - 0.4, -0.6)
        figure.legend(loc="outside lower center", ncols=2)

    return draw(plot, key=key, alt=alt, height=1.2 + 0.28 * len(bars) + 0.18 * math.ceil(len(PHASES) / 2))
