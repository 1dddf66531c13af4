"""Is communication hidden? Compares a product with its transfers alone and its arithmetic alone."""

from __future__ import annotations

from mgg.report.figures import bars
from mgg.report.page.parts import Cell, Columns, Drawing, Grid, Part, Section, table
from mgg.report.papers.verdicts import remarks
from mgg.report.tables.compute import SETTING, Row, Rows, group, sound, varied, where
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
    (part,) = parts(tables)
    intro = (
        f"A product is to take at most {LIMIT} times as long as the larger of its transfers and its arithmetic alone."
    )
    return Section("hidden", HEADING, intro, [part], outcome=part.outcome) if part.outcome else None


def parts(tables: dict[str, Rows], *_: object) -> list[Part]:
    """Return the four numbers of every product, and a figure of their ratios."""
    rows = [row for row in sound(tables["aggregate"]) if row["overlap_ratio"] is not None]
    if not rows:
        return [Part("Not measured", _NONE)]
    case = (*varied(rows, "label"), "dtype", "dim")
    ratios = {
        where(found[0], "graph", "pes"): [
            (where(row, *case), row["overlap_ratio"], row["overlap_ratio"] <= LIMIT) for row in found
        ]
        for found in group(rows, "graph", "pes").values()
    }
    svg = bars.limited(ratios, LIMIT, "whole product / larger part alone", "hidden")
    caption = f"Time of the whole product over that of its larger part; line: {LIMIT}, up to which the other is hidden."
    worst = max(rows, key=lambda row: row["overlap_ratio"])
    told = (
        f"In {sum(row['overlap_ratio'] <= LIMIT for row in rows)} of {count(len(rows), 'product')} the whole took at "
        f"most {LIMIT} times as long as the larger part. The most is {number(worst['overlap_ratio'])} times: "
        f"{where(worst, *case)} on {where(worst, 'dataset', 'pes')}."
    )
    return [Part("Here", " ".join([told, *remarks([], rows)]), [_grid(rows)], [Drawing(svg, caption)], told)]


def _grid(rows: Rows) -> Grid:
    unit = time_unit([row["median_s"] for row in rows])

    def larger(row: Row, column: str) -> Cell:
        most = row[column] == max(row["transfer_s"], row["compute_s"])
        return Cell(within(row[column], unit), "larger" if most else "")

    columns: Columns = [
        (f"whole ({unit.name})", lambda row: within(row["median_s"], unit)),
        (f"transfers alone ({unit.name})", lambda row: larger(row, "transfer_s")),
        (f"arithmetic alone ({unit.name})", lambda row: larger(row, "compute_s")),
        ("whole / larger", lambda row: number(row["overlap_ratio"])),
        (f"at most {LIMIT}", lambda row: "hidden" if row["overlap_ratio"] <= LIMIT else "not hidden"),
    ]
    note = (
        "Medians of the slowest PE, all of one run. Transfers: every needed remote row, nothing else. Arithmetic: the "
        "local and the remote part, on a halo that is there."
    )
    ordered = sorted(rows, key=lambda row: (row["label"], row["dim"]))
    heading = "graph, pes (machine, device, scheme, direction, dtype)"
    by = ["graph", *SETTING, "pes"]
    return table("A product and its parts", "product", columns, ordered, "label, dim", note, by=by, heading=heading)
