"""Outcomes of comparisons in words, and whether they agree with the paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import geometric_mean
from typing import NamedTuple

from mgg.report.page.parts import Grid, grid, say, texts
from mgg.report.papers.catalogue import stand_in
from mgg.report.papers.kinds import Versus
from mgg.report.tables.comparisons import AGREES, CLOSE, DISAGREES, ONE_WORKGROUP, UNDECIDED, mean_ratio, of
from mgg.report.tables.compute import Row, Rows, group, shared
from mgg.report.tables.numbers import number
from mgg.report.tables.spread import FEW

EVEN = 1.03  # a mean ratio within 3 % of 1 says nothing
_STAND_INS = 4  # with more of them, only the table of graphs names them
MIXED = "mixed"  # the mean goes one way, most of the comparisons do not


class Outcome(NamedTuple):
    """Outcome of all comparisons for one number, or direction, of a paper on one kind of device."""

    rows: Rows  # the comparisons, of table figures
    mean: float  # geometric mean of their ratios
    paper: float | None  # geometric mean of the paper's numbers for them; None: it has none
    verdict: str  # in words; empty: the paper does not mention them
    untold: str  # why CPU cores say nothing about them; empty: they ran on GPUs, or CPU cores do count

    @property
    def found(self) -> Counter[str]:
        """Return the number of comparisons per verdict."""
        return Counter(row["verdict"] for row in self.rows)


def judged(alike: bool) -> str:
    """Return the verdict on something that goes the paper's way, or does not."""
    return AGREES if alike else DISAGREES


def telling(rows: Rows) -> Rows:
    """Return the rows of table figures without those whose sides are equal for lack of a second workgroup."""
    return [row for row in rows if row["untold"] != ONE_WORKGROUP]


def left_out(rows: Rows) -> str:
    """Return a sentence on the remaining ``rows``; empty if there are none."""
    others = [row for row in rows if row["untold"] == ONE_WORKGROUP]
    return say("one_workgroup", others) if others else ""


def outcomes(versus: Versus, rows: Rows) -> list[Outcome]:
    """Return one outcome per number of the paper (or per direction in a table of numbers) and device.

    Products and training epochs are never averaged together, even if the paper has one number for both.
    """
    known = [
        {
            **row,
            "claim": row["paper"] or 0.0,
            "gpus": row["device"] == "GPUs",
            "trained": bool(row["model"]),
            "way": str(versus.expects_slower(row["paper"])),
        }
        for row in telling(rows)
    ]
    claims = group(known, "way" if versus.claimed == "table" else "claim", "gpus", "trained")
    return [_outcome(versus, found) for found in claims.values()]


def verdict(versus: Versus, rows: Rows) -> str:
    """Return the outcomes as sentences."""
    found = outcomes(versus, rows)
    devices = {each.rows[0]["gpus"] for each in found}
    several = len({(each.rows[0]["claim"], each.rows[0]["way"])[versus.claimed == "table"] for each in found}) > 1
    both = _both([each.rows[0] for each in found])
    sentences = []
    for each in found:
        sentence = _sentence(versus, each, several, both)
        where = "On GPUs, " if each.rows[0]["gpus"] else "On CPU cores, "
        sentences.append(where + sentence if len(devices) > 1 else sentence)
    return " ".join(sentences)


def summary(told: Sequence[Versus], rows: Rows) -> Grid:
    """Return the outcomes as a table, one per line."""
    lines, both = list[Row](), _both(rows)
    mixed = len({row["device"] == "GPUs" for row in rows}) > 1
    for versus in told:
        for each in outcomes(versus, of(versus, rows)):
            name = f"{versus.rival.name} / {versus.subject.name}"
            name += f", {each.rows[0]['device']}" if mixed else ""
            name += f", {_kind(each.rows[0])}" if both else ""
            agree, close = f"{each.found[AGREES]} of {len(each.rows)}", str(sum(each.found[why] for why in UNDECIDED))
            paper = ("up to " if versus.claimed == "most" and each.paper else "") + number(each.paper)
            line = {"name": name, "mean": each.mean, "paper": paper, "verdict": each.verdict}
            lines.append(line | {"agree": agree if each.verdict else "", "close": close if each.verdict else ""})
    return grid("summary", lines, what="memory" if told[0].memory else "time")


def paper_mean(rows: Rows) -> float | None:
    """Return the geometric mean of the paper's numbers for the comparisons ``rows``; None if there are none."""
    told = [row["paper"] for row in rows if row["paper"]]
    return (told[0] if len(set(told)) == 1 else geometric_mean(told)) if told else None


def _both(rows: Rows) -> bool:
    return len({bool(row["model"]) for row in rows}) > 1


def _kind(row: Row) -> str:
    return "epochs" if row["model"] else "products"


def _outcome(versus: Versus, rows: Rows) -> Outcome:
    mean, paper = mean_ratio(rows), paper_mean(rows)
    expected = versus.expects_slower(paper)
    untold = texts("untold")[versus.untold_on_cpus if all(row["device"] != "GPUs" for row in rows) else ""]
    if untold or expected is None:
        return Outcome(rows, mean, paper, "", untold)
    found = Counter(row["verdict"] for row in rows)
    verdict = judged((mean > 1) == expected)
    if 2 * sum(found[why] for why in UNDECIDED) > len(rows):
        verdict = max(UNDECIDED, key=lambda why: found[why])
    elif 1 / EVEN < mean < EVEN:
        verdict = CLOSE
    elif 2 * found[verdict] < len(rows):
        verdict = MIXED
    return Outcome(rows, mean, paper, verdict, untold)


def _sentence(versus: Versus, outcome: Outcome, several: bool, both: bool) -> str:
    by_graph, rows = versus.claimed in ("graph", "table"), outcome.rows
    cases = {row["dataset"] if by_graph else row["model"] or f"D = {row['dim']}" for row in rows}
    return say(
        "verdict", versus, outcome, sorted(cases) if several else [], _kind(rows[0]) if both else "",
        texts("claimed")[versus.claimed], AGREES, CLOSE, FEW,
    )  # fmt: skip


def remarks(graphs: Rows, rows: Rows) -> str:
    """Return sentences on devices, stand-ins and shared cores of ``rows``, which name machine, graph, device, PEs."""
    cpus, beyond = [row["device"] != "GPUs" for row in rows], [row for row in rows if row["oversubscribed"]]
    return say("remarks", any(cpus), all(cpus), stand_ins(graphs, rows), beyond, shared(rows))


def stand_ins(graphs: Rows, rows: Rows) -> str:
    """Return a sentence on the generated graphs in ``rows``: the real graph that each stands for, and both sizes."""
    shown = {row["graph"] for row in rows}
    told = [(row, real) for row in graphs if row["graph"] in shown and (real := stand_in(row["dataset"]))]
    return say("stand_ins", told, _STAND_INS)
