"""Communication volumes of partitions compared with a paper's, such as CoLa's tables 2 and 3."""

from __future__ import annotations

from collections.abc import Sequence

from mgg.report.figures import bars
from mgg.report.page.parts import Cell, Drawing, Grid, Part
from mgg.report.papers.catalogue import claimed_as
from mgg.report.papers.kinds import Volumes
from mgg.report.papers.verdicts import stand_ins
from mgg.report.tables.comparisons import AGREES, DISAGREES
from mgg.report.tables.compute import Row, Rows, graph_names, group
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
    names = graph_names(tables["graphs"])
    told = [outcome(tables, shown), *_elsewhere(rows, shown), *stand_ins(tables["graphs"], rows)]
    svg = bars.paired(_shares(rows, shown, names), f"{_called(shown.columns[-1])} as a share (%)", f"{name}v")
    caption = "Less is better; hatched: the paper's graphs."
    return [Part("Here", " ".join(told), [_grid(rows, shown, names)], [Drawing(svg, caption)])]


def outcome(tables: dict[str, Rows], shown: Volumes) -> str:
    """Say whether the last volume is the least on every graph, as in the paper; empty without partitions."""
    rows = _rows(tables["quality"], shown)
    if not rows:
        return ""
    last = shown.columns[-1]
    least = sum(all(row[last] <= row[column] for column in shown.columns) for row in rows)
    text = f"{_called(last)} is the least of {listing([_called(column) for column in shown.columns])} on {least} of "
    text += f"{count(len(rows), 'graph')}: {AGREES if least == len(rows) else DISAGREES}."
    for column in shown.against:
        shares = [100 * row[last] / row[column] for row in rows]
        printed = [100 * ours / theirs for ours, theirs in _printed_pairs(rows, shown, column)]
        paper = f" ({span(printed)} % in the paper)" if printed else ""
        text += f" It is {span(shares)} % of {_called(column)}{paper}."
    return text


def _rows(quality: Rows, shown: Volumes) -> Rows:
    """Return, per graph and scheme, the partition for the paper's number of PEs (else the most), one workgroup size."""
    found = []
    for rows in group((row for row in quality if row[shown.columns[-1]]), "dataset", "graph_hash", "scheme").values():
        alike = [row for row in rows if row["pes"] == shown.pes] or [
            row for row in rows if row["pes"] == max(each["pes"] for each in rows)
        ]
        found.append(min(alike, key=lambda row: (abs(row["workgroup"] - shown.workgroup), abs(row["dim"] - shown.dim))))
    return found


def _elsewhere(rows: Rows, shown: Volumes) -> list[str]:
    others = sorted({(row["pes"], row["workgroup"]) for row in rows} - {(shown.pes, shown.workgroup)})
    told = [f"{pes} PEs in workgroups of {workgroup}" for pes, workgroup in others]
    return [f"The paper has {shown.pes} in workgroups of {shown.workgroup}, here are {listing(told)}."] if told else []


def _printed(row: Row, shown: Volumes) -> Sequence[float]:
    return shown.printed.get(claimed_as(row["dataset"]), ())


def _printed_pairs(rows: Rows, shown: Volumes, column: str) -> list[tuple[float, float]]:
    """Return the paper's last volume and its ``column``, for the graphs in the paper."""
    place = shown.columns.index(column)
    return [(printed[-1], printed[place]) for row in rows if (printed := _printed(row, shown))]


def _shares(
    rows: Rows, shown: Volumes, names: dict[tuple[str, str], str]
) -> dict[str, list[tuple[str, float, float | None]]]:
    """Return our share and the paper's in percent, per volume in ``against`` and graph."""
    found: dict[str, list[tuple[str, float, float | None]]] = {}
    last = shown.columns[-1]
    for column in shown.against:
        bars = []
        for row in rows:
            printed = _printed(row, shown)
            paper = 100 * printed[-1] / printed[shown.columns.index(column)] if printed else None
            bars.append((_name(row, rows, names), 100 * row[last] / row[column], paper))
        found[f"{_called(last)} / {_called(column)}"] = bars
    return found


def _name(row: Row, rows: Rows, names: dict[tuple[str, str], str]) -> str:
    scheme = f", {row['scheme']}" if len({each["scheme"] for each in rows}) > 1 else ""
    return f"{names[row['dataset'], row['graph_hash']]}{scheme}"


def _grid(rows: Rows, shown: Volumes, names: dict[tuple[str, str], str]) -> Grid:
    groups = []
    for row in rows:
        mine = [row[column] * shown.dim / row["dim"] / MIB for column in shown.columns]
        lines = [("here", _cells(mine, shown, None))]
        if printed := _printed(row, shown):
            lines.append(("in the paper", _cells(printed, shown, shown.doubtful.get(claimed_as(row["dataset"])))))
        groups.append((f"{_name(row, rows, names)}, {count(row['pes'], 'PE')}", lines))
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
