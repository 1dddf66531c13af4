"""Comparisons of two or many sides: each with its cases, or all with one subject in one table, a column per side."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from mgg.report.figures.charts import paired, shorten
from mgg.report.page.parts import Drawing, Grid, Part, grid, read
from mgg.report.papers.catalogue import EXPERIMENTS
from mgg.report.papers.kinds import INFERENCE, Experiment, Versus
from mgg.report.papers.verdicts import left_out, paper_mean, remarks, summary, telling, verdict
from mgg.report.tables.collect import canonical
from mgg.report.tables.comparisons import LEAST, mean_ratio, of
from mgg.report.tables.compute import Row, Rows, group, where
from mgg.report.tables.numbers import number, sentences, unit_of, within

#: What the kinds of numbers of the papers are called.
_CLAIMED = read("texts")["claimed"]


def parts(tables: dict[str, Rows], name: str, _: object) -> list[Part]:
    """Show the comparisons of a figure that are in the records; empty if none is."""
    shown, rows = EXPERIMENTS[name], [row for row in tables["figures"] if row["figure"] == name]
    return [(_methods if shown.together else _pairs)(tables, shown, rows)] if rows else []


def _pairs(tables: dict[str, Rows], shown: Experiment, rows: Rows) -> Part:
    """Show each comparison, with every case in the records."""
    told_, grids, drawings = list[str](), [], []
    for versus in shown.versus:
        found = _with_cases(of(versus, rows))
        if not found:
            continue
        told_.append(verdict(versus, found))
        grids.append(_grid(versus, found))
        subject, rival = versus.subject.name, versus.rival.name
        ratios = {
            graph: [(row["case"], row["ratio"], row["paper"] or None) for row in of_graph]
            for (graph,), of_graph in group(found, "graph").items()
        }
        axis, about = f"{shorten(rival, 24)} / {shorten(subject, 24)}, time", f"time of {rival} over that of {subject}"
        svg = paired(ratios, axis, about, printed=_CLAIMED[versus.claimed])
        caption = f"Time of “{rival}” over that of “{subject}”"
        caption += "; hatched: what the paper gives." if any(row["paper"] for row in found) else "."
        drawings.append(Drawing(svg, caption))
    outcome = sentences(*told_, left_out(rows))
    if any(row["ratio"] < LEAST for row in rows):
        told_.append(f"Ratios below {LEAST} are of times too short to be seen; in a mean they count as {LEAST}.")
    return Part("Here", sentences(*told_, remarks(tables["graphs"], rows)), grids, drawings, outcome)


def _with_cases(rows: Rows) -> Rows:
    """Return the rows in page order, each with its case: PEs, width or model, and distinguishing options."""
    ordered, found = sorted(rows, key=lambda row: (row["model"], row["pes"], row["dim"] or 0, row["options"])), []
    options = [json.loads(row["options"]) for row in ordered]
    varying = sorted({key for each in options for key in each if len({canonical(o.get(key)) for o in options}) > 1})
    for row, each in zip(ordered, options, strict=True):
        told = [each[key] if isinstance(each[key], str) else f"{key}={each[key]}" for key in varying if key in each]
        found.append(row | {"case": ", ".join([where(row, "pes", "model" if row["model"] else "dim"), *told])})
    return found


def _grid(versus: Versus, rows: Rows) -> Grid:
    a_pass = "a pass without gradients" if versus.subject.column == INFERENCE else "an epoch"
    unit, told = unit_of([row["mine"] for row in rows], "bytes" if versus.memory else "time"), list[Row]()
    for row in rows:
        mine, other = within(row["mine"], unit), within(row["other"], unit)
        # Lines break only after commas.
        case = re.sub("(?<!,) ", "\N{NO-BREAK SPACE}", row["case"])
        told.append(row | {"case": case, "mine": mine, "other": other})
    return grid(
        "pair", told, subject=versus.subject.name, rival=versus.rival.name, claimed=_CLAIMED[versus.claimed],
        a_pass=a_pass, unit=unit.name, options=_options_note(versus, rows),
    )  # fmt: skip


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
    one_subject = len({versus.subject.name for versus in shown.versus}) == 1
    # Those that are summed up in words: all with one subject, else those of a technique with itself.
    told = [each for each in shown.versus if one_subject or each.subject.technique == each.rival.technique]
    known = [{**row, "dim": row["dim"] or 0} for row in rows]
    blocks = [(_block(found[0]), found) for found in group(known, *_BLOCK).values()]
    grids = [
        _times(told, rows, blocks)
        if one_subject
        else _means([each for each in shown.versus if each not in told], blocks)
    ]
    said = sentences(left_out(rows), remarks(tables["graphs"], rows))
    found = [verdict(versus, some) for versus in told if (some := telling(of(versus, rows)))]
    outcome = sentences(*found, left_out(rows))
    if not telling(rows):
        return Part("Here", said, grids, outcome=outcome)
    drawn = {heading: _bars(told, telling(found)) for heading, found in blocks if telling(found)}
    axis = f"{_what(told)} over that of {told[0].subject.name}" if one_subject else "shuffled / reordered, time"
    caption = "Geometric means over the graphs"
    hatched = any(paper is not None for values in drawn.values() for _, _, paper in values)
    caption += "; hatched: the paper's for the same cases." if hatched else "."
    return Part(
        "Here", said, [summary(told, rows), *grids], [Drawing(paired(drawn, axis, quotients=True), caption)], outcome
    )


def _what(versus: Sequence[Versus]) -> str:
    return "memory" if versus[0].memory else "time"


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
    what, subject = _what(versus), versus[0].subject.name
    unit = unit_of([row["mine"] for row in rows], "bytes" if versus[0].memory else "time")
    names, cells = [each.rival.name for each in versus], list[Row]()
    names.insert(sum(bool(each.claims) for each in versus), subject)
    for block, (heading, found) in enumerate(blocks):
        graphs = [(graph, alike) for (graph,), alike in group(found, "graph").items()]
        for line, alike in [*graphs, *[("geometric mean", found)] * (len(graphs) > 1)]:
            told = [(subject, alike[0]["mine"], 1.0, "")]
            told += [(each.rival.name, *_paper(each, some)) for each in versus if (some := of(each, alike))]
            best, mean = min(value for _, value, *_ in told), line == "geometric mean"
            for name, value, ratio, paper in told:
                over = f"{number(ratio)} x"
                small = "" if name == subject else "; ".join(filter(None, [over, paper]))
                shown = (over, paper) if mean else (within(value, unit), small)
                cell = {"block": block, "heading": heading, "line": line, "place": names.index(name)}
                cells.append(cell | {"shown": shown[0], "small": shown[1], "best": value == best and not mean})
    measured = (
        "The most memory that was held of a GPU at a time, on the PE with the most."
        if what == "memory"
        else "Medians of the slowest PE: of a product, or of an epoch where a model is named."
    )
    words: dict[str, Any] = {"What": what.capitalize(), "what": what, "subject": subject, "measured": measured}
    at, places = (lambda place: f"{names[place]} ({unit.name})"), range(len(names))
    return grid("methods", cells, at=at, places=places, **words)


def _paper(versus: Versus, rows: Rows) -> tuple[float, float, str]:
    """Return the rival's first value, the mean ratio, and the paper's in words, if it has one."""
    paper, upto = paper_mean(rows), "up to " if versus.claimed == "most" else ""
    return rows[0]["other"], mean_ratio(rows), f"paper {upto}{number(paper)} x" if paper else ""


def _means(others: Sequence[Versus], blocks: Sequence[tuple[str, Rows]]) -> Grid:
    """Return a line per subject and a column per rival, as in CoLa's table 10."""
    rivals = list(dict.fromkeys(versus.rival.name for versus in others))
    cells = [
        {"block": block, "heading": heading, "subject": each.subject.name, "place": rivals.index(each.rival.name)}
        | {"mean": mean_ratio(some), "paper": paper_mean(some)}
        for block, (heading, found) in enumerate(blocks)
        for each in others
        if (some := of(each, found))
    ]
    return grid("orders", cells, at=rivals.__getitem__, places=range(len(rivals)))
