"""Accuracy, and time to an accuracy, of trainings of one model by several sides (MGG, table 3)."""

from __future__ import annotations

from statistics import mean, median, stdev

from mgg.report.page.parts import Grid, Part, grid
from mgg.report.tables.compute import Rows, graph_names, group
from mgg.report.tables.numbers import count, percent

#: Columns that the runs of a line share but for the seed, and those that the lines of a table share.
_CASE = ("machine", "device", "dataset", "graph_hash", "model_label", "pes", "epochs_asked")


def parts(tables: dict[str, Rows], _: str, __: bool) -> list[Part]:
    """Return one part, a table per graph and model; empty if no two sides were trained alike."""
    names, epochs = graph_names(tables["graphs"]), group(tables["epochs"], "run")
    judged = [row for row in tables["training"] if row["validation_accuracy"] is not None]
    grids = []
    for runs in group(judged, *_CASE).values():
        sides = group(runs, "label")
        if len(sides) > 1:
            curves = {row["run"]: epochs[row["run"],] for row in runs}
            first = runs[0]
            graph = names[first["dataset"], first["graph_hash"]]
            where = f"{graph}, {first['model_label']}, {count(first['pes'], 'PE')}"
            grids.append(_grid(where, {label: found for (label,), found in sides.items()}, curves))
    text = (
        "The accuracy to reach is the lowest of the runs' best validation accuracies, so every run reaches it. Its "
        "time is the sum of the epochs up to the first that has it, evaluations on the whole graph included."
    )
    return [Part("Time to an accuracy", text, grids)] if grids else []


def _grid(where: str, sides: dict[str, Rows], curves: dict[int, Rows]) -> Grid:
    aim = min(max(epoch["validation_accuracy"] for epoch in curve) for curve in curves.values())
    lines = []
    for label, runs in sides.items():
        counts, seconds = zip(*(_until(curves[row["run"]], aim) for row in runs), strict=True)
        low, high = (min(seconds), max(seconds)) if len(runs) > 1 else (None, None)
        line = {"label": label, "accuracy": _mean(runs), "epochs": median(counts), "median_s": median(seconds)}
        lines.append(line | {"low_s": low, "high_s": high, "seeds": len(runs)})
    return grid("reached", lines, case=where, aim=percent(aim))


def _mean(runs: Rows) -> str:
    shares = [100 * row["test_accuracy"] for row in runs]
    return f"{mean(shares):.2f}" + (f" ± {stdev(shares):.2f}" if len(shares) > 1 else "")


def _until(curve: Rows, aim: float) -> tuple[int, float]:
    """Return the first epoch of at least the accuracy ``aim``, and the seconds up to its end."""
    seconds = 0.0
    for epoch in sorted(curve, key=lambda row: row["epoch"]):
        seconds += epoch["epoch_s"]
        if epoch["validation_accuracy"] >= aim:
            return epoch["epoch"], seconds
    raise AssertionError("the aim is the least of the best accuracies")
