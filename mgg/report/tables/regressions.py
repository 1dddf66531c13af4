"""Two reports side by side: what the second one measured slower, or less accurate, than the first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mgg.errors import InputError
from mgg.report.tables import spread
from mgg.report.tables.columns import schema

Row = dict[str, Any]

#: What every measurement is told by: these columns, and of table machines the place and the emulated network. Not
#: the versions, which are what one compares.
_COMMON = ("dataset", "graph_hash", "machine_id", "device", "backend", "scheme", "dtype", "pes", "technique", "options")
IDENTITY = {
    "aggregate": (*_COMMON, "direction", "dim", "workgroup"),
    "training": (*_COMMON, "model", "side", "settings", "weights", "metric", "seed", "asked_epochs", "activations"),
}
_OF_MACHINES = ("place", "emulated")
#: What is compared, and whether more of it is better.
_MEASURES = {"aggregate": {"median": False}, "training": {"median": False, "test_accuracy": True}}


def regressions(first: Path, second: Path, threshold: float) -> list[Row]:
    """A row for each measurement of either report: its table and identity, and what became of it.

    Args:
        first: a report folder, which ``second`` is compared with.
        second: another one.
        threshold: the share of the first value by which the second one may be worse.

    Returns:
        Rows with ``table``, the columns of ``IDENTITY``, ``measure``, ``first`` and ``second`` (seconds, or 0 to 1;
        None: the report does not have it), ``change`` (a share of ``first``; None where there is none), ``result``:
        ``same``, ``better`` or ``worse`` (by more than ``threshold``), ``only in first`` or ``only in second``; and
        ``overlap``: of products, whether the launches of both overlap.

    Raises:
        InputError: a folder is no report, lacks a column, or has two rows of one measurement; or no row is in both.
    """
    found, paired = [], False
    for table, identity in IDENTITY.items():
        sides = [_rows(folder, table) for folder in (first, second)]
        for key in dict.fromkeys([*sides[0], *sides[1]]):
            one, two = (side.get(key) for side in sides)
            paired |= bool(one and two)
            told = dict(zip((*identity, *_OF_MACHINES), key, strict=True))
            for measure, more in _MEASURES[table].items():
                a, b = (row[measure] if row else None for row in (one, two))
                if a is None and b is None:
                    continue
                change = (b - a) / a if a and b is not None else None
                worse = 0 if change is None else -change if more else change
                result = "worse" if worse > threshold else "better" if worse < -threshold else "same"
                if not (one and two):
                    result = "only in first" if one else "only in second"
                both = spread.overlap(one, two) if table == "aggregate" and one and two else None
                found.append(
                    {"table": table, **told, "measure": measure, "first": a, "second": b, "change": change,
                     "result": result, "overlap": both}
                )  # fmt: skip
    if not paired:
        raise InputError(
            f"{first}, {second}: no measurement is in both: rows pair where graph, machine, PEs, technique, options and"
            " settings are the same (docs/compare.md)"
        )
    return found


def _rows(folder: Path, table: str) -> dict[tuple[Any, ...], Row]:
    """The rows of a table by their identity."""
    machines = {row["machine"]: row for row in _read(folder, "machines")}
    found: dict[tuple[Any, ...], Row] = {}
    for row in _read(folder, table):
        row["options"] = _given(row)
        place = (machines[row["machine"]][column] for column in _OF_MACHINES)
        # CSV does not tell an empty text from none.
        key = tuple(None if each == "" else each for each in (*(row[column] for column in IDENTITY[table]), *place))
        if other := found.get(key):
            versions = ", ".join(f"{each['mgg_version']} ({each['commit'] or 'no commit'})" for each in (other, row))
            raise InputError(
                f"{folder}: table {table} has two rows of one measurement ({row['label']} on {row['dataset']}), of"
                f" versions {versions}: make a report of each"
            )
        found[key] = row
    return found


def _given(row: Row) -> str:
    """The options that are not the defaults: a version may have options that another does not know."""
    usual = json.loads(row.get("defaults") or "{}")
    values = json.loads(row["options"] or "{}")
    return json.dumps({key: value for key, value in values.items() if (key, value) not in usual.items()})


def _read(folder: Path, table: str) -> Iterator[Row]:
    """Rows of a table of a report: of the Parquet file, else of the CSV file."""
    columns = schema(table)
    file = folder / f"{table}.parquet"
    try:
        if file.is_file():
            read = pa.parquet.read_table(file)
        else:
            file = folder / f"{table}.csv"
            types = pa.csv.ConvertOptions(column_types=columns)
            read = pa.csv.read_csv(file, convert_options=types)
    except FileNotFoundError:
        raise InputError(f"{folder}: not a report folder of mgg report (no {table}.parquet)") from None
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file}: not readable: {' '.join(str(error).split())}") from None
    lacking = [name for name in columns.names if name not in read.column_names]
    if lacking:
        raise InputError(f"{file}: has no column {lacking[0]}: make the report again with this version of MGG")
    yield from read.to_pylist()
