"""What comes before products and epochs: preparing a technique (MGG arXiv, table 4), renumbering a graph (CoLa)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from statistics import geometric_mean, mean

from mgg.report.page.parts import Cell, Columns, Part, table
from mgg.report.papers.catalogue import claimed_as
from mgg.report.papers.kinds import Preparation, Repaid
from mgg.report.tables.comparisons import timings
from mgg.report.tables.compute import SETTING, Row, Rows, best, group, sound
from mgg.report.tables.numbers import ABSENT, Unit, count, number, percent, quantity, time_unit, within


def parts(tables: dict[str, Rows], _: str, shown: Preparation) -> list[Part]:
    """Return one part, a line per graph and width; empty if no pair of sides was measured."""
    rows = _pairs(tables["aggregate"], shown)
    if not rows:
        return []
    subject, rival = shown.subject.name, shown.rival.name
    columns: Columns = []
    for place, (what, column) in enumerate((("preparing", "prepare_s"), ("a product by", "median_s"))):
        unit = time_unit([each[column] for row in rows for each in row["pair"]])
        columns += [
            *(
                (f"{what} {each} ({unit.name})", _time(column, unit, place, n))
                for n, each in enumerate((subject, rival))
            ),
            (f"{rival} / {subject}", _ratio(column, place)),
        ]
    note = (
        "Preparing: from a layout in memory to a plan, slowest PE, median over launches; partition and layout, which "
        "all techniques share, come before it and the paper's times have theirs in them. Small: the paper's."
    )
    grid = table(
        "Preparing, and a product", "graph, width", columns, rows, "graph, dim", note,
        by=["machine", "device", "pes"], heading="pes (machine, device)",
    )  # fmt: skip
    told = _prepared(rows, shown)
    return [Part("Preparing beside products", told, [grid], outcome=told)]


def _time(column: str, unit: Unit, place: int, side: int) -> Callable[[Row], Cell]:
    def cell(row: Row) -> Cell:
        paper = row["paper"][2 * place + side] if row["paper"] else None
        return Cell(within(row["pair"][side][column], unit), f"paper {quantity(paper)}" if paper else "")

    return cell


def _ratio(column: str, place: int) -> Callable[[Row], Cell]:
    def cell(row: Row) -> Cell:
        mine, other = (each[column] for each in row["pair"])
        theirs, rivals = row["paper"][2 * place : 2 * place + 2] if row["paper"] else (None, None)
        small = f"paper {number(rivals / theirs)}" if theirs and rivals else ""
        return Cell(number(other / mine) if mine else ABSENT, small)

    return cell


def _pairs(aggregate: Rows, shown: Preparation) -> Rows:
    """Return the fastest timing of the subject, and as ``pair`` those of both sides, for settings that differ only in
    technique; ``paper`` are the paper's numbers.
    """
    rows = [row for row in sound(aggregate) if row["prepare_s"] is not None]
    pairs = []
    for found in group(rows, *SETTING, "dim", "pes").values():
        sides = [timings(side, found) for side in (shown.subject, shown.rival)]
        if all(sides):
            pair = [best(side) for side in sides]
            pairs.append({**pair[0], "pair": pair, "paper": shown.printed.get(claimed_as(pair[0]["dataset"]))})
    return pairs


def _prepared(rows: Rows, shown: Preparation) -> str:
    """Say how much longer the rival took to prepare."""
    ours = [other["prepare_s"] / mine["prepare_s"] for mine, other in (row["pair"] for row in rows)]
    theirs = [row["paper"][1] / row["paper"][0] for row in rows if row["paper"]]
    text = f"Preparing {shown.rival.name} took {number(geometric_mean(ours))} times as long as {shown.subject.name} ("
    text += f"the geometric mean of {len(ours)} comparisons" if len(ours) > 1 else "one comparison"
    text += f"; in the paper {number(geometric_mean(theirs))}" if theirs else ""
    return f"{text}), {quantity(max(row['pair'][1]['prepare_s'] for row in rows))} at most."


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
    caption, at = "Renumbering and the epochs that repay it", ["machine", "device"]
    grid = table(caption, "graph", columns, rows, "stem, model, pes, seeded", note, by=at, heading="machine, device")
    told = _renumbering_told(rows, shown)
    return [Part("The cost of renumbering", told, [grid], outcome=told)]


def _renumbered(tables: dict[str, Rows], shown: Repaid) -> Rows:
    """Return runs on renumbered nodes that have a like run on shuffled ones.

    They have the other's epoch as ``shuffled_s``; ``renumber_s``, the time to renumber, None if unknown; and
    ``repaid``, the epochs until it is repaid, None for never.
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
            repaid = math.ceil(took / saved) if took is not None and saved > 0 else None
            rows.append(
                {
                    **after,
                    "shuffled_s": before["median_s"],
                    "renumber_s": took,
                    "repaid": repaid,
                }
            )
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


def _renumbering_told(rows: Rows, shown: Repaid) -> str:
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
