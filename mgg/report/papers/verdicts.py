"""Outcomes of comparisons in words, and whether they agree with the paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import geometric_mean

from mgg.report.page.parts import Grid, grid, read, say
from mgg.report.papers.catalogue import stand_in
from mgg.report.papers.kinds import Versus
from mgg.report.tables.comparisons import AGREES, CLOSE, DISAGREES, ONE_WORKGROUP, UNDECIDED, mean_ratio, of
from mgg.report.tables.compute import Rows, group, shared
from mgg.report.tables.numbers import number, sentences
from mgg.report.tables.spread import FEW

EVEN = 1.03  # a mean ratio within 3 % of 1 says nothing
_STAND_INS = 4  # with more of them, only the table of graphs names them
MIXED = "mixed"  # the mean goes one way, most of the comparisons do not


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


def outcomes(versus: Versus, rows: Rows) -> Rows:
    """Return one outcome per number of the paper (or per direction in a table of numbers) and device.

    Products and training epochs are never averaged together, even if the paper has one number for both. An outcome has
    its ``rows`` (of table figures), the geometric ``mean`` of their ratios, that of the paper's numbers as ``paper``
    (None: it has none), a ``verdict`` in words, empty if the paper does not mention them, or as ``untold`` why CPU
    cores say nothing, and as ``found`` the number of comparisons per verdict.
    """
    table = versus.claimed == "table"
    known = [
        row
        | {"key": str(versus.expects_slower(row["paper"])) if table else row["paper"] or 0.0}
        | {"gpus": row["device"] == "GPUs", "trained": bool(row["model"])}
        for row in telling(rows)
    ]
    told: Rows = []
    for (key, gpus, trained), alike in group(known, "key", "gpus", "trained").items():
        mean, paper, found = mean_ratio(alike), paper_mean(alike), Counter(row["verdict"] for row in alike)
        expected = versus.expects_slower(paper)
        untold = "" if gpus else read("texts")["untold"][versus.untold_on_cpus]
        verdict = "" if untold or expected is None else judged((mean > 1) == expected)
        if verdict and 2 * sum(found[why] for why in UNDECIDED) > len(alike):
            verdict = max(UNDECIDED, key=lambda why: found[why])
        elif verdict and 1 / EVEN < mean < EVEN:
            verdict = CLOSE
        elif verdict and 2 * found[verdict] < len(alike):
            verdict = MIXED
        told.append(
            {"rows": alike, "mean": mean, "paper": paper, "verdict": verdict, "untold": untold, "found": found,
             "key": key, "gpus": gpus, "kind": "epochs" if trained else "products"}
        )  # fmt: skip
    return told


def verdict(versus: Versus, rows: Rows) -> str:
    """Return the outcomes as sentences."""
    found, told = outcomes(versus, rows), []
    devices, several, both = (len({each[name] for each in found}) > 1 for name in ("gpus", "key", "kind"))
    for each in found:
        graphs = versus.claimed in ("graph", "table")
        cases = {row["dataset"] if graphs else row["model"] or f"D = {row['dim']}" for row in each["rows"]}
        words = (sorted(cases) if several else [], both, read("texts")["claimed"][versus.claimed], AGREES, CLOSE, FEW)
        told.append(say("verdict", versus, each, devices, *words))
    return sentences(*told)


def summary(told: Sequence[Versus], rows: Rows) -> Grid:
    """Return the outcomes as a table, one per line."""
    found, lines = [(versus, each) for versus in told for each in outcomes(versus, of(versus, rows))], []
    mixed, both = (len({each[name] for _, each in found}) > 1 for name in ("gpus", "kind"))
    for versus, each in found:
        name = f"{versus.rival.name} / {versus.subject.name}"
        name += f", {each['rows'][0]['device']}" * mixed + f", {each['kind']}" * both
        agree, close = f"{each['found'][AGREES]} of {len(each['rows'])}", sum(each["found"][why] for why in UNDECIDED)
        paper = "up to " * bool(versus.claimed == "most" and each["paper"]) + number(each["paper"])
        told_ = {"agree": agree, "close": close} if each["verdict"] else {"agree": None, "close": None}
        lines.append(each | told_ | {"name": name, "paper": paper})
    return grid("summary", lines, what="memory" if told[0].memory else "time")


def paper_mean(rows: Rows) -> float | None:
    """Return the geometric mean of the paper's numbers for the comparisons ``rows``; None if there are none."""
    told = [row["paper"] for row in rows if row["paper"]]
    return (told[0] if len(set(told)) == 1 else geometric_mean(told)) if told else None


def remarks(graphs: Rows, rows: Rows) -> str:
    """Return sentences on devices, stand-ins and shared cores of ``rows``, which name machine, graph, device, PEs."""
    cpus, beyond = [row["device"] != "GPUs" for row in rows], [row for row in rows if row["oversubscribed"]]
    return say("remarks", any(cpus), all(cpus), stand_ins(graphs, rows), beyond, shared(rows))


def stand_ins(graphs: Rows, rows: Rows) -> str:
    """Return a sentence on the generated graphs in ``rows``: the real graph that each stands for, and both sizes."""
    shown = {row.get("graph") for row in rows}
    told = [(row, real) for row in graphs if row["graph"] in shown and (real := stand_in(row["dataset"]))]
    return say("stand_ins", told, _STAND_INS)
