"""The columns of every table of the report: name, type, unit and meaning, which docs/tables.md tells, and it alone."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

TYPES = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "yes/no": pa.bool_()}
#: Of the tables: it grows where a column goes, or gets another meaning.
SCHEMA_VERSION = 3
#: The heading of the columns that every table ends with: where a row's record comes from, or all that it is made of.
_EVERY = "every table"


class Column(NamedTuple):
    """One column; ``kind`` is a key of TYPES, ``unit`` is "" for text, counts and ratios."""

    name: str
    kind: str
    unit: str
    meaning: str


def schema(table: str) -> pa.Schema:
    """The Arrow schema of a table; its metadata say which table and version, those of a column unit and meaning."""
    return pa.schema(
        (pa.field(c.name, TYPES[c.kind], metadata={"unit": c.unit, "description": c.meaning}) for c in TABLES[table]),
        metadata={"mgg.table": table, "mgg.schema_version": str(SCHEMA_VERSION), "description": ABOUT[table]},
    )


def _description() -> str:
    """In a wheel the file lies beside this module; in a checkout it is docs/tables.md."""
    packaged = Path(str(resources.files("mgg.report.tables"))) / "tables.md"
    path = packaged if packaged.is_file() else Path(__file__).parents[3] / "docs" / "tables.md"
    return path.read_text(encoding="utf-8")


def _columns(section: str) -> list[Column]:
    lines = (line for line in section.splitlines() if line.startswith("| `"))
    rows = ([cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines)
    return [Column(name.strip("`"), kind, unit.removeprefix("-"), meaning) for name, kind, unit, meaning in rows]


def _about(section: str) -> str:
    """The first line of a section, without links and its full stop: ``one row a ...``."""
    line = re.sub(r" \(\[.*?\)\)", "", section.strip().splitlines()[0]).rstrip(".")
    return line[:1].lower() + line[1:]


_SECTIONS = dict(part.split("\n", 1) for part in re.split(r"^### ", _description(), flags=re.M)[1:])
ORIGIN = _columns(_SECTIONS.pop(_EVERY))
TABLES = {name: [*_columns(text), *ORIGIN] for name, text in _SECTIONS.items()}
#: What each table holds, one line; a row is ...
ABOUT = {name: _about(text) for name, text in _SECTIONS.items()}
