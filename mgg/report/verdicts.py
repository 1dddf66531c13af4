"""What came out of a comparison, in words, and whether that is what the paper says."""

from __future__ import annotations

from collections import Counter

from mgg.report.comparisons import AGREES, CLOSE, DISAGREES, geometric_mean, mean_ratio
from mgg.report.experiments import Versus
from mgg.report.numbers import listing, number
from mgg.report.tables import Rows, group

EVEN = 1.03  # a mean ratio within 3 % of 1 says nothing
MIXED = "mixed"  # the mean goes one way, most of the comparisons do not
#: What the page calls the paper's number.
CLAIMED = {
    "average": "paper's average",
    "graph": "in the paper",
    "table": "in the paper",
    "bound": "paper: more than",
}


def verdict(versus: Versus, rows: Rows) -> str:
    """A sentence for each of the paper's numbers, or for each direction that the numbers of a table give."""
    known = [
        {
            **row,
            "claim": row["paper"] or 0.0,
            "gpus": row["device"] == "GPUs",
            "way": str(versus.expects_slower(row["paper"])),
        }
        for row in rows
    ]
    claims = group(known, "way" if versus.claimed == "table" else "claim", "gpus")
    devices = {gpus for _, gpus in claims}
    numbers = {claim for claim, _ in claims}
    sentences = []
    for (_, gpus), found in claims.items():
        sentence = _sentence(versus, found, paper_mean(found), len(numbers) > 1)
        sentences.append(("On GPUs, " if gpus else "On CPU cores, ") + sentence if len(devices) > 1 else sentence)
    return " ".join(sentences)


def paper_mean(rows: Rows) -> float | None:
    """The geometric mean of the paper's numbers for the comparisons ``rows``; None where it has none."""
    told = [row["paper"] for row in rows if row["paper"]]
    return (told[0] if len(set(told)) == 1 else geometric_mean(told)) if told else None


def _sentence(versus: Versus, rows: Rows, claim: float | None, several: bool) -> str:
    """What the comparisons ``rows`` of one number, or direction, of the paper came to."""
    mean = mean_ratio(rows)
    over = f"the geometric mean of {len(rows)} comparisons" if len(rows) > 1 else "one comparison"
    text = f"“{versus.rival.name}” took {number(mean)} times as long as “{versus.subject.name}” ({over})"
    if several:
        by_graph = versus.claimed in ("graph", "table")
        cases = [row["dataset"] if by_graph else row["model"] or f"D = {row['dim']}" for row in rows]
        text = f"{listing(sorted(set(cases)))}: {text}"
    expected = versus.expects_slower(claim)
    if versus.alike_on_cpus and all(row["device"] != "GPUs" for row in rows):
        return f"{text}: noise, since CPU cores run the same code for both."
    if expected is None:
        return f"{text}."
    found = Counter(row["verdict"] for row in rows)
    verdict = AGREES if (mean > 1) == expected else DISAGREES
    if 2 * found[CLOSE] > len(rows) or 1 / EVEN < mean < EVEN:
        verdict = CLOSE
    elif 2 * found[verdict] < len(rows):
        verdict = MIXED
    text += f": {verdict}" + (f" ({CLAIMED[versus.claimed]} {claim:.4g})" if claim else "")
    if len(rows) > 1:
        text += f"; {found[AGREES]} of {len(rows)} go the paper's way"
        text += f", {found[CLOSE]} too close to call" if found[CLOSE] else ""
    return f"{text}."
