"""Is communication hidden? Compares a product with its transfers alone and its arithmetic alone."""

from __future__ import annotations

from mgg.report.figures import bars
from mgg.report.page.parts import Cell, Drawing, Grid, Part, Section
from mgg.report.papers.verdicts import remarks
from mgg.report.tables.compute import SETTING, Row, Rows, graph_names, group, sound
from mgg.report.tables.numbers import count, number, time_unit, within

HEADING = "Is communication hidden?"
#: A product hides the smaller of its parts if it takes at most this many times the larger one.
LIMIT = 1.15
_NONE = (
    "Nothing to show: transfers and arithmetic have to be timed alone (aggregate.breakdown), on several GPUs, by a "
    "technique whose own launch can do either. CPU ranks fetch, then work: they hide nothing."
)


def section(tables: dict[str, Rows]) -> Section | None:
    """Return the section on records outside the papers' figures; None if no product's parts were timed."""
    if not _rows(tables["aggregate"]):
        return None
    intro = (
        f"A product is to take at most {LIMIT} times as long as the larger of its transfers and its arithmetic alone."
    )
    return Section("hidden", HEADING, intro, parts(tables))


def parts(tables: dict[str, Rows], *_: object) -> list[Part]:
    """Return the four numbers of every product, and a figure of their ratios."""
    rows = _rows(tables["aggregate"])
    if not rows:
        return [Part("Not measured", _NONE)]
    names = graph_names(tables["graphs"])
    ratios = {
        f"{names[found[0]['dataset'], found[0]['graph_hash']]}, {count(found[0]['pes'], 'PE')}": [
            (_case(row, rows), row["overlap_ratio"], row["overlap_ratio"] <= LIMIT) for row in found
        ]
        for found in group(rows, "dataset", "graph_hash", "pes").values()
    }
    svg = bars.limited(ratios, LIMIT, "whole product / larger part alone", "hidden")
    caption = f"Time of the whole product over that of its larger part; line: {LIMIT}, up to which the other is hidden."
    text = " ".join([outcome(tables), *remarks([], rows)])
    return [Part("Here", text, [_grid(rows, names)], [Drawing(svg, caption)])]


def outcome(tables: dict[str, Rows], *_: object) -> str:
    """Say how many products hide their communication, and the worst; empty if no product's parts were timed."""
    rows = _rows(tables["aggregate"])
    if not rows:
        return ""
    hidden = sum(row["overlap_ratio"] <= LIMIT for row in rows)
    worst = max(rows, key=lambda row: row["overlap_ratio"])
    return (
        f"In {hidden} of {count(len(rows), 'product')} the whole took at most {LIMIT} times as long as the larger "
        f"part. The most is {number(worst['overlap_ratio'])} times: {_case(worst, rows)} on {worst['dataset']}, "
        f"{count(worst['pes'], 'PE')}."
    )


def _rows(aggregate: Rows) -> Rows:
    return [row for row in sound(aggregate) if row["overlap_ratio"] is not None]


def _case(row: Row, rows: Rows) -> str:
    label = f"{row['label']}, " if len({each["label"] for each in rows}) > 1 else ""
    return f"{label}{row['dtype']}, D = {row['dim']}"


def _grid(rows: Rows, names: dict[tuple[str, str], str]) -> Grid:
    unit = time_unit([row["median_s"] for row in rows])
    groups = []
    for key, found in group(rows, "dataset", "graph_hash", *SETTING, "pes").items():
        lines = []
        for row in sorted(found, key=lambda row: (row["label"], row["dim"])):
            larger = max(row["transfer_s"], row["compute_s"])
            cells = [
                Cell(within(row["median_s"], unit)),
                Cell(within(row["transfer_s"], unit), "larger" if row["transfer_s"] == larger else ""),
                Cell(within(row["compute_s"], unit), "larger" if row["compute_s"] == larger else ""),
                Cell(number(row["overlap_ratio"])),
                Cell("hidden" if row["overlap_ratio"] <= LIMIT else "not hidden"),
            ]
            lines.append((f"{row['label']}, D = {row['dim']}", cells))
        first = found[0]
        where = ", ".join((first["machine"], first["device"], first["scheme"], first["direction"], first["dtype"]))
        groups.append((f"{names[key[0], key[1]]}, {count(first['pes'], 'PE')} ({where})", lines))
    columns = [f"whole ({unit.name})", f"transfers alone ({unit.name})", f"arithmetic alone ({unit.name})"]
    columns += ["whole / larger", f"at most {LIMIT}"]
    note = (
        "Medians of the slowest PE, all of one run. Transfers: every needed remote row, nothing else. Arithmetic: the "
        "local and the remote part, on a halo that is there."
    )
    return Grid("A product and its parts", "product", columns, groups, note)
