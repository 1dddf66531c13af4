"""Bytes between workgroups next to CoLa's volumes: VI_CoLa, and VI_FC without fusion."""

from __future__ import annotations

import json
from operator import itemgetter

from mgg.report.page.parts import Columns, Part, table
from mgg.report.tables.compute import COMPARISON, GRAPH, Row, Rows, group, where
from mgg.report.tables.numbers import bytes_unit, count, listing, within

#: Columns and their names on the page.
_SHOWN = {
    "bytes_wire": "bytes on the wire",
    "bytes_between": "of these between workgroups",
    "vi_fc": "VI_FC",
    "vi_cola": "VI_CoLa",
}
_ONCE = "a row once a workgroup (VI_CoLa)"


def outcome(aggregate: Rows) -> str:
    """Say whether the bytes equal VI_CoLa, or VI_FC without fusion; empty if nothing was counted."""
    told = []
    for fused, column, name in ((True, "vi_cola", _ONCE), (False, "vi_fc", "a row once a PE (VI_FC)")):
        rows = [row for row in _counted(aggregate) if _fused(row) == fused and not _otherwise(row)]
        if rows:
            equal = sum(row["bytes_between"] == row[column] for row in rows)
            subject = listing(sorted({row["technique"] for row in rows})) + ("" if fused else " without fusion")
            told.append(f"{subject} moved {name} in {equal} of {count(len(rows), 'case')}")
    return f"Between workgroups {', '.join(told)}." if told else ""


def parts(tables: dict[str, Rows], _: str, technique: str) -> list[Part]:
    """Show the bytes of ``technique`` in workgroups: a line per graph, another without fusion; empty if not counted."""
    rows = [row for row in _counted(tables["aggregate"]) if row["technique"] == technique]
    if not rows:
        return []
    unit = bytes_unit([row["bytes_wire"] for row in rows])
    shared = [column for column in (*COMPARISON, "workgroup") if column not in GRAPH]
    named = [{**row, "name": _name(row), **{c: within(row[c], unit) for c in _SHOWN}} for row in rows]
    # Variants of a technique that move the same bytes share a line.
    lines = [found[0] for found in group(named, *shared, "name", *_SHOWN).values()]
    columns: Columns = [(f"{name} ({unit.name})", itemgetter(column)) for column, name in _SHOWN.items()]
    note = "Counted where they crossed, of one product, all PEs; steps that move the same are one line."
    grid = table(
        f"Bytes of {technique}", "graph", columns, lines, lambda row: row["name"], note, by=shared, heading=_heading
    )
    return [Part("Bytes between workgroups", outcome(rows), [grid])]


def _heading(row: Row) -> str:
    text = f"{count(row['pes'], 'PE')} in workgroups of {row['workgroup']}, {where(row, 'dim', 'direction', 'dtype')}"
    return f"{text}, partition scheme {row['scheme']} ({where(row, 'machine', 'device')})"


def _name(row: Row) -> str:
    return f"{row['graph']}{'' if _fused(row) else ', without fusion'}{_otherwise(row)}"


def _fused(row: Row) -> bool:
    """Return whether a row crosses once per workgroup instead of once per PE: true unless option fusion is off."""
    return bool(json.loads(row["options"]).get("fusion", True))


def _otherwise(row: Row) -> str:
    """Describe options (sums that cross, packed rows) that these volumes do not cover; empty if there are none."""
    options = json.loads(row["options"])
    told = {"split": options.get("split", "rows"), "wire": options.get("wire") or row["dtype"]}
    plain = {"split": "rows", "wire": row["dtype"]}
    return "".join(f", {key}: {value}" for key, value in told.items() if value != plain[key])


def _counted(aggregate: Rows) -> Rows:
    return [row for row in aggregate if row["bytes_between"] is not None and row["vi_cola"] is not None]
