"""Numbers as people read them: three significant digits, one unit a table or figure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

#: What a table of the page shows where there is no value.
ABSENT = "-"


class Unit(NamedTuple):
    """A unit of display: a value of ``size`` base units shows as 1."""

    name: str
    size: float


_TIME = [Unit("s", 1.0), Unit("ms", 1e-3), Unit("µs", 1e-6)]
_WAIT = [Unit("s", 1.0), Unit("min", 60.0), Unit("h", 3600.0)]
_BYTES = [Unit("GiB", 2.0**30), Unit("MiB", 2.0**20), Unit("KiB", 2.0**10), Unit("bytes", 1.0)]
#: As Snakemake and Slurm count memory.
_MEMORY = [Unit("GB", 1e9), Unit("MB", 1e6), Unit("kB", 1e3), Unit("bytes", 1.0)]


def time_unit(seconds: Sequence[float]) -> Unit:
    """The unit in which the middle of ``seconds`` is at least 1."""
    return _unit(seconds, _TIME)


def bytes_unit(counts: Sequence[float]) -> Unit:
    """The unit in which the middle of ``counts`` is at least 1, as the CoLa paper counts: its MB are MiB."""
    return _unit(counts, _BYTES)


def _unit(values: Sequence[float], units: Sequence[Unit]) -> Unit:
    middle = statistics.median(values) if values else 0
    return next((unit for unit in units if middle >= unit.size), units[-1])


def number(value: float | None, digits: int = 3) -> str:
    """``value`` with at least ``digits`` significant digits and no exponent; a dash for none."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return "not a number"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(places, 9)}f}"


def within(value: float | None, unit: Unit) -> str:
    """``value``, in base units, as a number of ``unit``."""
    return number(None if value is None else value / unit.size)


def quantity(value: float, units: str = "time") -> str:
    """One value with its own unit: ``units`` is time (seconds) or memory (bytes, decimal: 1 MB = 10^6 bytes)."""
    unit = _unit([value], _TIME if units == "time" else _MEMORY)
    return f"{within(value, unit)} {unit.name}"


def clock_unit(seconds: float) -> Unit:
    """Seconds, minutes or hours, for times that people wait."""
    return next(unit for unit in _WAIT if seconds < 120 * unit.size or unit is _WAIT[-1])


def duration(seconds: float) -> str:
    """``12.3 s``, ``11.0 min``, ``2.50 h``."""
    unit = clock_unit(seconds)
    return f"{within(seconds, unit)} {unit.name}"


def utc(seconds: float) -> str:
    """A moment in UTC; never in the zone of the machine that makes the report, whose bytes would depend on it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def span(values: Sequence[float]) -> str:
    """``low to high`` of the values, or the one that they share."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def percent(share: float | None) -> str:
    """A share of 0 to 1 in percent, one decimal."""
    if share is None:
        return ABSENT
    return f"{100 * share:.1f} %" if math.isfinite(share) else "not a number"


def count(amount: int, noun: str, plural: str = "") -> str:
    """``1 graph``, ``2 graphs``; ``plural`` where it takes more than an s."""
    return f"{amount:,} {noun if amount == 1 else plural or f'{noun}s'}"


def listing(words: Sequence[str], limit: int = 6) -> str:
    """``a, b and c``; beyond ``limit`` words the rest is counted."""
    words = list(words)
    if len(words) > limit:
        words = [*words[: limit - 1], f"{len(words) - limit + 1} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"
