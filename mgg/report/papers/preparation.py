"""What products and epochs need: preparing a technique (MGG arXiv, table 4), renumbering a graph (CoLa), the epochs to
an accuracy (MGG, table 3).
"""

from __future__ import annotations

import json
import math
from statistics import mean, median, stdev
from typing import Any

from mgg.report.page.parts import Grid, Part, grid, say
from mgg.report.papers.catalogue import claimed_as
from mgg.report.papers.kinds import Preparation, Repaid
from mgg.report.tables.comparisons import timings
from mgg.report.tables.compute import SETTING, Rows, best, group, sound, where
from mgg.report.tables.numbers import count, number, percent


def parts(tables: dict[str, Rows], _: str, shown: Preparation) -> list[Part]:
    """Return one part, a line per graph and width; empty if no pair of sides was measured."""
    rows = _pairs(tables["aggregate"], shown)
    if not rows:
        return []
    table = grid("preparing", rows, subject=shown.subject.name, rival=shown.rival.name)
    ours = [row["over"]["prepare_s"] for row in rows]
    theirs = [row["papers"]["prepare_s"] for row in rows if row["papers"]]
    told = say("prepared", shown, ours, theirs, max(row["pair"][1]["prepare_s"] for row in rows))
    return [Part("Preparing beside products", told, [table], outcome=told)]


def _pairs(aggregate: Rows, shown: Preparation) -> Rows:
    """Return the fastest timing of the subject for settings that differ only in technique, and as ``pair`` both sides'.

    ``over`` has the rival's over the subject's times; ``paper`` and ``papers`` are the same of the paper, None if it
    has none.
    """
    rows, pairs = [row for row in sound(aggregate) if row["prepare_s"] is not None], []
    for found in group(rows, *SETTING, "dim", "pes").values():
        sides = [timings(side, found) for side in (shown.subject, shown.rival)]
        if all(sides):
            mine, other = pair = [best(side) for side in sides]
            over = {column: other[column] / mine[column] if mine[column] else None for column in _TIMES}
            paper = shown.printed.get(claimed_as(mine["dataset"]))
            papers = {"prepare_s": paper[1] / paper[0], "median_s": paper[3] / paper[2]} if paper else None
            pairs.append({**mine, "pair": pair, "over": over, "paper": paper, "papers": papers})
    return pairs


_TIMES = ("prepare_s", "median_s")
ENDINGS = ("-shuffled", "-reordered")
#: Columns that two runs must share to be compared; their graphs differ in order.
_RUN = (
    "stem", "machine", "device", "dtype", "scheme", "model", "settings", "weights", "pes", "seed", "epochs_asked",
)  # fmt: skip


def renumbering(tables: dict[str, Rows], _: str, shown: Repaid) -> list[Part]:
    """Return one part, a line per graph, model and number of PEs; empty if no pair of orders was measured."""
    rows = _renumbered(tables, shown)
    if not rows:
        return []
    known = [row for row in rows if row["renumber_s"] is not None]
    share = mean(row["times"][shown.of] for row in known) if known else 0.0
    repaid = [row["repaid"] for row in known if row["repaid"]]
    told = say("renumbered", known, share, shown.of, shown.claim, repaid)
    return [Part("The cost of renumbering", told, [grid("renumbering", rows)], outcome=told)]


def _renumbered(tables: dict[str, Rows], shown: Repaid) -> Rows:
    """Return runs on renumbered nodes that have a like run on shuffled ones.

    They have the other's epoch as ``shuffled_s``; ``renumber_s``, the time to renumber, None if unknown; ``times``, it
    over that of an epoch and of the training, and ``shares``, these in words; ``repaid``, the epochs until it is
    repaid, None for never, and ``after``, these in words.
    """
    seconds = {
        json.loads(row["wildcards"])["dataset"]: row["ran_s"] for row in tables["jobs"] if row["rule"] == "order"
    }
    runs = [
        row | {"stem": row["dataset"].removesuffix(ending), "ending": ending, "seeded": f"seed {row['seed']}"}
        for row in timings(shown.side, tables["training"])
        for ending in ENDINGS
        if row["dataset"].endswith(ending)
    ]
    rows = []
    for found in group(runs, *_RUN).values():
        before, after = ({row["ending"]: row for row in found}.get(ending) for ending in ENDINGS)
        if before and after:
            took, saved = seconds.get(after["dataset"]), before["median_s"] - after["median_s"]
            row = after | {"shuffled_s": before["median_s"], "renumber_s": took}
            row |= dict.fromkeys(("times", "shares", "of", "repaid", "after"))
            if took is not None:
                times = {"epoch": took / after["median_s"], "training": took / (after["median_s"] * after["epochs"])}
                shares = {of: percent(each) if each < 1 else f"{number(each)} x" for of, each in times.items()}
                row |= {"times": times, "shares": shares}
                row["of"] = count(after["epochs"], "epoch")
                row["repaid"] = math.ceil(took / saved) if saved > 0 else None
                row["after"] = count(row["repaid"], "epoch") if row["repaid"] else "never"
            rows.append(row)
    return rows


#: Columns that the runs of a line share but for the seed, and those that the lines of a table share.
_LINE = ("machine", "device", "dataset", "graph_hash", "model_label", "pes", "epochs_asked")


def reached(tables: dict[str, Rows], _: str, __: bool) -> list[Part]:
    """Return one part, a table per graph and model; empty if no two sides were trained alike."""
    epochs = group(tables["epochs"], "run")
    judged = [row for row in tables["training"] if row["validation_accuracy"] is not None]
    grids = []
    for runs in group(judged, *_LINE).values():
        sides = group(runs, "label")
        if len(sides) > 1:
            curves = {row["run"]: epochs[row["run"],] for row in runs}
            grids.append(_times(where(runs[0], "graph", "model_label", "pes"), sides, curves))
    return [Part("Time to an accuracy", say("reached"), grids)] if grids else []


def _times(case: str, sides: dict[tuple[Any, ...], Rows], curves: dict[int, Rows]) -> Grid:
    aim = min(max(epoch["validation_accuracy"] for epoch in curve) for curve in curves.values())
    lines = []
    for (label,), runs in sides.items():
        shares = [100 * row["test_accuracy"] for row in runs]
        told = f"{mean(shares):.2f}" + (f" ± {stdev(shares):.2f}" if len(shares) > 1 else "")
        counts, seconds = zip(*(_until(curves[row["run"]], aim) for row in runs), strict=True)
        low, high = (min(seconds), max(seconds)) if len(runs) > 1 else (None, None)
        line = {"label": label, "accuracy": told, "epochs": median(counts), "median_s": median(seconds)}
        lines.append(line | {"low_s": low, "high_s": high, "seeds": len(runs)})
    return grid("reached", lines, case=case, aim=percent(aim))


def _until(curve: Rows, aim: float) -> tuple[int, float]:
    """Return the first epoch of at least the accuracy ``aim``, and the seconds up to its end."""
    seconds = 0.0
    for epoch in sorted(curve, key=lambda row: row["epoch"]):
        seconds += epoch["epoch_s"]
        if epoch["validation_accuracy"] >= aim:
            return epoch["epoch"], seconds
    raise AssertionError("the aim is the least of the best accuracies")
