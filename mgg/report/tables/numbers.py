"""Readable numbers: three significant digits, one unit per table or figure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from string import Formatter
from typing import Any, NamedTuple

#: Placeholder for missing values in the page's tables.
ABSENT = "-"


class Unit(NamedTuple):
    """A display unit: a value of ``size`` base units shows as 1."""

    name: str
    size: float


#: Units by quantity, largest first; memory in decimal ones, as in Snakemake and Slurm.
_UNITS = {
    "time": [Unit("s", 1.0), Unit("ms", 1e-3), Unit("µs", 1e-6)],
    "bytes": [Unit("GiB", 2.0**30), Unit("MiB", 2.0**20), Unit("KiB", 2.0**10), Unit("bytes", 1.0)],
    "memory": [Unit("GB", 1e9), Unit("MB", 1e6), Unit("kB", 1e3), Unit("bytes", 1.0)],
}


def unit_of(values: Sequence[float], what: str = "time") -> Unit:
    """Return the unit of time, bytes or memory in which the middle of ``values`` is at least 1.

    As in the CoLa paper, MB are MiB.
    """
    middle = statistics.median(values) if values else 0
    return next((unit for unit in _UNITS[what] if middle >= unit.size), _UNITS[what][-1])


def number(value: float | None, digits: int = 3) -> str:
    """Format ``value`` with at least ``digits`` significant digits and no exponent; None as a dash."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return "not a number"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(places, 9)}f}"


def within(value: float | None, unit: Unit) -> str:
    """Format ``value`` (base units) as a number of ``unit``."""
    return number(None if value is None else value / unit.size)


def quantity(value: float, what: str = "time") -> str:
    """Format one value with its own unit: ``what`` is time (seconds) or memory (bytes, decimal: 1 MB = 10^6 bytes)."""
    unit = unit_of([value], what)
    return f"{within(value, unit)} {unit.name}"


def clock_unit(seconds: float) -> Unit:
    """Return seconds, minutes or hours, for waiting times."""
    return Unit("s", 1.0) if seconds < 120 else Unit("min", 60.0) if seconds < 7200 else Unit("h", 3600.0)


def duration(seconds: float) -> str:
    """Format a duration: ``12.3 s``, ``11.0 min``, ``2.50 h``."""
    unit = clock_unit(seconds)
    return f"{within(seconds, unit)} {unit.name}"


def utc(seconds: float) -> str:
    """Format a time in UTC; the local time zone would make the report's bytes depend on the machine."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def span(values: Sequence[float]) -> str:
    """Format the range of values as ``low to high``, or as one number if they are equal."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def percent(share: float | None) -> str:
    """Format a share from 0 to 1 in percent with one decimal."""
    if share is None:
        return ABSENT
    return f"{100 * share:.1f} %" if math.isfinite(share) else "not a number"


def count(amount: int, noun: str, plural: str = "") -> str:
    """Format a count: ``1 graph``, ``2 graphs``; ``plural`` if it is not noun + s."""
    return f"{amount:,} {noun if amount == 1 else plural or f'{noun}s'}"


def listing(words: Sequence[str], limit: int = 6) -> str:
    """Join words as ``a, b and c``; beyond ``limit`` words the rest is counted."""
    words = list(words)
    if len(words) > limit:
        words = [*words[: limit - 1], f"{len(words) - limit + 1} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def sentences(*texts: str) -> str:
    """Join texts that are not empty."""
    return " ".join(filter(None, texts))


class Filled(Formatter):
    """Fills texts with a row's values, as ``str.format`` does; a text is empty if one of its values is None.

    ``{x:n}`` is a number, ``{x:%}`` a share in percent (``{x:bare}``: without the sign), ``{x:q}`` and ``{x:clock}`` a
    time with its own unit, ``{x:MiB}`` bytes in MiB; ``{x:t}`` and ``{x:b}`` (or ``{x:b2}``) are times and bytes in the
    one unit that suits all rows.
    """

    def __init__(self, rows: Iterable[dict[str, Any]] = (), *texts: object, **words: object) -> None:
        """Choose each unit by the first of its values in ``texts`` that ``rows`` have; other things are no texts."""
        rows, self._units, self._words = list(rows), dict[str, Unit](), {"t": ABSENT, "b": ABSENT, "b2": ABSENT} | words
        for _, name, spec, _ in (each for text in texts if isinstance(text, str) for each in self.parse(text)):
            if name and spec in ("t", "b", "b2") and spec not in self._units:
                found = [value for row in rows if (value := self.get_field(name, (), row)[0]) is not None]
                if found:
                    self._units[spec] = unit_of(found, "time" if spec == "t" else "bytes")
                    self._words[spec] = self._units[spec].name

    def __call__(self, text: str, row: dict[str, Any]) -> str:
        """Return ``text`` with the values of ``row``."""
        try:
            return self.vformat(text, (), row)
        except _UnknownError:
            return ""

    def said(self, text: str) -> str:
        """Return ``text`` with the words, and the names of the units as ``{t}``, ``{b}`` and ``{b2}``."""
        return text.format(**self._words)

    def get_field(self, name: str, arguments: Any, row: Any) -> Any:
        """Return a value by its name, as in ``pair[0][median_s]``; None if it is part of None."""
        try:
            return super().get_field(name, arguments, row)
        except (AttributeError, TypeError):
            return None, name

    def format_field(self, value: Any, spec: str) -> str:
        """Format one value."""
        if value is None:
            raise _UnknownError
        if spec in self._units:
            return within(value, self._units[spec])
        return _SPECS[spec](value) if spec in _SPECS else str(format(value, spec))


class _UnknownError(Exception):
    """A value is None."""


_SPECS: dict[str, Callable[[Any], str]] = {
    "n": number, "%": percent, "q": quantity, "clock": duration, "MiB": lambda amount: number(amount / 2**20),
    "bare": lambda share: percent(share).removesuffix(" %"),
}  # fmt: skip
