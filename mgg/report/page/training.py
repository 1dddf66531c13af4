"""The sections on trainings: accuracy and cost, curves over epochs, and where the time of an epoch goes."""

from __future__ import annotations

import json

from mgg.record import METRIC_NAMES
from mgg.report.figures import charts
from mgg.report.page import phases
from mgg.report.page.findings import ONE_LAUNCH
from mgg.report.page.parts import Columns, Drawing, Grid, Part, Section, table
from mgg.report.tables.compute import ALIKE, NOT_NOTED, Row, Rows, group, shared, varied
from mgg.report.tables.numbers import count, listing

_MEANINGS = {
    "accuracy": "Accuracy is the share of nodes put into the right class",
    "micro_f1": "Micro-F1 is that of all yes-or-no labels of the nodes together",
    "roc_auc": "ROC-AUC is the mean over the yes-or-no labels of the nodes",
}
#: For each value of setting selection, the epoch that counts.
_EPOCHS = {
    "validation": "epoch with the best validation score",
    "validation_loss": "epoch with the least validation loss",
    "last": "last epoch",
}


def sections(tables: dict[str, Rows]) -> list[Section]:
    """Return a section for each graph that models were trained on."""
    epochs, found = group(tables["epochs"], "run"), []
    for index, ((name,), runs) in enumerate(group(tables["training"], "graph").items(), 1):
        rows = [row for row in tables["accuracy"] if row["graph"] == name]
        drawings: list[Drawing] = []
        for (label,), alike in group(runs, "model_label").items():
            points = {each: [e for run in some for e in epochs[run["run"],]] for each, some in _curves(alike).items()}
            drawings += _drawings(points, f"{label} on {name}", _metric(alike))
        parts = [Part("Accuracy and curves", _meaning(runs), [_accuracy(rows, runs, name)], drawings)]
        if by_phase := phases.part(runs, name):
            parts.append(by_phase)
        found.append(Section(f"train-{index}", f"Training on {name}", "", parts))
    return found


def _metric(rows: Rows) -> str:
    return listing(sorted({METRIC_NAMES[row["metric"]] for row in rows}))


def _meaning(runs: Rows) -> str:
    told = [_MEANINGS[metric] for metric in sorted({row["metric"] for row in runs})]
    chosen = sorted({json.loads(row["settings"]).get("selection", "validation") for row in runs})
    return f"{'. '.join(told)}, at the {' or '.join(_EPOCHS[each] for each in chosen)}."


def _accuracy(rows: Rows, runs: Rows, name: str) -> Grid:
    metric, seeds = _metric(rows), any(row["seeds"] > 1 for row in rows)
    varying = varied(rows, "machine", "device", "dtype", "scheme")

    def told(row: Row) -> Row:
        alike = [run for run in runs if all(run[column] == row[column] for column in ALIKE)]
        at = f" ({', '.join(row[column] or NOT_NOTED for column in varying)})" if varying else ""
        beyond = f" (more than {shared([row])})" if shared([row]) else ""
        spread = None if row["test_deviation"] is None else f" ± {100 * row['test_deviation']:.1f}"
        ends = {"q1_s": min(run["q1_s"] for run in alike), "q3_s": max(run["q3_s"] for run in alike)}
        return row | ends | {"line": row["label"] + at, "many": f"{row['pes']}{beyond}", "spread": spread or ""}

    columns: Columns = [
        ("PEs", "{many}"),
        (f"test {metric} (%)", "{test_mean:bare}{spread}"),
        *[("lowest to highest", "{test_min:bare} to {test_max:bare}")] * seeds,
        ("validation", "{validation_mean:bare}"),
        ("training", "{train_mean:bare}"),
        ("seeds", "{seeds}"),
        ("time per epoch ({t})", "{epoch_s:t}\n{q1_s:t}\N{EN DASH}{q3_s:t}"),
        ("bytes per epoch ({b})", "{bytes_wire:b}"),
        *[("GPU memory ({b2})", "{gpu_memory_bytes:b2}")] * any(row["gpu_memory_bytes"] is not None for row in rows),
    ]
    note = f"Test {metric}: mean over seeds ± deviation. " if seeds else ""
    note += f"Small: quartiles of the epochs. {ONE_LAUNCH}"
    return table(
        f"{name}: {metric} at the epoch that counts, and cost", "technique", columns, list(map(told, rows)), "line",
        note, by=["model_label"], heading="model {model_label}".format_map,
    )  # fmt: skip


def _curves(runs: Rows) -> dict[str, Rows]:
    """Group runs into curves, one per technique and number of PEs, or per technique if that is too many."""
    varying = varied(runs, "device", "dtype", "machine", "scheme")
    fine: dict[str, Rows] = {}
    for (label, pes, *rest), found in group(runs, "label", "pes", *varying).items():
        fine[", ".join([label, count(pes, "PE"), *(what or NOT_NOTED for what in rest)])] = found
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
