"""Page faults of unified memory, counted by the driver, and occupancy from Nsight Compute (MGG's two versions)."""

from __future__ import annotations

import json
from statistics import geometric_mean

from mgg.report.figures.charts import Bar, bars
from mgg.report.page.parts import Drawing, Part, grid, say
from mgg.report.papers.kinds import Occupied, Side
from mgg.report.papers.verdicts import judged, remarks
from mgg.report.tables.compute import SETTING, Row, Rows, group, sound, where
from mgg.report.tables.numbers import count, number, sentences

#: Columns of occupancy and their names on the page.
SHARES = {"occupancy": "Achieved occupancy", "sm_utilization": "SM utilization"}
_FAULTS = {"page_faults": "page faults", "fault_s": "time of page faults"}
#: Columns that the numbers of PEs of a comparison of page faults share.
_CASE = (*SETTING, "dim", "label")


def faults(tables: dict[str, Rows], _: str, technique: str) -> list[Part]:
    """Show page faults of ``technique`` over numbers of PEs; empty if they were not requested."""
    rows: Rows = []
    for found in group((row for row in sound(tables["aggregate"]) if row["technique"] == technique), *_CASE).values():
        asked = [row for row in found if row["page_faults"] is not None or row["faults_untold"]]
        known = [row for row in asked if row["page_faults"] is not None]
        least = min(known, key=lambda row: row["pes"], default=None)
        for row in sorted(asked, key=lambda row: row["pes"]):
            pairs = {column: (row[column], least and least[column]) for column in _FAULTS}
            over = {column: mine / of if of and mine is not None else None for column, (mine, of) in pairs.items()}
            rows.append(row | {"least": least, "over": over})
    if not rows:
        return []
    told = _faults_told(rows)
    drawings = [
        Drawing(
            bars(groups, f"{what}, over the fewest PEs'"),
            f"{what.capitalize()} of one product by PEs, over those of the fewest PEs.",
        )
        for column, what in _FAULTS.items()
        if (groups := _bars(rows, column))
    ]
    return [Part("Here", sentences(told, remarks(tables["graphs"], rows)), [grid("faults", rows)], drawings, told)]


def _bars(rows: Rows, column: str) -> dict[str, list[Bar]]:
    """Return the bars of each case with several numbers of PEs, of which the fewest have page faults."""
    found: dict[str, list[Bar]] = {}
    for cases in group((row for row in rows if row["over"][column] is not None), *_CASE).values():
        ratios = [(count(row["pes"], "PE"), row["over"][column]) for row in cases]
        if len(cases) > 1:
            found[where(cases[0], "graph", "dim")] = [Bar(name, ratio, number(ratio)) for name, ratio in ratios]
    return found


def _faults_told(rows: Rows) -> str:
    """Say whether page faults rise with the number of PEs, as in the paper, or why they are unknown."""
    told = []
    for found in group(rows, *_CASE).values():
        most = max(found, key=lambda row: row["pes"])
        least = most["least"]
        if least is None or least["pes"] == most["pes"] or most["page_faults"] is None:
            continue
        verdict = judged(most["page_faults"] > least["page_faults"])
        told.append(say("faulted", most, least, most["over"]["page_faults"], verdict))
    return sentences(*told, _untold(rows, "faults_untold", "Page faults were not counted"))


def occupancy(tables: dict[str, Rows], _: str, shown: Occupied) -> list[Part]:
    """Show the occupancy of each side by graph; empty if profiling was not tried."""
    tried = [row for row in sound(tables["aggregate"]) if row["occupancy"] is not None or row["profile_untold"]]
    rows = [
        {**row, "of": side.name, "place": place}
        for row in tried
        for place, side in enumerate(shown.sides)
        if _is(row, side, shown)
    ]
    if not rows:
        return []
    rows.sort(key=lambda row: (row["pes"], row["dim"], row["place"]))
    told = _occupancy_told(rows, shown)
    return [Part("Here", sentences(told, remarks(tables["graphs"], rows)), [grid("occupancy", rows)], outcome=told)]


def _occupancy_told(rows: Rows, shown: Occupied) -> str:
    """Say how much higher the first side's values are than the second's, with the paper's, or why they are unknown."""
    subject, rival = (side.name for side in shown.sides[:2])
    told = []
    for column, title in SHARES.items():
        ratios = [
            one[column] / other[column]
            for found in group((row for row in rows if row[column]), *SETTING, "pes", "dim").values()
            for one in found
            for other in found
            if (one["of"], other["of"]) == (subject, rival)
        ]
        if ratios:
            mean, paper = geometric_mean(ratios), shown.gains[column]
            verdict = judged((mean > 1) == (paper > 0))
            told.append(say("occupied", title, subject, rival, mean, len(ratios), paper, verdict))
    return sentences(*told, _untold(rows, "profile_untold", "Occupancy and SM utilization were not found"))


def _is(row: Row, side: Side, shown: Occupied) -> bool:
    """Return whether a row is the side's: each option that separates sides has the side's value or the default."""
    keys = {key for each in shown.sides if each.technique == side.technique for key in each.options}
    given, usual = json.loads(row["options"]), json.loads(row["defaults"])
    alike = all(given.get(key) == side.options.get(key, usual.get(key)) for key in keys)
    return bool(row["technique"] == side.technique and alike)


def _untold(rows: Rows, column: str, begin: str) -> str:
    reasons = sorted({row[column] for row in rows if row[column]})
    return say("unknown", begin, reasons) if reasons else ""
