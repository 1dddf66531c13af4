"""Accuracy of technique auto's picks and of the cost model."""

from __future__ import annotations

import math
import statistics

from mgg.report.page.parts import Part, Section, chapter, grid, say
from mgg.report.tables.compute import COMPARISON, Row, Rows, best, group, joined, shared, sound
from mgg.report.tables.numbers import count
from mgg.report.tables.spread import undecided

#: Auto's picks should stay within this factor of the best.
GOAL = 1.05


def compute(aggregate: Rows) -> Rows:
    """Compute the rows of table choices: comparisons of several techniques in which auto picked one."""
    rows = []
    for found in group(sound(aggregate), *COMPARISON).values():
        picks = [row for row in found if row["chosen"]]
        if not picks or len(found) < 2:
            continue
        pick, least = picks[0], best(found)
        told = {
            "pick": pick["label"],
            "best": least["label"],
            "best_median_s": least["median_s"],
            "ratio": pick["median_s"] / least["median_s"],
            "close": pick is not least and bool(undecided(pick, least)),
            "compared": len(found),
        }
        rows.append(pick | told | joined(found))
    return rows


def section(tables: dict[str, Rows]) -> Section | None:
    """Compare picks with the fastest and predictions with measurements; None if auto was not used."""
    told, choices = [row for row in sound(tables["aggregate"]) if row["predicted_s"] is not None], tables["choices"]
    if not told:
        return None
    outcome, picks = "", Part("Its pick", "Nothing else was measured, so there is nothing to compare its pick with.")
    if choices:
        exact = sum(row["ratio"] == 1 for row in choices)
        near = sum(row["ratio"] <= GOAL or row["close"] for row in choices)
        worst = max(choices, key=lambda row: row["ratio"])
        outcome = say("picked", choices, exact, near, GOAL - 1, worst, shared(choices))
        cases = [row | {"case": _case(row), "sign": "≈ " * row["close"]} for row in choices]
        picks = Part("Its pick beside the fastest", outcome, [grid("picks", cases)])
    logs = [math.log(row["predicted_s"] / row["median_s"]) for row in told]
    off = math.exp(statistics.fmean(map(abs, logs))) - 1
    text = say("foretold", told, off, math.exp(statistics.fmean(logs)))
    foretold = [row | {"case": _case(row)} for row in told]
    parts = [picks, Part("Foretold beside measured", text, [grid("foretold", foretold, at=str)])]
    return chapter("choice", parts, outcome=outcome)


def _case(row: Row) -> str:
    product = "" if row["direction"] == "forward" else ", transposed"
    return f"{count(row['pes'], 'PE')}, D\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{row['dim']}{product}, {row['device']}"
