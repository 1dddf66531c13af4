"""Sweeps of MGG's kernel knobs: best and default setting, and the end of the paper's search.

The search is MGG's (OSDI'23, section 6, ``mgg.tune.search``), replayed on the measured times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from mgg.report.tables.compute import SETTING, Row, Rows, best, group, joined, options_but, sound
from mgg.tune.search import Search
from mgg.tune.setting import NAMES, START, Setting

#: Fewer settings than this count as variants, not as a sweep.
FEWEST = 4
#: Median seconds by setting.
Times = dict[Setting, float]


def sweeps(aggregate: Rows) -> dict[tuple[object, ...], Rows]:
    """Return sound timings that differ only in the knobs, at least ``FEWEST`` settings, by what they share.

    Their rows have the setting as ``knobs``, the technique's default one, if known, as ``usual``, and ``others``, the
    options that are no knobs.
    """
    rows = [
        {**row, "knobs": knobs, "usual": _knobs(row["defaults"]), "others": options_but(row, NAMES)}
        for row in sound(aggregate)
        if (knobs := _knobs(row["options"]))
    ]
    found = group(rows, *SETTING, "dim", "pes", "technique", "others")
    return {key: rows for key, rows in found.items() if len(rows) >= FEWEST}


def compute(aggregate: Rows) -> Rows:
    """Compute the rows of table mgg_sweep."""
    return [_row(rows) for rows in sweeps(aggregate).values()]


def times(rows: Rows) -> Times:
    """Median seconds by setting, of a sweep."""
    return {row["knobs"]: row["median_s"] for row in rows}


def telling(aggregate: Rows) -> Rows:
    """Return ``aggregate`` with only the best and the default of each sweep, as more would bury other techniques."""
    return without(aggregate, sweeps(aggregate).values(), lambda row: bool(row["knobs"] == row["usual"]))


def without(aggregate: Rows, groups: Iterable[Rows], kept: Callable[[Row], bool]) -> Rows:
    """Return ``aggregate`` without the rows of ``groups`` that are neither the best of their group nor ``kept``."""
    dropped = set()
    for rows in groups:
        first = best(rows)
        dropped |= {_id(row) for row in rows if row is not first and not kept(row)}
    return [row for row in aggregate if _id(row) not in dropped]


def _id(row: Row) -> tuple[object, ...]:
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
    """Return seconds of the fastest, the middle and the slowest launch of a sweep, by setting."""
    return {row["knobs"]: [row["low_s"], row["median_s"], row["high_s"]] for row in rows}


def _knobs(text: str) -> Setting | None:
    """Return the knobs among options, as JSON; None if there are none."""
    options = json.loads(text)
    return Setting(*(options[name] for name in NAMES)) if all(name in options for name in NAMES) else None


def _row(rows: Rows) -> Row:
    measured = times(rows)
    tried = search(spread(rows))
    least, end = (min(each, key=lambda knobs: (measured[knobs], knobs), default=None) for each in (measured, tried))
    first = rows[0]
    at = {"default": first["usual"], "best": least, "search": end}
    return {
        **{column: first[column] for column in (*SETTING, "dim", "pes", "technique")},
        "options": first["others"],
        "settings_measured": len(measured),
        "start_s": measured.get(START),
        **{f"{which}_s": measured.get(knobs) for which, knobs in at.items()},
        **{f"{which}_{name}": getattr(knobs, name, None) for which, knobs in at.items() for name in NAMES},
        "search_steps": len(tried) or None,
        "oversubscribed": first["oversubscribed"],
        **joined(rows),
    }
