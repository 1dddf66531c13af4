"""Individual comparisons: a table and a figure for each, with every case in the records."""

from __future__ import annotations

import json

from mgg.report.figures import bars
from mgg.report.figures.bars import shorten
from mgg.report.page.parts import Columns, Drawing, Grid, Part, table
from mgg.report.papers.kinds import INFERENCE, Experiment, Versus
from mgg.report.papers.verdicts import CLAIMED, left_out, remarks, verdict
from mgg.report.tables.comparisons import LEAST, cases, of, unit_of, values
from mgg.report.tables.compute import SETTING, Row, Rows, group, where
from mgg.report.tables.numbers import ABSENT, number, within


def part(tables: dict[str, Rows], name: str, shown: Experiment, rows: Rows) -> Part:
    """Show the comparisons of the figure ``name`` found in ``rows`` (of table figures, not empty)."""
    sentences, grids, drawings = list[str](), [], []
    for number_, versus in enumerate(shown.versus, 1):
        found = _with_cases(of(versus, rows))
        if not found:
            continue
        sentences.append(verdict(versus, found))
        grids.append(_grid(versus, found))
        subject, rival = versus.subject.name, versus.rival.name
        svg = bars.paired(
            {
                graph: [(row["case"], row["ratio"], row["paper"] or None) for row in of_graph]
                for (graph,), of_graph in group(found, "graph").items()
            },
            f"{shorten(rival, 24)} / {shorten(subject, 24)}, time",
            f"{name}r{number_}",
            printed=CLAIMED[versus.claimed],
            about=f"time of {rival} over that of {subject}",
            note="{:g}".format,
        )
        caption = f"Time of “{rival}” over that of “{subject}”"
        caption += "; hatched: what the paper gives." if any(row["paper"] for row in found) else "."
        drawings.append(Drawing(svg, caption))
    outcome = " ".join(filter(None, [*sentences, left_out(rows)]))
    if any(row["ratio"] < LEAST for row in rows):
        sentences.append(f"Ratios below {LEAST} are of times too short to be seen; in a mean they count as {LEAST}.")
    return Part("Here", " ".join([*sentences, *remarks(tables["graphs"], rows)]), grids, drawings, outcome)


def _with_cases(rows: Rows) -> Rows:
    """Return the rows in page order, each with the name of its case."""
    ordered = sorted(rows, key=lambda row: (row["model"], row["pes"], row["dim"] or 0, row["options"]))
    return [{**row, "case": case} for row, case in zip(ordered, cases(ordered), strict=True)]


def _grid(versus: Versus, rows: Rows) -> Grid:
    unit, subject, rival = unit_of(rows), versus.subject.name, versus.rival.name
    columns: Columns = [
        (f"{subject} ({unit.name})", lambda row: within(values(row)[0], unit)),
        (f"{rival} ({unit.name})", lambda row: within(values(row)[1], unit)),
        ("ratio", lambda row: number(row["ratio"])),
        (CLAIMED[versus.claimed], lambda row: f"{row['paper']:g}" if row["paper"] else ABSENT),
        ("verdict", lambda row: row["verdict"] or ABSENT),
    ]
    a_pass = "a pass without gradients" if versus.subject.column == INFERENCE else "an epoch"
    note = (
        f"Medians of the slowest PE: of a product, or of {a_pass} where a model is named. Ratio: the second time over "
        "the first. Verdict: on which of the two is slower, not on by how much."
    )
    return table(
        f"{subject} against {rival}",
        "case",
        columns,
        rows,
        # Lines break only after commas.
        lambda row: ", ".join(each.replace(" ", "\N{NO-BREAK SPACE}") for each in row["case"].split(", ")),
        note + _options_note(versus, rows),
        by=["graph", *SETTING],
        heading=_heading,
    )


def _heading(row: Row) -> str:
    return f"{row['graph']} ({where(row, 'machine', 'device', 'direction', 'dtype')})"


def _options_note(versus: Versus, rows: Rows) -> str:
    """Describe the options that all comparisons share, without those that distinguish the sides."""
    first, *others = [json.loads(row["options"]) for row in rows]
    apart = {*versus.subject.options, *versus.rival.options}
    kept = {key: value for key, value in first.items() if key not in apart}
    told = [f"{key}={value}" for key, value in sorted(kept.items()) if all(each.get(key) == value for each in others)]
    return f" Options of {versus.subject.technique}: {', '.join(told)}." if told else ""
