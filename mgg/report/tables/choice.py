"""Accuracy of technique auto's picks and of the cost model."""

from __future__ import annotations

import math
import statistics

from mgg.report.page.findings import Finding
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


def findings(tables: dict[str, Rows]) -> list[Finding]:
    """Return a sentence for the top of the page."""
    rows = tables["choices"]
    return [Finding("Technique auto", _said(rows))] if rows else []


def section(tables: dict[str, Rows]) -> Section | None:
    """Compare picks with the fastest and predictions with measurements; None if auto was not used."""
    told, choices = [row for row in sound(tables["aggregate"]) if row["predicted_s"] is not None], tables["choices"]
    if not told:
        return None
    if choices:
        cases = [row | {"case": _case(row), "sign": "≈ " * row["close"]} for row in choices]
        picks = Part("Its pick beside the fastest", _said(choices), [grid("picks", cases)])
    else:
        picks = Part("Its pick", "Nothing else was measured, so that there is nothing to compare its pick with.")
    foretold = [row | {"case": _case(row)} for row in told]
    parts = [picks, Part("Foretold beside measured", _errors(told), [grid("foretold", foretold, at=str)])]
    return chapter("choice", parts)


def _said(rows: Rows) -> str:
    exact, near = sum(row["ratio"] == 1 for row in rows), sum(row["ratio"] <= GOAL or row["close"] for row in rows)
    return say("picked", rows, exact, near, GOAL - 1, max(rows, key=lambda row: row["ratio"]), shared(rows))


def _errors(rows: Rows) -> str:
    logs = [math.log(row["predicted_s"] / row["median_s"]) for row in rows]
    off = math.exp(statistics.fmean(abs(log) for log in logs)) - 1
    return say("foretold", rows, off, math.exp(statistics.fmean(logs)))


def _case(row: Row) -> str:
    product = "" if row["direction"] == "forward" else ", transposed"
    return f"{count(row['pes'], 'PE')}, D\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{row['dim']}{product}, {row['device']}"
