"""Comparisons of two or many sides: each with its cases, or all with one subject in one table, a column per side."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mgg.report.figures.charts import paired, shorten
from mgg.report.page.parts import Cell, Drawing, Grid, Line, Part, table
from mgg.report.papers.kinds import INFERENCE, Experiment, Versus
from mgg.report.papers.verdicts import CLAIMED, left_out, paper_mean, remarks, summary, telling, verdict
from mgg.report.tables.comparisons import LEAST, cases, mean_ratio, of, unit_of, values
from mgg.report.tables.compute import SETTING, Row, Rows, group, where
from mgg.report.tables.numbers import ABSENT, Unit, number, within


def part(tables: dict[str, Rows], shown: Experiment, rows: Rows) -> Part:
    """Show the comparisons found in ``rows`` (of table figures, not empty)."""
    return (_methods if shown.together else _pairs)(tables, shown, rows)


def _pairs(tables: dict[str, Rows], shown: Experiment, rows: Rows) -> Part:
    """Show each comparison, with every case in the records."""
    sentences, grids, drawings = list[str](), [], []
    for versus in shown.versus:
        found = _with_cases(of(versus, rows))
        if not found:
            continue
        sentences.append(verdict(versus, found))
        grids.append(_grid(versus, found))
        subject, rival = versus.subject.name, versus.rival.name
        ratios = {
            graph: [(row["case"], row["ratio"], row["paper"] or None) for row in of_graph]
            for (graph,), of_graph in group(found, "graph").items()
        }
        axis, about = f"{shorten(rival, 24)} / {shorten(subject, 24)}, time", f"time of {rival} over that of {subject}"
        svg = paired(ratios, axis, about, printed=CLAIMED[versus.claimed])
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
    subject, rival = versus.subject.name, versus.rival.name
    unit, column = ("b", "memory_bytes") if versus.memory else ("t", "median_s")
    columns = [
        (f"{subject} ({{{unit}}})", f"{{subject_{column}:{unit}}}"),
        (f"{rival} ({{{unit}}})", f"{{rival_{column}:{unit}}}"),
        ("ratio", "{ratio:n}"),
        (CLAIMED[versus.claimed], "{paper:g}"),
        ("verdict", "{verdict}"),
    ]
    a_pass = "a pass without gradients" if versus.subject.column == INFERENCE else "an epoch"
    note = (
        f"Medians of the slowest PE: of a product, or of {a_pass} where a model is named. Ratio: the second time over "
        f"the first. Verdict: on which of the two is slower, not on by how much.{_options_note(versus, rows)}"
    )
    caption, heading = f"{subject} against {rival}", "graph (machine, device, direction, dtype)"
    return table(caption, "case", columns, rows, _case, note, by=["graph", *SETTING], heading=heading)


def _case(row: Row) -> str:
    # Lines break only after commas.
    return ", ".join(each.replace(" ", "\N{NO-BREAK SPACE}") for each in row["case"].split(", "))


def _options_note(versus: Versus, rows: Rows) -> str:
    """Describe the options that all comparisons share, without those that distinguish the sides."""
    first, *others = [json.loads(row["options"]) for row in rows]
    apart = {*versus.subject.options, *versus.rival.options}
    kept = {key: value for key, value in first.items() if key not in apart}
    told = [f"{key}={value}" for key, value in sorted(kept.items()) if all(each.get(key) == value for each in others)]
    return f" Options of {versus.subject.technique}: {', '.join(told)}." if told else ""


#: Columns that the comparisons in a block of a table share; each graph is a line of the block.
_BLOCK = ("machine", "device", "scheme", "direction", "dtype", "model", "pes", "dim")


def _methods(tables: dict[str, Rows], shown: Experiment, rows: Rows) -> Part:
    """Show techniques side by side, one column each."""
    known = [{**row, "dim": row["dim"] or 0} for row in rows]
    blocks = [(_block(found[0]), found) for found in group(known, *_BLOCK).values()]
    grids = [_times(shown.versus, rows, blocks) if _one_subject(shown) else _means(shown, blocks)]
    said = " ".join(filter(None, [left_out(rows), *remarks(tables["graphs"], rows)]))
    found = [verdict(versus, some) for versus in told(shown) if (some := telling(of(versus, rows)))]
    outcome = " ".join(filter(None, [*found, left_out(rows)]))
    if not telling(rows):
        return Part("Here", said, grids, outcome=outcome)
    drawn = {heading: _bars(told(shown), telling(found)) for heading, found in blocks if telling(found)}
    axis = f"{_what(shown.versus)} over that of {told(shown)[0].subject.name}"
    svg = paired(drawn, axis if _one_subject(shown) else "shuffled / reordered, time", quotients=True)
    caption = "Geometric means over the graphs"
    hatched = any(paper is not None for values in drawn.values() for _, _, paper in values)
    caption += "; hatched: the paper's for the same cases." if hatched else "."
    return Part("Here", said, [summary(told(shown), rows), *grids], [Drawing(svg, caption)], outcome)


def told(shown: Experiment) -> list[Versus]:
    """Return the comparisons to sum up in words: all with one subject, else those of a technique with itself."""
    if _one_subject(shown):
        return list(shown.versus)
    return [versus for versus in shown.versus if versus.subject.technique == versus.rival.technique]


def _what(versus: Sequence[Versus]) -> str:
    return "memory" if versus[0].memory else "time"


def _one_subject(shown: Experiment) -> bool:
    return len({versus.subject.name for versus in shown.versus}) == 1


def _block(row: Row) -> str:
    what = where(row, "pes", "model" if row["model"] else "dim", "direction", "dtype")
    return f"{what} ({where(row, 'machine', 'device')})"


def _bars(versus: Sequence[Versus], rows: Rows) -> list[tuple[str, float, float | None]]:
    """Return the name, our mean and the paper's mean of each comparison."""
    found = [(each.rival.name.removesuffix(", shuffled"), of(each, rows)) for each in versus]
    most = {each.rival.name for each in versus if each.claimed == "most"}  # the paper gives no mean for these
    return [(name, mean_ratio(some), None if name in most else paper_mean(some)) for name, some in found if some]


