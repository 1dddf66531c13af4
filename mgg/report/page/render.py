"""Render the tables as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import count as numbers
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from mgg.report.figures import charts, svg, timeline
from mgg.report.page import findings, glossary, graphs, lookups, products, training
from mgg.report.page.parts import Section, chapter
from mgg.report.papers import advisor, predictions
from mgg.report.papers import sections as papers
from mgg.report.papers.catalogue import FORESEEN
from mgg.report.tables import choice, jobs, mgg_sweep
from mgg.report.tables.columns import ABOUT, TABLES
from mgg.report.tables.compute import Rows
from mgg.report.tables.numbers import count


class Page(NamedTuple):
    """The HTML of a report, and its sections with figures by kind."""

    html: str
    illustrated: dict[str, list[Section]]


def render(tables: dict[str, Rows], title: str, experiments: Sequence[tuple[str, str]] = ()) -> Page:
    """Render the whole report; all text from records is escaped.

    ``experiments``: names of the papers' figures to show, each with a remark or "".
    """
    shown = products.told(advisor.telling(mgg_sweep.telling(tables["aggregate"])))
    everything, tables = tables, tables | {"aggregate": shown}
    others = (graphs.described, lookups.section, choice.section, predictions.section)
    told = [found for each in others if (found := each(tables))]
    looks, compared = charts.looks(row["label"] for row in shown), papers.sections(everything, experiments)
    foreseen = [predictions.foreseen(tables, name, note) for name, note in experiments if name in FORESEEN]
    worked = [*timeline.parts(tables["jobs"]), *jobs.parts(tables["jobs"], tables["requests"])]
    sections = {
        "aggregate": products.sections(tables, looks),
        "train": training.sections(tables),
        "papers": [*compared, *foreseen, *told],
        "jobs": [found] if (found := chapter("jobs", worked)) else [],
    }
    split, ids = graphs.partitions(tables), numbers(1)
    figures = (drawing for section in sections["train"] for part in section.parts for drawing in part.drawings)
    html = _template().render(
        title=title,
        answers=findings.answers(tables, everything),
        overview=products.overview(tables, looks) or list(figures)[:2],
        findings=[*papers.outcomes([*compared, *told]), *findings.others(tables)],
        fastest=products.fastest(tables),
        chapters=[*sections["papers"], *sections["aggregate"], *sections["train"], *([split] if split else [])],
        checks=products.checks(tables),
        after=[graphs.ran(tables, folded=bool(shown or tables["training"])), *sections["jobs"]],
        files=[(name, f"{count(len(everything[name]), 'row')}; {ABOUT[name]}") for name in TABLES if everything[name]],
        terms=glossary.terms(),
        # Ids are unique in the page.
        inline=lambda drawing: Markup(drawing.svg.replace(svg.ID, f"f{next(ids)}-")),  # nosec B704
    )
    return Page(html, sections)


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"linked": glossary.linked, "hinted": glossary.hinted, "technique": glossary.technique}
    return environment.get_template("page.html.j2")
