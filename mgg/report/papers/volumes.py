"""Communication volumes of partitions compared with a paper's, such as CoLa's tables 2 and 3."""

from __future__ import annotations

from collections.abc import Sequence

from mgg.report.figures import bars
from mgg.report.page.parts import Cell, Drawing, Grid, Line, Part
from mgg.report.papers.catalogue import claimed_as
from mgg.report.papers.kinds import Volumes
from mgg.report.papers.verdicts import judged, stand_ins
from mgg.report.tables.compute import Row, Rows, group, varied, where
from mgg.report.tables.numbers import ABSENT, count, listing, number, percent, span

MIB = 2**20


def _called(column: str) -> str:
    """Return the paper's name of a column, such as V_CG."""
    return column.upper().replace("COLA", "CoLa")


def parts(tables: dict[str, Rows], name: str, shown: Volumes) -> list[Part]:
    """Show our volumes and the paper's for each graph; empty if no partition moves anything."""
    rows = _rows(tables["quality"], shown)
    if not rows:
        return []
    last, outcome = shown.columns[-1], _least(rows, shown)
    shares: dict[str, list[tuple[str, float, float | None]]] = {}
    for column in shown.against:
        place = shown.columns.index(column)
        ours = [100 * row[last] / row[column] for row in rows]
        theirs = [100 * row["paper"][-1] / row["paper"][place] if row["paper"] else None for row in rows]
        shares[f"{_called(last)} / {_called(column)}"] = [
            (row["name"], mine, paper) for row, mine, paper in zip(rows, ours, theirs, strict=True)
        ]
        printed = [paper for paper in theirs if paper is not None]
        paper = f" ({span(printed)} % in the paper)" if printed else ""
        outcome += f" It is {span(ours)} % of {_called(column)}{paper}."
    told = [outcome, *_elsewhere(rows, shown), *stand_ins(tables["graphs"], rows)]
    svg = bars.paired(shares, f"{_called(last)} as a share (%)", f"{name}v")
    drawing = Drawing(svg, "Less is better; hatched: the paper's graphs.")
    return [Part("Here", " ".join(told), [_grid(rows, shown)], [drawing], outcome)]


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


def _least(rows: Rows, shown: Volumes) -> str:
    """Say whether the last volume is the least on every graph, as in the paper."""
    last = shown.columns[-1]
    least = sum(all(row[last] <= row[column] for column in shown.columns) for row in rows)
    text = f"{_called(last)} is the least of {listing([_called(column) for column in shown.columns])} on {least} of "
    return text + f"{count(len(rows), 'graph')}: {judged(least == len(rows))}."


def _elsewhere(rows: Rows, shown: Volumes) -> list[str]:
    others = sorted({(row["pes"], row["workgroup"]) for row in rows} - {(shown.pes, shown.workgroup)})
    told = [f"{pes} PEs in workgroups of {workgroup}" for pes, workgroup in others]
    return [f"The paper has {shown.pes} in workgroups of {shown.workgroup}, here are {listing(told)}."] if told else []


def _grid(rows: Rows, shown: Volumes) -> Grid:
    def lines(row: Row) -> list[Line]:
        mine = [row[column] * shown.dim / row["dim"] / MIB for column in shown.columns]
        found: list[Line] = [("here", _cells(mine, shown, None))]
        if row["paper"]:
            found.append(("in the paper", _cells(row["paper"], shown, shown.doubtful.get(claimed_as(row["dataset"])))))
        return found

    groups = [(where(row, "name", "pes"), lines(row)) for row in rows]
    note = f"For {shown.dim} columns in fp32, all PEs together."
    note += " Small: the share that is redundant." if shown.redundancy else ""
    note += " Small: what equation 5 gives where the printed value cannot be." if shown.doubtful else ""
    columns = [f"{_called(column)} (MiB)" for column in shown.columns]
    return Grid("Volumes of one product", "volume", columns, groups, note)


def _cells(values: Sequence[float], shown: Volumes, instead: float | None) -> list[Cell]:
    small = ["" for _ in values]
    if shown.redundancy:
        small = [percent(1 - values[-1] / value) if value else ABSENT for value in values[:-1]] + [""]
    elif instead is not None:
        small[0] = f"eq. 5: {number(instead)}"
    return [Cell(number(value), text) for value, text in zip(values, small, strict=True)]
