"""Origins of table rows: the origin of a row's record or of all its records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mgg.record import Origin

COLUMNS = tuple(Origin.model_fields)
_BETWEEN = ", "


def origin_of(record: Origin) -> dict[str, Any]:
    """Return the origin columns of a row made from one record."""
    return {column: getattr(record, column) for column in COLUMNS}


def joined(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the origin columns of a row made from ``rows``: distinct values in ascending order; the latest time."""
    rows = list(rows)
    found: dict[str, Any] = {}
    for column in COLUMNS:
        values = {value for row in rows if row[column] for value in row[column].split(_BETWEEN)}
        found[column] = _BETWEEN.join(sorted(values)) or None
    found["recorded_at"] = max(row["recorded_at"] for row in rows)
    return found


def without(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without the origin columns."""
    return {column: value for column, value in row.items() if column not in COLUMNS}
