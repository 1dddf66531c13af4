"""Time to renumber a graph, compared with the epochs that it shortens."""

from __future__ import annotations

import json
import math
from statistics import mean

from mgg.report.page.parts import Cell, Columns, Part, table
from mgg.report.papers.kinds import Repaid
from mgg.report.tables.comparisons import timings
from mgg.report.tables.compute import Row, Rows, group, where
from mgg.report.tables.numbers import ABSENT, count, number, percent, quantity, time_unit, within

ENDINGS = ("-shuffled", "-reordered")
#: Columns that two runs must share to be compared; their graphs differ in order.
_RUN = (
    "stem", "machine", "device", "dtype", "scheme", "model", "settings", "weights", "pes", "seed", "epochs_asked",
)  # fmt: skip


def parts(tables: dict[str, Rows], _: str, shown: Repaid) -> list[Part]:
    """Return one part, a line per graph, model and number of PEs; empty if no pair of orders was measured."""
    rows = _pairs(tables, shown)
    if not rows:
        return []
    unit = time_unit([median for row in rows for median in (row["shuffled_s"], row["median_s"])])
    columns: Columns = [
        ("renumbering", lambda row: ABSENT if row["renumber_s"] is None else quantity(row["renumber_s"])),
        (f"epoch, shuffled ({unit.name})", lambda row: within(row["shuffled_s"], unit)),
        (f"epoch, renumbered ({unit.name})", lambda row: within(row["median_s"], unit)),
        ("of one epoch", lambda row: _share(row, 1)),
        ("of the training", lambda row: _share(row, row["epochs"], count(row["epochs"], "epoch"))),
        ("repaid after", _repaid),
    ]
    note = (
        "Renumbering: the job that reads the shards, finds the order and writes them anew, start of its program "
        "included; it takes no GPU. Epochs: medians, slowest PE. Of an epoch, of the training: renumbering over the "
        "time of a renumbered epoch, and of all of them. Repaid after: renumbering over what an epoch is shorter by."
    )
    grid = table(
        "Renumbering and the epochs that repay it",
        "graph",
        columns,
        rows,
        lambda row: f"{where(row, 'stem', 'model', 'pes')}, seed {row['seed']}",
        note,
        by=["machine", "device"],
        heading=lambda row: where(row, "machine", "device"),
    )
    told = _told(rows, shown)
    return [Part("The cost of renumbering", told, [grid], outcome=told)]


def _pairs(tables: dict[str, Rows], shown: Repaid) -> Rows:
    """Return runs on renumbered nodes that have a like run on shuffled ones.

    They have the other's epoch as ``shuffled_s``; ``renumber_s``, the time to renumber, None if unknown; and
    ``repaid``, the epochs until it is repaid, None for never.
    """
    seconds = {
        json.loads(row["wildcards"])["dataset"]: row["ran_s"] for row in tables["jobs"] if row["rule"] == "order"
    }
    runs = [
        {**row, "stem": row["dataset"].removesuffix(ending), "ending": ending}
        for row in timings(shown.side, tables["training"])
        for ending in ENDINGS
        if row["dataset"].endswith(ending)
    ]
    rows = []
    for found in group(runs, *_RUN).values():
        before, after = ({row["ending"]: row for row in found}.get(ending) for ending in ENDINGS)
        if before and after:
            took, saved = seconds.get(after["dataset"]), before["median_s"] - after["median_s"]
            repaid = math.ceil(took / saved) if took is not None and saved > 0 else None
            rows.append({**after, "shuffled_s": before["median_s"], "renumber_s": took, "repaid": repaid})
    return rows


def _share(row: Row, epochs: int, small: str = "") -> Cell:
    """Show the time to renumber over that of ``epochs``."""
    if row["renumber_s"] is None:
        return Cell(ABSENT)
    share = row["renumber_s"] / (row["median_s"] * epochs)
    return Cell(percent(share) if share < 1 else f"{number(share)} x", small)


def _repaid(row: Row) -> str:
    if row["renumber_s"] is None:
        return ABSENT
    return "never" if row["repaid"] is None else count(row["repaid"], "epoch")


def _told(rows: Rows, shown: Repaid) -> str:
    """Say what share renumbering takes and when it is repaid."""
    known = [row for row in rows if row["renumber_s"] is not None]
    if not known:
        return "How long renumbering took is not known: no record of the workflow's jobs came with these runs."
    one = shown.of == "epoch"
    share = mean(row["renumber_s"] / (row["median_s"] * (1 if one else row["epochs"])) for row in known)
    against = "one renumbered epoch" if one else "the renumbered epochs of a training"
    over = f"the mean of {len(known)} cases" if len(known) > 1 else "one case"
    much = f"{percent(share)} of the time of" if share < 1 else f"{number(share)} times as long as"
    text = f"Renumbering took {much} {against} ({over}; paper's average {100 * shown.claim:.2f} %)"
    epochs = [row["repaid"] for row in known if row["repaid"] is not None]
    if epochs:
        low, high = min(epochs), max(epochs)
        text += f". It is repaid after {f'{low:,} to ' if low < high else ''}{count(high, 'epoch')}"
    if never := len(known) - len(epochs):
        text += f"{', in' if epochs else '. In'} {count(never, 'case')} never: epochs were not shorter"
    return f"{text}."
