"""Is communication hidden? Compares a product with its transfers alone and its arithmetic alone."""

from __future__ import annotations

from mgg.report.figures.charts import Bar, bars
from mgg.report.page.parts import Drawing, Part, Section, chapter, grid, say
from mgg.report.papers.verdicts import remarks
from mgg.report.tables.compute import Rows, group, sound, varied, where
from mgg.report.tables.numbers import number, sentences

#: A product hides the smaller of its parts if it takes at most this many times the larger one.
LIMIT = 1.15
_NONE = (
    "Nothing to show: transfers and arithmetic have to be timed alone (aggregate.breakdown), on several GPUs, by a "
    "technique whose own launch can do either. CPU ranks fetch, then work: they hide nothing."
)


def section(tables: dict[str, Rows]) -> Section | None:
    """Return the section on records outside the papers' figures; None if no product's parts were timed."""
    (part,) = parts(tables)
    return chapter("hidden", [part] if part.outcome else [], outcome=part.outcome)


def parts(tables: dict[str, Rows], *_: object) -> list[Part]:
    """Return the four numbers of every product, and a figure of their ratios."""
    rows = [row for row in sound(tables["aggregate"]) if row["overlap_ratio"] is not None]
    if not rows:
        return [Part("Not measured", _NONE)]
    case = (*varied(rows, "label"), "dtype", "dim")
    hidden = [row["overlap_ratio"] <= LIMIT for row in rows]
    told = [
        row
        | {"verdict": "hidden" if within else "not hidden"}
        | {"larger": "transfers" if row["transfer_s"] > row["compute_s"] else "arithmetic"}
        for row, within in zip(rows, hidden, strict=True)
    ]
    told.sort(key=lambda row: (row["label"], row["dim"]))
    ratios = {
        where(found[0], "graph", "pes"): [
            Bar(where(row, *case), row["overlap_ratio"], number(row["overlap_ratio"])) for row in found
        ]
        for found in group(rows, "graph", "pes").values()
    }
    svg = bars(ratios, f"whole product / larger part alone, limit {LIMIT}", limit=LIMIT)
    caption = f"Time of the whole product over that of its larger part; line: {LIMIT}, up to which the other is hidden."
    worst = max(rows, key=lambda row: row["overlap_ratio"])
    text = say("hidden", LIMIT, sum(hidden), len(rows), worst, case)
    table, intro = grid("hidden", told, limit=LIMIT), sentences(text, remarks([], rows))
    return [Part("Here", intro, [table], [Drawing(svg, caption)], text)]
