"""Columns of every table of the report: columns.yaml has them, and the records describe those that are their fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import pyarrow as pa
import yaml
from pydantic import BaseModel

from mgg import records
from mgg.records import graph, job, latency, lookup, prediction

TYPES = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "yes/no": pa.bool_()}
#: Version of the tables; increase it when a column is removed or changes its meaning.
SCHEMA_VERSION = 4
#: Endings of columns that fields of records lack, by unit.
_ENDINGS = {"seconds": "_s", "bytes": "_bytes"}
_TYPES = {str: "text", Literal: "text", dict: "text", int: "integer", float: "number", bool: "yes/no"}
_READ: Any = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_KINDS = {name: kind for kind, columns in _READ["columns"].items() for name in columns}
_UNITS = {name: unit for unit, names in _READ["units"].items() for name in names}


class Column(NamedTuple):
    """One column; ``kind`` is a key of TYPES, ``unit`` is "" for text, counts and ratios, ``field`` is a record's."""

    name: str
    kind: str
    unit: str
    meaning: str
    field: str = ""


def schema(table: str) -> pa.Schema:
    """Return a table's Arrow schema; metadata give its name and version, and each column's unit and meaning."""
    return pa.schema(
        (pa.field(c.name, TYPES[c.kind], metadata={"unit": c.unit, "description": c.meaning}) for c in TABLES[table]),
        metadata={"mgg.table": table, "mgg.schema_version": str(SCHEMA_VERSION), "description": ABOUT[table]},
    )


def _column(name: str, meaning: str, models: list[type[BaseModel]]) -> Column:
    """Return a column: that of a field, or one of columns.yaml; ``meaning``: in place of theirs."""
    unit = "seconds" if name.endswith("_s") else "bytes" if "bytes" in name or re.match("vi?_", name) else ""
    unit = _UNITS.get(name, unit)
    stem, kind = name.removesuffix(_ENDINGS.get(unit, "")), _KINDS.get(name)
    for model, field in product(models, (name, stem, f"{stem}_seconds")):
        info = model.model_fields.get(field)
        found = _kind(info.annotation) if info else None
        if info and found and kind in (None, found):
            told = "JSON: " * ("dict" in str(info.annotation)) + re.sub(r"\bNone\b", "empty", info.description or "")
            return Column(name, found, unit, meaning or told, field)
    return Column(name, _KINDS[name], unit, meaning or _READ["columns"][_KINDS[name]][name])


def _kind(annotation: Any) -> str | None:
    """Return the type of a field's column; None: it cannot be one."""
    origin = get_origin(annotation)
    if origin in (Annotated, Union, UnionType):
        return _kind(get_args(annotation)[0])
    return _TYPES.get(origin or annotation)


def _columns(table: dict[str, Any]) -> Iterator[Column]:
    models = [getattr(module, name) for name in table["records"] for module in _MODULES if hasattr(module, name)]
    for entry in table["columns"]:
        named = entry.items() if isinstance(entry, dict) else ((name, "") for name in entry)
        yield from (_column(name, meaning, models) for name, meaning in named)


_MODULES = (records, graph, job, latency, lookup, prediction)
#: Columns at the end of every table: the origin of a row's record or records.
ORIGIN = [_column(name, "", [records.Origin]) for name in records.Origin.model_fields]
TABLES = {name: [*_columns(table), *ORIGIN] for name, table in _READ["tables"].items()}
#: One line on each table's contents; completes "a row is ...".
ABOUT = {name: str(table["about"]) for name, table in _READ["tables"].items()}
