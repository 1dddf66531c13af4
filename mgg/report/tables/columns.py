"""Columns of every table of the report: name, type, unit and meaning, all defined in docs/reference/tables.md."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

TYPES = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "yes/no": pa.bool_()}
#: Version of the tables; increase it when a column is removed or changes its meaning.
SCHEMA_VERSION = 4
#: Heading of the columns at the end of every table: the origin of a row's record or records.
_EVERY = "every table"


class Column(NamedTuple):
    """One column; ``kind`` is a key of TYPES, ``unit`` is "" for text, counts and ratios."""

    name: str
    kind: str
    unit: str
    meaning: str


def schema(table: str) -> pa.Schema:
    """Return a table's Arrow schema; metadata give its name and version, and each column's unit and meaning."""
    return pa.schema(
        (pa.field(c.name, TYPES[c.kind], metadata={"unit": c.unit, "description": c.meaning}) for c in TABLES[table]),
        metadata={"mgg.table": table, "mgg.schema_version": str(SCHEMA_VERSION), "description": ABOUT[table]},
    )


def _description() -> str:
    """Read the description: from this module's folder in a wheel, from docs/reference/tables.md in a checkout."""
    packaged = Path(str(resources.files("mgg.report.tables"))) / "tables.md"
    path = packaged if packaged.is_file() else Path(__file__).parents[3] / "docs" / "reference" / "tables.md"
    return path.read_text(encoding="utf-8")


def _columns(section: str) -> list[Column]:
    lines = (line for line in section.splitlines() if line.startswith("| `"))
    rows = ([cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines)
    return [Column(name.strip("`"), kind, unit.removeprefix("-"), meaning) for name, kind, unit, meaning in rows]


def _about(section: str) -> str:
    """Return the first line of a section, without links and full stop: ``one row per ...``."""
    line = re.sub(r" \(\[.*?\)\)", "", section.strip().splitlines()[0]).rstrip(".")
    return line[:1].lower() + line[1:]


_SECTIONS = dict(part.split("\n", 1) for part in re.split(r"^### ", _description(), flags=re.M)[1:])
ORIGIN = _columns(_SECTIONS.pop(_EVERY))
TABLES = {name: [*_columns(text), *ORIGIN] for name, text in _SECTIONS.items()}
#: One line on each table's contents; completes "a row is ...".
ABOUT = {name: _about(text) for name, text in _SECTIONS.items()}
