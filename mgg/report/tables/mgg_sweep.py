"""Sweeps of MGG's kernel knobs: best and default setting, and the end of the paper's search.

The search is MGG's (OSDI'23, section 6, ``mgg.tune.search``), replayed on the measured times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from mgg.report.tables.collect import canonical
from mgg.report.tables.compute import SETTING, Row, Rows, group, sound
from mgg.report.tables.origins import joined
from mgg.tune.search import Search
from mgg.tune.setting import NAMES, START, Setting

#: Fewer settings than this count as variants, not as a sweep.
FEWEST = 4
#: Median seconds by setting.
Times = dict[Setting, float]


def sweeps(aggregate: Rows) -> dict[tuple[object, ...], Rows]:
    """Return sound timings that differ only in the knobs, at least ``FEWEST`` settings, by what they share."""
    rows = [{**row, "others": _others(row)} for row in sound(aggregate) if knobs_of(row) is not None]
    found = group(rows, *SETTING, "dim", "pes", "technique", "others")
    return {key: rows for key, rows in found.items() if len(rows) >= FEWEST}


def compute(aggregate: Rows) -> Rows:
    """Compute the rows of table knobs."""
    return [_row(rows) for rows in sweeps(aggregate).values()]


def times(rows: Rows) -> Times:
    """Median seconds by setting."""
    return {knobs: row["median"] for row in rows if (knobs := knobs_of(row)) is not None}


def telling(aggregate: Rows) -> Rows:
    """Return ``aggregate`` with only the best and the default of each sweep, as more would bury other techniques."""
    dropped = set()
    for rows in sweeps(aggregate).values():
        best = min(rows, key=lambda row: (row["median"], row["label"]))
        dropped |= {id_(row) for row in rows if row is not best and knobs_of(row) != default(row)}
    return [row for row in aggregate if id_(row) not in dropped]


def id_(row: Row) -> tuple[object, ...]:
    """Return a timing's identity."""
    return tuple(row[column] for column in (*SETTING, "backend", "dim", "pes", "technique", "options"))


def search(spread: Mapping[Setting, Sequence[float]]) -> list[Setting]:
    """Return the settings that the paper's search measures, in order; it picks the fastest of them.

    Args:
        spread: seconds of each setting; the search skips all other settings.
    """
    values = {name: sorted({getattr(setting, name) for setting in spread}) for name in NAMES}
    return Search(spread.__contains__, values=values).path(spread)


def spread(rows: Rows) -> dict[Setting, list[float]]:
    """Return seconds of the fastest, the middle and the slowest launch, by setting."""
    return {knobs: [row["low"], row["median"], row["high"]] for row in rows if (knobs := knobs_of(row)) is not None}


def default(row: Row) -> Setting | None:
    """Return the default knobs of a timing's technique; None if unknown or without knobs."""
    return _knobs(row["defaults"])


def knobs_of(row: Row) -> Setting | None:
    """Return the knobs of a timing; None if its technique has none."""
    return _knobs(row["options"])


def _knobs(text: str) -> Setting | None:
    options = json.loads(text)
    return Setting(*(options[name] for name in NAMES)) if all(name in options for name in NAMES) else None


def _others(row: Row) -> str:
    return canonical({key: value for key, value in json.loads(row["options"]).items() if key not in NAMES})


def _row(rows: Rows) -> Row:
    measured = times(rows)
    best = min(measured, key=lambda knobs: (measured[knobs], knobs))
    tried = search(spread(rows))
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