def _times(versus: Sequence[Versus], rows: Rows, blocks: Sequence[tuple[str, Rows]]) -> Grid:
    """Return a line per graph, with the subject after the rivals."""
    unit, what = unit_of(rows), _what(versus)
    subject = versus[0].subject.name
    place = sum(bool(each.claims) for each in versus)
    groups = []
    for heading, found in blocks:
        lines: list[Line] = []
        for (graph,), of_graph in group(found, "graph").items():
            best = min(min(values(row)) for row in of_graph)
            cells = [_rival(each, of(each, of_graph), unit, best) for each in versus]
            mine, _ = values(of_graph[0])
            cells.insert(place, Cell(within(mine, unit), "", mine == best))
            lines.append((graph, cells))
        means = [_mean(of(each, found), _upto(each)) for each in versus]
        means.insert(place, Cell("1 x"))
        groups.append((heading, [*lines, ("geometric mean", means)] if len(lines) > 1 else lines))
    columns = [f"{each.rival.name} ({unit.name})" for each in versus]
    columns.insert(place, f"{subject} ({unit.name})")
    measured = (
        "The most memory that was held of a GPU at a time, on the PE with the most."
        if what == "memory"
        else "Medians of the slowest PE: of a product, or of an epoch where a model is named."
    )
    note = (
        f"{measured} Below it the {what} over that of {subject} here, and in the paper for this graph or the one that "
        "it stands for."
    )
    return Grid(f"{what.capitalize()} of each, and over that of {subject}", "graph", columns, groups, note)


def _upto(versus: Versus) -> str:
    return "up to " if versus.claimed == "most" else ""


def _rival(versus: Versus, rows: Rows, unit: Unit, best: float) -> Cell:
    if not rows:
        return Cell(ABSENT)
    row = rows[0]
    paper = f"; paper {_upto(versus)}{number(row['paper'])} x" if row["paper"] else ""
    _, other = values(row)
    return Cell(within(other, unit), f"{number(row['ratio'])} x{paper}", other == best)


def _mean(rows: Rows, upto: str = "") -> Cell:
    if not rows:
        return Cell(ABSENT)
    paper = paper_mean(rows)
    return Cell(f"{number(mean_ratio(rows))} x", f"paper {upto}{number(paper)} x" if paper else "")


def _means(shown: Experiment, blocks: Sequence[tuple[str, Rows]]) -> Grid:
    """Return a line per subject and a column per rival, as in CoLa's table 10."""
    others = [versus for versus in shown.versus if versus not in told(shown)]
    rivals = list(dict.fromkeys(versus.rival.name for versus in others))
    groups = []
    for heading, found in blocks:
        lines = []
        for subject in dict.fromkeys(versus.subject.name for versus in others):
            at = {each.rival.name: _mean(of(each, found)) for each in others if each.subject.name == subject}
            lines.append((subject, [at.get(rival, Cell(ABSENT)) for rival in rivals]))
        groups.append((heading, lines))
    note = "Geometric means over the graphs of the column's time over the line's."
    return Grid("Every order of each", "", rivals, groups, note)
