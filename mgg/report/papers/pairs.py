"""Individual comparisons: a table and a figure for each, with every case in the records."""

from __future__ import annotations

import json

from mgg.report.figures import bars
from mgg.report.figures.bars import shorten
from mgg.report.page.parts import Cell, Drawing, Grid, Part
from mgg.report.papers.kinds import INFERENCE, Experiment, Versus
from mgg.report.papers.verdicts import CLAIMED, remarks, verdict
from mgg.report.tables.comparisons import LEAST, cases, of, unit_of, values
from mgg.report.tables.compute import SETTING, Rows, graph_names, group
from mgg.report.tables.numbers import ABSENT, number, within


def part(tables: dict[str, Rows], name: str, shown: Experiment, rows: Rows) -> Part:
    """Show the comparisons of the figure ``name`` found in ``rows`` (of table figures, not empty)."""
    names = graph_names(tables["graphs"])
    sentences, grids, drawings = [], [], []
    for number_, versus in enumerate(shown.versus, 1):
        found = _with_cases(of(versus, rows))
        if not found:
            continue
        sentences.append(verdict(versus, found))
        grids.append(_grid(versus, found, names))
        subject, rival = versus.subject.name, versus.rival.name
        svg = bars.paired(
            {
                names[key]: [(row["case"], row["ratio"], row["paper"] or None) for row in of_graph]
                for key, of_graph in group(found, "dataset", "graph_hash").items()
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
    if any(row["ratio"] < LEAST for row in rows):
        sentences.append(f"Ratios below {LEAST} are of times too short to be seen; in a mean they count as {LEAST}.")
    return Part("Here", " ".join([*sentences, *remarks(tables["graphs"], rows)]), grids, drawings)


def _with_cases(rows: Rows) -> Rows:
    """Return the rows in page order, each with the name of its case."""
    ordered = sorted(rows, key=lambda row: (row["model"], row["pes"], row["dim"] or 0, row["options"]))
    return [{**row, "case": case} for row, case in zip(ordered, cases(ordered), strict=True)]


def _grid(versus: Versus, rows: Rows, names: dict[tuple[str, str], str]) -> Grid:
    unit = unit_of(rows)
    groups = []
    for key, found in group(rows, "dataset", "graph_hash", *SETTING).items():
        lines = []
        for row in found:
            cells = [
                *(Cell(within(value, unit)) for value in values(row)),
                Cell(number(row["ratio"])),
                Cell(f"{row['paper']:g}" if row["paper"] else ABSENT),
                Cell(row["verdict"] or ABSENT),
            ]
            lines.append((_unbroken(row["case"]), cells))
        first = found[0]
        conditions = ", ".join(filter(None, (first["machine"], first["device"], first["direction"], first["dtype"])))
        groups.append((f"{names[key[0], key[1]]} ({conditions})", lines))
    subject, rival = versus.subject.name, versus.rival.name
    columns = [f"{subject} ({unit.name})", f"{rival} ({unit.name})", "ratio", CLAIMED[versus.claimed], "verdict"]
    note = (
        f"Medians of the slowest PE: of a product, or of {_pass(versus)} where a model is named. Ratio: the second "
        "time over the first. Verdict: on which of the two is slower, not on by how much."
    )
    note += _options_note(versus, rows)
    return Grid(f"{subject} against {rival}", "case", columns, groups, note)


def _pass(versus: Versus) -> str:
    return "a pass without gradients" if versus.subject.column == INFERENCE else "an epoch"


def _options_note(versus: Versus, rows: Rows) -> str:
    """Describe the options that all comparisons share, without those that distinguish the sides."""
    first, *others = [json.loads(row["options"]) for row in rows]
    apart = {*versus.subject.options, *versus.rival.options}
    kept = {key: value for key, value in first.items() if key not in apart}
    told = [f"{key}={value}" for key, value in sorted(kept.items()) if all(each.get(key) == value for each in others)]
    return f" Options of {versus.subject.technique}: {', '.join(told)}." if told else ""


def _unbroken(case: str) -> str:
    """Return the case with line breaks allowed only after commas."""
    return ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in case.split(", "))
