"""The knobs of MGG's kernel, swept: best and default setting, and where the paper's search would have ended.

The search is that of MGG (OSDI'23), section 6, played on the measured times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from mgg.report.collect import canonical
from mgg.report.origins import joined
from mgg.report.tables import SETTING, Row, Rows, group, sound

NAMES = ("ps", "dist", "wpb")
#: Fewer settings than this are variants, not a sweep.
FEWEST = 4


class Knobs(NamedTuple):
    """A setting: arcs of a neighbor partition, interleaving distance, warps a block."""

    ps: int
    dist: int
    wpb: int

    def __str__(self) -> str:
        return f"{self.ps}, {self.dist}, {self.wpb}"


#: Where the paper's search begins.
START = Knobs(1, 1, 1)

Times = dict[Knobs, float]


def sweeps(aggregate: Rows) -> dict[tuple[object, ...], Rows]:
    """Sound timings that differ in the knobs alone, at least ``FEWEST`` settings of them, by what they share."""
    rows = [{**row, "others": _others(row)} for row in sound(aggregate) if knobs_of(row) is not None]
    found = group(rows, *SETTING, "dim", "pes", "technique", "others")
    return {key: rows for key, rows in found.items() if len(rows) >= FEWEST}


def compute(aggregate: Rows) -> Rows:
    """Rows of table knobs."""
    return [_row(rows) for rows in sweeps(aggregate).values()]


def times(rows: Rows) -> Times:
    """Median seconds by setting."""
    return {knobs: row["median"] for row in rows if (knobs := knobs_of(row)) is not None}


def telling(aggregate: Rows) -> Rows:
    """``aggregate`` with two timings of each sweep, the best and the default: more would bury the other techniques."""
    dropped = set()
    for rows in sweeps(aggregate).values():
        best = min(rows, key=lambda row: (row["median"], row["label"]))
        dropped |= {id_(row) for row in rows if row is not best and knobs_of(row) != default(row)}
    return [row for row in aggregate if id_(row) not in dropped]


def id_(row: Row) -> tuple[object, ...]:
    """What tells a timing from all others."""
    return tuple(row[column] for column in (*SETTING, "backend", "dim", "pes", "technique", "options"))


def search(times: Mapping[Knobs, float]) -> list[Knobs]:
    """The settings that the paper's search measures, in its order; it picks the fastest of them.

    From 1, 1, 1 it raises ps, then dist, then wpb, each as long as the time falls; then it takes ps back by one value
    at a time and raises wpb anew, as long as that gives one of the three lowest times. Settings that were not measured
    end a rise.
    """
    if START not in times:
        return []
    tried = [START]
    at = START
    for knob in NAMES:
        at = _rise(times, tried, at, knob)
    while True:
        lower = [knobs for knobs in times if knobs.ps < at.ps and knobs[1:] == (at.dist, START.wpb)]
        if not lower:
            return tried
        at = max(lower)
        before = sorted(times[knobs] for knobs in tried)
        if at not in tried:
            tried.append(at)
        end = _rise(times, tried, at, "wpb")
        if times[end] > before[: min(3, len(before))][-1]:
            return tried


def _rise(times: Mapping[Knobs, float], tried: list[Knobs], at: Knobs, knob: str) -> Knobs:
    """Raise one knob from ``at`` while the time falls; notes what it measures, returns where the time was lowest."""
    for value in sorted({getattr(knobs, knob) for knobs in times}):
        higher = at._replace(**{knob: value})
        if value <= getattr(at, knob) or higher not in times:
            continue
        if higher not in tried:
            tried.append(higher)
        if times[higher] >= times[at]:
            break
        at = higher
    return at


def default(row: Row) -> Knobs | None:
    """The default knobs of a timing's technique; None where the record does not say or there are none."""
    return _knobs(row["defaults"])


def knobs_of(row: Row) -> Knobs | None:
    """The knobs of a timing; None where its technique has none."""
    return _knobs(row["options"])


def _knobs(text: str) -> Knobs | None:
    options = json.loads(text)
    return Knobs(*(options[name] for name in NAMES)) if all(name in options for name in NAMES) else None


def _others(row: Row) -> str:
    return canonical({key: value for key, value in json.loads(row["options"]).items() if key not in NAMES})


def _row(rows: Rows) -> Row:
    measured = times(rows)
    best = min(measured, key=lambda knobs: (measured[knobs], knobs))
    tried = search(measured)
    end = min(tried, key=lambda knobs: (measured[knobs], knobs)) if tried else None
    first = rows[0]
    usual = default(first)
    return {
        **{column: first[column] for column in (*SETTING, "dim", "pes", "technique")},
        "options": first["others"],
        "settings": len(measured),
        "default": measured.get(usual) if usual else None,
        "default_ps": usual.ps if usual else None,
        "default_dist": usual.dist if usual else None,
        "default_wpb": usual.wpb if usual else None,
        "start": measured.get(START),
        "best": measured[best],
        "best_ps": best.ps,
        "best_dist": best.dist,
        "best_wpb": best.wpb,
        "search": measured[end] if end else None,
        "search_ps": end.ps if end else None,
        "search_dist": end.dist if end else None,
        "search_wpb": end.wpb if end else None,
        "search_steps": len(tried) if tried else None,
        "oversubscribed": first["oversubscribed"],
        **joined(rows),
    }
