"""The sections on trainings: accuracy and cost, curves over epochs, and where the time of an epoch goes."""

from __future__ import annotations

import json
import statistics

from mgg.records import METRIC_NAMES
from mgg.report.figures import charts
from mgg.report.page.findings import ONE_LAUNCH
from mgg.report.page.parts import Drawing, Grid, Part, Section, grid, read
from mgg.report.tables.compute import ALIKE, NOT_NOTED, PHASES, Row, Rows, group, shared, varied
from mgg.report.tables.numbers import count, listing, percent, unit_of


def sections(tables: dict[str, Rows]) -> list[Section]:
    """Return a section for each graph that models were trained on."""
    epochs, found = group(tables["epochs"], "run"), []
    for index, ((name,), runs) in enumerate(group(tables["training"], "graph").items(), 1):
        rows = [row for row in tables["accuracy"] if row["graph"] == name]
        drawings: list[Drawing] = []
        for (label,), alike in group(runs, "model_label").items():
            points = {each: [e for run in some for e in epochs[run["run"],]] for each, some in _curves(alike).items()}
            drawings += _drawings(points, f"{label} on {name}", _metric(alike))
        told = [read("texts")["metrics"][metric] for metric in sorted({row["metric"] for row in runs})]
        chosen = sorted({json.loads(row["settings"]).get("selection", "validation") for row in runs})
        meaning = f"{'. '.join(told)}, at the {' or '.join(read('texts')['epochs'][each] for each in chosen)}."
        parts = [Part("Accuracy and curves", meaning, [_accuracy(rows, runs, name)], drawings)]
        counted = [run for run in runs if run["aggregate_s"] is not None]
        parts += [_phases(counted, name)] if counted else []
        found.append(Section(f"train-{index}", f"Training on {name}", "", parts))
    return found


def _metric(rows: Rows) -> str:
    return listing(sorted({METRIC_NAMES[row["metric"]] for row in rows}))


def _accuracy(rows: Rows, runs: Rows, name: str) -> Grid:
    metric, seeds = _metric(rows), any(row["seeds"] > 1 for row in rows)
    varying = varied(rows, "machine", "device", "dtype", "scheme")

    def told(row: Row) -> Row:
        alike = [run for run in runs if all(run[column] == row[column] for column in ALIKE)]
        at = f" ({', '.join(row[column] or NOT_NOTED for column in varying)})" if varying else ""
        beyond = f" (more than {shared([row])})" if shared([row]) else ""
        spread, lowest = "", None
        if row["test_deviation"] is not None:
            spread, lowest = f" ± {100 * row['test_deviation']:.1f}", row["test_min"]
        ends = {"lowest": lowest, "q1_s": min(run["q1_s"] for run in alike), "q3_s": max(run["q3_s"] for run in alike)}
        return row | ends | {"line": row["label"] + at, "many": f"{row['pes']}{beyond}", "spread": spread}

    note = f"Test {metric}: mean over seeds ± deviation. " if seeds else ""
    note += f"Small: quartiles of the epochs. {ONE_LAUNCH}"
    return grid("accuracy", list(map(told, rows)), graph=name, metric=metric, note=note)


def _named(runs: Rows, *columns: str) -> dict[str, Rows]:
    """Group runs by ``columns`` and the conditions that vary; names of groups have all of these."""
    columns = (*columns, "label", "pes", *varied(runs, "device", "dtype", "machine", "scheme"))
    names = [[count(row[c], "PE") if c == "pes" else row[c] or NOT_NOTED for c in columns] for row in runs]
    found = group([row | {"name": ", ".join(name)} for row, name in zip(runs, names, strict=True)], *columns)
    return {rows[0]["name"]: rows for rows in found.values()}


def _curves(runs: Rows) -> dict[str, Rows]:
    """Group runs into curves, one per technique and number of PEs, or per technique if that is too many."""
    fine = _named(runs)
    if len(fine) <= 6:
        return fine
    return {f"{label}, all numbers of PEs": found for (label,), found in group(runs, "label").items()}


def _drawings(points: dict[str, Rows], name: str, metric: str) -> list[Drawing]:
    several = any(len({row["run"] for row in rows}) > 1 for rows in points.values())
    hint = " Line: median of the runs; band: lowest to highest." if several else ""
    shown = {"loss": "training loss", "validation_loss": "validation loss"}
    shown["validation_accuracy"] = f"validation {metric}"
    # Runs without validation nodes have no curves of them.
    drawn = [(what, charts.training(points, column, what, name)) for column, what in shown.items()]
    return [Drawing(svg, f"{name}: {what}.{hint}") for what, svg in drawn if svg]


def _phases(runs: Rows, name: str) -> Part:
    """Show the medians of the phases of an epoch over ``runs`` (of table training) that are alike but for the seed."""
    rows: Rows = []
    for each, found in _named(runs, "model_label").items():
        times = {phase: statistics.median(run[f"{phase}_s"] for run in found) for phase in PHASES}
        whole = sum(times.values())
        rows.append({**times, "name": each, "whole": whole, "shares": {p: times[p] / whole for p in PHASES}})
    gpus = " On GPUs an aggregation hides its transfers behind arithmetic: they count there."
    table = grid("phases", rows, graph=name, gpus=gpus * any(run["device"] == "GPUs" for run in runs))
    caption = f"{name}: where the time of an epoch goes, evaluation included."
    unit = unit_of([row["whole"] for row in rows])
    told = [f"{row['name']}: " + ", ".join(f"{p} {percent(row['shares'][p])}" for p in PHASES) for row in rows]
    alt = f"Stacked bar chart: time of an epoch by phase, {name}. {'; '.join(told)}."
    drawn = [row | {phase: row[phase] / unit.size for phase in PHASES} for row in rows]
    svg = charts.stacked(drawn, PHASES, f"time of an epoch ({unit.name}), less is better", alt)
    return Part("Time by phase", "Runs of mgg train --phases.", [table], [Drawing(svg, caption)])
