"""Volumes of partitions beside a paper's (CoLa's tables 2 and 3), and bytes counted between workgroups."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mgg.report.figures.charts import paired
from mgg.report.page.parts import Drawing, Grid, Part, grid, say
from mgg.report.papers.catalogue import claimed_as
from mgg.report.papers.kinds import Volumes
from mgg.report.papers.verdicts import judged, stand_ins
from mgg.report.tables.compute import COMPARISON, GRAPH, Rows, group, varied, where
from mgg.report.tables.numbers import number, percent, sentences

MIB = 2**20


def _called(column: str) -> str:
    """Return the paper's name of a column, such as V_CG."""
    return column.upper().replace("COLA", "CoLa")


def parts(tables: dict[str, Rows], _: str, shown: Volumes) -> list[Part]:
    """Show our volumes and the paper's for each graph; empty if no partition moves anything."""
    rows = _rows(tables["quality"], shown)
    if not rows:
        return []
    last, drawn, shares = shown.columns[-1], {}, []
    for column in shown.against:
        place = shown.columns.index(column)
        ours = [100 * row[last] / row[column] for row in rows]
        theirs = [100 * row["paper"][-1] / row["paper"][place] if row["paper"] else None for row in rows]
        names = [row["name"] for row in rows]
        drawn[f"{_called(last)} / {_called(column)}"] = list(zip(names, ours, theirs, strict=True))
        shares.append((_called(column), ours, [paper for paper in theirs if paper is not None]))
    least = sum(all(row[last] <= row[column] for column in shown.columns) for row in rows)
    called = [_called(column) for column in shown.columns]
    outcome = say("least", _called(last), called, least, len(rows), judged(least == len(rows)), shares)
    others = sorted({(row["pes"], row["workgroup"]) for row in rows} - {(shown.pes, shown.workgroup)})
    told = sentences(outcome, say("elsewhere", shown, others), stand_ins(tables["graphs"], rows))
    drawing = Drawing(paired(drawn, f"{_called(last)} as a share (%)"), "Less is better; hatched: the paper's graphs.")
    return [Part("Here", told, [_grid(rows, shown)], [drawing], outcome)]


def _rows(quality: Rows, shown: Volumes) -> Rows:
    """Return, per graph and scheme, the partition for the paper's number of PEs (else the most), one workgroup size.

    They have a ``name``, and the paper's volumes as ``paper``, empty if it has none.
    """
    rows = []
    for found in group((row for row in quality if row[shown.columns[-1]]), "graph", "scheme").values():
        pes = {row["pes"] for row in found}
        alike = [row for row in found if row["pes"] == (shown.pes if shown.pes in pes else max(pes))]
        rows.append(min(alike, key=lambda row: (abs(row["workgroup"] - shown.workgroup), abs(row["dim"] - shown.dim))))
    named = ("graph", *varied(rows, "scheme"))
    return [
        {**row, "name": where(row, *named), "paper": shown.printed.get(claimed_as(row["dataset"]), ())} for row in rows
    ]


def _grid(rows: Rows, shown: Volumes) -> Grid:
    lines: Rows = []
    for row in rows:
        mine = [row[column] * shown.dim / row["dim"] / MIB for column in shown.columns]
        lines.append({**row, "line": "here", "values": mine, "small": _small(mine, shown)})
        if row["paper"]:
            doubtful = _small(row["paper"], shown, shown.doubtful.get(claimed_as(row["dataset"])))
            lines.append({**row, "line": "in the paper", "values": row["paper"], "small": doubtful})
    small = " Small: the share that is redundant." if shown.redundancy else ""
    small += " Small: what equation 5 gives where the printed value cannot be." if shown.doubtful else ""
    columns = {f"{_called(name)} (MiB)": f"{{values[{n}]:n}}\n{{small[{n}]}}" for n, name in enumerate(shown.columns)}
    return grid("volumes", lines, columns, dim=shown.dim, small=small)


def _small(values: Sequence[float], shown: Volumes, instead: float | None = None) -> list[str]:
    """Return the redundant share of each volume, or what the first one should be."""
    if shown.redundancy:
        return [percent(1 - values[-1] / value if value else None) for value in values[:-1]] + [""]
    return ["" if instead is None else f"eq. 5: {number(instead)}", *[""] * (len(values) - 1)]


_BYTES = ("bytes_wire", "bytes_between", "vi_fc", "vi_cola")
_ONCE = "a row once a workgroup (VI_CoLa)"


def between_told(aggregate: Rows) -> str:
    """Say whether the bytes equal VI_CoLa, or VI_FC without fusion; empty if nothing was counted."""
    told = []
    for fused, column, name in ((True, "vi_cola", _ONCE), (False, "vi_fc", "a row once a PE (VI_FC)")):
        rows = [row for row in _counted(aggregate) if row["fused"] == fused and not row["otherwise"]]
        if rows:
            equal = sum(row["bytes_between"] == row[column] for row in rows)
            told.append((sorted({row["technique"] for row in rows}), fused, name, equal, len(rows)))
    return say("between", told) if told else ""


def between(tables: dict[str, Rows], _: str, technique: str) -> list[Part]:
    """Show the bytes of ``technique`` in workgroups: a line per graph, another without fusion; empty if not counted."""
    rows = [row for row in _counted(tables["aggregate"]) if row["technique"] == technique]
    if not rows:
        return []
    shared = [column for column in (*COMPARISON, "workgroup") if column not in GRAPH]
    named = [
        {
            **row,
            "name": f"{row['graph']}{'' if row['fused'] else ', without fusion'}{row['otherwise']}",
            "groups": f"workgroups of {row['workgroup']}",
            "bytes": str([row[column] for column in _BYTES]),
        }
        for row in rows
    ]
    # Variants of a technique that move the same bytes share a line.
    lines = [found[0] for found in group(named, *shared, "name", "bytes").values()]
    table = grid("between", lines, by=shared, technique=technique)
    return [Part("Bytes between workgroups", between_told(rows), [table])]


def _counted(aggregate: Rows) -> Rows:
    """Return the rows that have the bytes between workgroups and the volumes.

    ``fused``: a row crosses once per workgroup instead of once per PE; ``otherwise`` describes options (sums that
    cross, packed rows) that these volumes do not cover.
    """
    rows = []
    for row in aggregate:
        if row["bytes_between"] is not None and row["vi_cola"] is not None:
            options = json.loads(row["options"])
            told = {"split": options.get("split", "rows"), "wire": options.get("wire") or row["dtype"]}
            plain = {"split": "rows", "wire": row["dtype"]}
            otherwise = "".join(f", {key}: {value}" for key, value in told.items() if value != plain[key])
            rows.append(row | {"fused": bool(options.get("fusion", True)), "otherwise": otherwise})
    return rows
