"""Where the rows of tables come from: the origin of a row's record, or of all the records that it is made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mgg.record import Origin

COLUMNS = tuple(Origin.model_fields)
_BETWEEN = ", "


def origin_of(record: Origin) -> dict[str, Any]:
    """The columns of a row that one record makes."""
    return {column: getattr(record, column) for column in COLUMNS}


def joined(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The columns of a row that ``rows`` make: the values of each, once, in ascending order; of times the latest."""
    rows = list(rows)
    found: dict[str, Any] = {}
    for column in COLUMNS:
        values = {value for row in rows if row[column] for value in row[column].split(_BETWEEN)}
        found[column] = _BETWEEN.join(sorted(values)) or None
    found["recorded_at"] = max(row["recorded_at"] for row in rows)
    return found


def without(row: dict[str, Any]) -> dict[str, Any]:
    """A row without these columns."""
    return {column: value for column, value in row.items() if column not in COLUMNS}
