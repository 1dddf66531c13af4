"""Bytes that crossed between workgroups, beside what CoLa's communication fusion says of them (VI_CoLa)."""

from __future__ import annotations

from mgg.report.numbers import bytes_unit, count, listing, within
from mgg.report.parts import Cell, Grid, Part
from mgg.report.tables import COMPARISON, Rows, graph_names, group


def outcome(aggregate: Rows) -> str:
    """Whether what crossed is VI_CoLa, in a sentence; empty where nothing was counted."""
    rows = _counted(aggregate)
    if not rows:
        return ""
    equal = sum(row["bytes_between"] == row["vi_cola"] for row in rows)
    techniques = listing(sorted({row["technique"] for row in rows}))
    return f"Between workgroups {techniques} moved VI_CoLa in {equal} of {count(len(rows), 'case')}."


def part(tables: dict[str, Rows], technique: str) -> Part | None:
    """Bytes of ``technique`` in workgroups, a line a graph; None where none were counted."""
    rows = [row for row in _counted(tables["aggregate"]) if row["technique"] == technique]
    if not rows:
        return None
    names, groups = graph_names(tables["graphs"]), []
    unit = bytes_unit([row["bytes_wire"] for row in rows])
    shared = [column for column in (*COMPARISON, "workgroup") if column not in ("dataset", "graph_hash")]
    for found in group(rows, *shared).values():
        # Variants of a technique that move the same are one line.
        lines = {
            (row["dataset"], row["graph_hash"], *(row[column] for column in ("bytes_wire", "bytes_between", "vi_cola")))
            for row in found
        }
        one = found[0]
        heading = f"{count(one['pes'], 'PE')} in workgroups of {one['workgroup']}, D = {one['dim']}, {one['direction']}"
        heading += f", {one['dtype']}, partition scheme {one['scheme']} ({one['machine']}, {one['device']})"
        cells = [(names[line[:2]], [Cell(within(size, unit)) for size in line[2:]]) for line in sorted(lines)]
        groups.append((heading, cells))
    columns = [
        f"bytes on the wire ({unit.name})",
        f"of these between workgroups ({unit.name})",
        f"VI_CoLa ({unit.name})",
    ]
    note = "Counted where they crossed, of one product, all PEs; steps that move the same are one line."
    return Part(
        "Bytes between workgroups", outcome(rows), [Grid(f"Bytes of {technique}", "graph", columns, groups, note)]
    )


def _counted(aggregate: Rows) -> Rows:
    return [row for row in aggregate if row["bytes_between"] is not None and row["vi_cola"] is not None]
