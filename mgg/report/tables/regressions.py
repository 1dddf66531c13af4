"""Comparison of two reports: what the second one measured slower or less accurate than the first."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mgg.errors import InputError
from mgg.report.tables import spread
from mgg.report.tables.columns import SCHEMA_VERSION, schema

Row = dict[str, Any]

#: Identity of a measurement: these columns, and the place, threads and emulated network from table machines.
#: Versions are excluded, because they are what one compares.
_COMMON = ("dataset", "graph_hash", "machine_id", "device", "backend", "scheme", "dtype", "pes", "technique", "options")
IDENTITY = {
    "aggregate": (*_COMMON, "direction", "dim", "workgroup"),
    "training": (*_COMMON, "model", "side", "settings", "weights", "metric", "seed", "epochs_asked", "activations"),
}
_OF_MACHINES = ("place", "threads", "emulated")
#: Compared columns, and whether a larger value is better.
_MEASURES = {"aggregate": {"median_s": False}, "training": {"median_s": False, "test_accuracy": True}}


def regressions(first: Path, second: Path, threshold: float) -> list[Row]:
    """Return a row for each measurement in either report: its table, identity and change.

    Args:
        first: a report folder, the baseline.
        second: the report folder to compare with it.
        threshold: share of the first value by which the second may be worse.

    Returns:
        Rows with ``table``, the columns of ``IDENTITY``, ``measure``, ``first`` and ``second`` (seconds, or 0 to 1;
        None: not in the report), ``change`` (a share of ``first``; None if there is none), ``result``:
        ``same``, ``better`` or ``worse`` (by more than ``threshold``), ``only in first`` or ``only in second``; and
        ``overlap``: for products, whether the launches of both overlap.

    Raises:
        InputError: a folder is no report, has tables of another schema version or two rows of one measurement; or no
            row is in both.
    """
    found, paired = [], False
    for table, identity in IDENTITY.items():
        sides = [_rows(folder, table) for folder in (first, second)]
        for key in dict.fromkeys([*sides[0], *sides[1]]):
            one, two = (side.get(key) for side in sides)
            paired |= bool(one and two)
            told = {"table": table} | dict(zip((*identity, *_OF_MACHINES), key, strict=True))
            both = spread.overlap(one, two) if table == "aggregate" and one and two else None
            for measure, more in _MEASURES[table].items():
                a, b = (row[measure] if row else None for row in (one, two))
                if a is not None or b is not None:
                    change, result = _change(a, b, threshold, more)
                    result = result if one and two else "only in first" if one else "only in second"
                    values = {"first": a, "second": b, "change": change, "result": result, "overlap": both}
                    found.append(told | {"measure": measure} | values)
    if not paired:
        raise InputError(
            f"{first}, {second}: no measurement is in both: rows pair where graph, machine, PEs, technique, options and"
            " settings are the same (docs/guides/compare.md)"
        )
    return found


def _change(a: float | None, b: float | None, threshold: float, more: bool) -> tuple[float | None, str]:
    """Return how much ``b`` is over ``a``, as a share of it, and what that means if ``more`` is better."""
    change = (b - a) / a if a and b is not None else None
    # From 0 on there is no share, but a better and a worse.
    grown = math.inf * b if change is None and a == 0 and b else change or 0
    worse = -grown if more else grown
    return change, "worse" if worse > threshold else "better" if worse < -threshold else "same"


def _rows(folder: Path, table: str) -> dict[tuple[Any, ...], Row]:
    machines = {row["machine"]: row for row in _read(folder, "machines")}
    found: dict[tuple[Any, ...], Row] = {}
    for read in _read(folder, table):
        row = read | {each: machines[read["machine"]][each] for each in _OF_MACHINES} | {"options": _given(read)}
        # CSV does not distinguish empty text from None.
        key = tuple(None if row[each] == "" else row[each] for each in (*IDENTITY[table], *_OF_MACHINES))
        if other := found.get(key):
            versions = ", ".join(f"{each['mgg_version']} ({each['commit'] or 'no commit'})" for each in (other, row))
            raise InputError(
                f"{folder}: table {table} has two rows of one measurement ({row['label']} on {row['dataset']}), of"
                f" versions {versions}: make a report of each"
            )
        found[key] = row
    return found


def _given(row: Row) -> str:
    """Return the non-default options, because versions may differ in the options they know."""
    usual = json.loads(row.get("defaults") or "{}")
    values = json.loads(row["options"] or "{}")
    return json.dumps({key: value for key, value in values.items() if (key, value) not in usual.items()})


def _read(folder: Path, table: str) -> Iterator[Row]:
    """Read the rows of a report's table from the Parquet file, or else from the CSV file."""
    columns, file = schema(table), folder / f"{table}.parquet"
    try:
        if file.is_file():
            read = pa.parquet.read_table(file)
        else:
            file = folder / f"{table}.csv"
            read = pa.csv.read_csv(file, convert_options=pa.csv.ConvertOptions(column_types=columns))
    except FileNotFoundError:
        raise InputError(f"{folder}: not a report folder of mgg report (no {table}.parquet)") from None
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file}: not readable: {' '.join(str(error).split())}") from None
    # CSV files do not say which version they have.
    version = (read.schema.metadata or {}).get(b"mgg.schema_version", str(SCHEMA_VERSION).encode()).decode()
    lacking = [f"has no column {name}" for name in columns.names if name not in read.column_names]
    if wrong := [f"has version {version} of the tables"] * (version != str(SCHEMA_VERSION)) or lacking:
        raise InputError(
            f"{file}: {wrong[0]}, and this MGG reads version {SCHEMA_VERSION}: make this report anew from its records:"
            f" mgg report RECORDS --out {folder}"
        )
    yield from read.to_pylist()
