"""Time to renumber a graph, compared with the epochs that it shortens."""

from __future__ import annotations

import json
import math
from statistics import mean

from mgg.report.page.parts import Cell, Grid, Part
from mgg.report.papers.kinds import Repaid
from mgg.report.tables.comparisons import timings
from mgg.report.tables.compute import Row, Rows, group
from mgg.report.tables.numbers import ABSENT, Unit, count, number, percent, quantity, time_unit, within

ENDINGS = ("-shuffled", "-reordered")
#: Columns that two runs must share to be compared; their graphs differ in order.
_RUN = (
    "stem", "machine", "device", "dtype", "scheme", "model", "settings", "weights", "pes", "seed", "epochs_asked",
)  # fmt: skip


def parts(tables: dict[str, Rows], _: str, shown: Repaid) -> list[Part]:
    """Return one part, a line per graph, model and number of PEs; empty if no pair of orders was measured."""
    pairs, seconds = _pairs(tables["training"], shown), _seconds(tables["jobs"])
    if not pairs:
        return []
    unit = time_unit([row["median_s"] for pair in pairs for row in pair])
    groups = []
    for found in group([{**after, "pair": (before, after)} for before, after in pairs], "machine", "device").values():
        lines = [(_case(row), _cells(row["pair"], seconds.get(row["dataset"]), unit)) for row in found]
        groups.append((f"{found[0]['machine']}, {found[0]['device']}", lines))
    columns = [
        "renumbering", f"epoch, shuffled ({unit.name})", f"epoch, renumbered ({unit.name})", "of one epoch",
        "of the training", "repaid after",
    ]  # fmt: skip
    note = (
        "Renumbering: the job that reads the shards, finds the order and writes them anew, start of its program "
        "included; it takes no GPU. Epochs: medians, slowest PE. Of an epoch, of the training: renumbering over the "
        "time of a renumbered epoch, and of all of them. Repaid after: renumbering over what an epoch is shorter by."
    )
    grid = Grid("Renumbering and the epochs that repay it", "graph", columns, groups, note)
    return [Part("The cost of renumbering", _told(pairs, seconds, shown), [grid])]


def outcome(tables: dict[str, Rows], shown: Repaid) -> str:
    """Say what share renumbering takes and when it is repaid; empty if nothing was measured."""
    pairs = _pairs(tables["training"], shown)
    return _told(pairs, _seconds(tables["jobs"]), shown) if pairs else ""


def _pairs(training: Rows, shown: Repaid) -> list[tuple[Row, Row]]:
    """Return pairs of runs that differ only in shuffled or renumbered nodes."""
    rows = [
        {**row, "stem": row["dataset"].removesuffix(ending), "ending": ending}
        for row in timings(shown.side, training)
        for ending in ENDINGS
        if row["dataset"].endswith(ending)
    ]
    pairs = []
    for found in group(rows, *_RUN).values():
        at = {row["ending"]: row for row in found}
        if len(at) == len(ENDINGS):
            pairs.append((at[ENDINGS[0]], at[ENDINGS[1]]))
    return pairs


def _seconds(jobs: Rows) -> dict[str, float]:
    return {
        json.loads(row["wildcards"])["dataset"]: row["ran_s"]
        for row in jobs
        if row["rule"] == "order" and row["ran_s"] is not None
    }


def _case(row: Row) -> str:
    return f"{row['stem']}, {row['model']}, {count(row['pes'], 'PE')}, seed {row['seed']}"


def _repaid(before: Row, after: Row, seconds: float) -> int | None:
    """Return the epochs until renumbering is repaid; None: never."""
    saved = before["median_s"] - after["median_s"]
    return math.ceil(seconds / saved) if saved > 0 else None


def _share(after: Row, seconds: float, shown: Repaid) -> float:
    """Return renumbering time over the paper's base."""
    return seconds / (after["median_s"] * (1 if shown.of == "epoch" else after["epochs"]))


def _cells(pair: tuple[Row, Row], seconds: float | None, unit: Unit) -> list[Cell]:
    before, after = pair
    times = [Cell(within(row["median_s"], unit)) for row in pair]
    if seconds is None:
        return [Cell(ABSENT), *times, *[Cell(ABSENT)] * 3]
    epochs = _repaid(before, after, seconds)
    told = "never" if epochs is None else count(epochs, "epoch")
    of_one, of_all = seconds / after["median_s"], seconds / (after["median_s"] * after["epochs"])
    return [
        Cell(quantity(seconds)),
        *times,
        Cell(percent(of_one) if of_one < 1 else f"{number(of_one)} x"),
        Cell(percent(of_all) if of_all < 1 else f"{number(of_all)} x", count(after["epochs"], "epoch")),
        Cell(told),
    ]


def _told(pairs: list[tuple[Row, Row]], seconds: dict[str, float], shown: Repaid) -> str:
    known = [(before, after, seconds[after["dataset"]]) for before, after in pairs if after["dataset"] in seconds]
    if not known:
        return "How long renumbering took is not known: no record of the workflow's jobs came with these runs."
    share = mean(_share(after, taken, shown) for _, after, taken in known)
    against = "one renumbered epoch" if shown.of == "epoch" else "the renumbered epochs of a training"
    over = f"the mean of {len(known)} cases" if len(known) > 1 else "one case"
    much = f"{percent(share)} of the time of" if share < 1 else f"{number(share)} times as long as"
    text = f"Renumbering took {much} {against} ({over}; paper's average {100 * shown.claim:.2f} %)"
    epochs = [found for each in known if (found := _repaid(*each)) is not None]
    never = len(known) - len(epochs)
    if epochs:
        text += f". It is repaid after {_span(min(epochs), max(epochs))}"
    if never:
        text += f"{', in' if epochs else '. In'} {count(never, 'case')} never: epochs were not shorter"
    return f"{text}."


def _span(low: int, high: int) -> str:
    return count(low, "epoch") if low == high else f"{low:,} to {count(high, 'epoch')}"
