"""Building blocks of the page (tables, figures and sections) before they become HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from statistics import geometric_mean
from types import MappingProxyType
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mgg.report.tables.compute import SETTING, Row, Rows, group, where
from mgg.report.tables.numbers import ABSENT, Filled, count, listing, number, percent, quantity, span


@dataclass(frozen=True)
class Cell:
    """A cell: main text, small second line, whether it is the best of its comparison, heat-map shade from 1 to 8, and
    tooltip.
    """

    text: str
    small: str = ""
    best: bool = False
    heat: int = 0
    hint: str = ""

    @property
    def look(self) -> str:
        """Return the cell's CSS class, if any."""
        return "best" if self.best else f"heat{self.heat}" if self.heat else ""


Line = tuple[str, Sequence[Cell]]
#: What cells of a column show by its heading: a text of ``numbers.Filled`` with lines for text, small line and tooltip;
#: None: there is no such column.
Columns = Mapping[str, str | None]


@dataclass(frozen=True)
class Grid:
    """A table: groups of (heading or "", rows), where a row is a name and its cells.

    ``prose``: cells hold sentences; ``dense``: many small cells; ``words``: columns of words instead of numbers.
    """

    caption: str
    corner: str
    columns: Sequence[str]
    groups: Sequence[tuple[str, Sequence[Line]]]
    note: str = ""
    prose: bool = False
    dense: bool = False
    words: Sequence[str] = ()


@cache
def read(name: str) -> dict[str, Any]:
    """Return the contents of a YAML file of this package."""
    found: dict[str, Any] = yaml.safe_load(Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8"))
    return found


@cache
def _sentences() -> Any:
    # Text, which is escaped where it goes into the page.
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, undefined=StrictUndefined)  # nosec B701
    environment.filters |= {
        "count": count, "listing": listing, "number": number, "percent": percent, "quantity": quantity,
        "mean": geometric_mean, "span": lambda values, scale=1: span([scale * value for value in values]),
        "values": lambda rows, column: [str(each) for each in sorted({row[column] for row in rows})],
        "where": where, "join_each": lambda each, text: listing([Filled().vformat(text, one, {}) for one in each]),
    }  # fmt: skip
    return environment.get_template("sentences.j2").module


def say(name: str, *arguments: Any, **words: Any) -> str:
    """Return the sentences of a macro of sentences.j2 as one line."""
    return re.sub("[ \n]+", " ", str(getattr(_sentences(), name)(*arguments, **words))).strip()


def grid(
    name: str, rows: Rows, columns: Columns = MappingProxyType({}), *, over: str = "",
    at: Callable[[Any], str] | None = None, places: Sequence[Any] = (), by: Sequence[str] = (), heading: str = "",
    prose: bool = False, **words: object,
) -> Grid:  # fmt: skip
    """Return the table ``name`` of tables.yaml.

    Args:
        name: the entry.
        rows: what is shown, a line each, or a cell each where there is a column per value of ``over``; of several
            rows of a cell the last one counts. Lines are in the order of rows.
        columns: more columns; one of a heading of the entry replaces it, and None leaves it out. Optional columns of
            the entry are left out if they are empty.
        over: in place of the entry's, as are ``by``, ``heading``, and ``at``, from a value.
        at: see ``over``.
        places: the values of ``over``; empty: those of ``rows``.
        by: see ``over``.
        heading: see ``over``.
        prose: as for ``Grid``.
        words: what the entry's caption, corner, note and headings name in braces.
    """
    made = {"line": "", "over": "", "show": "", "heading": "", "best": "", "note": "", "optional": ()} | read("tables")[
        name
    ]
    over, show, cell = over or made["over"], made["show"], partial(_cell, made["best"])
    shown = {each: text for each, text in {**made.get("columns", {}), **columns}.items() if text}
    filled = Filled(rows, show, *shown.values(), **words)
    empty = {each for each in made["optional"] if not any(filled(shown[each].split("\n")[0], row) for row in rows)}
    shown = {each: text for each, text in shown.items() if each not in empty}
    line, head = _described(filled, made["line"]), _described(filled, heading or made["heading"])
    places, groups = places or (sorted({row[over] for row in rows}) if over else []), []
    names = by or made.get("by", ())
    for found in group(rows, *(each for one in names for each in (SETTING if one == "setting" else [one]))).values():
        lines: list[Line] = [(line(row), [cell(filled, each, row) for each in shown.values()]) for row in found]
        if over:
            cells = dict[str, dict[Any, Cell]]()
            for row in found:
                cells.setdefault(line(row), {})[row[over]] = cell(filled, show, row)
            lines = [(each, [of.get(place, Cell(ABSENT)) for place in places]) for each, of in cells.items()]
        groups.append((head(found[0]), lines))
    at = at or (made["at"].format if "at" in made else lambda place: where({over: place}, over))
    headings = [at(place) for place in places] if over else list(map(filled.said, shown))
    caption, corner, note = (filled.said(made[each]) for each in ("caption", "corner", "note"))
    return Grid(caption, corner, headings, groups, note, prose, made.get("dense", False), made.get("words", ()))


def _described(filled: Filled, words: str) -> Callable[[Row], str]:
    """Return what describes a row: a text with its fields, or their names as in ``graph, pes (machine, device)``."""
    if "{" in words:
        return lambda row: filled(words, row)
    told, conditions = (part.split(", ") if part else [] for part in words.removesuffix(")").partition(" (")[::2])
    return lambda row: where(row, *told) + (f" ({where(row, *conditions)})" if conditions else "")


def _cell(best: str, filled: Filled, show: str, row: Row) -> Cell:
    text, small, hint, *_ = [*(filled(each, row) for each in show.split("\n")), "", ""]
    return Cell((text or ABSENT).strip(), small, bool(row.get(best)), row.get("heat", 0), hint)


@dataclass(frozen=True)
class Drawing:
    """A figure: SVG and caption."""

    svg: Markup
    caption: str


@dataclass(frozen=True)
class Part:
    """Tables and figures under one heading; ``outcome`` says what came out, if the figure of a paper is told by it."""

    heading: str
    intro: str
    grids: Sequence[Grid] = ()
    drawings: Sequence[Drawing] = ()
    outcome: str = ""


@dataclass(frozen=True)
class Section:
    """A section; ``folded`` hides it until it is opened, ``outcome`` says at the top of the page what came out."""

    anchor: str
    heading: str
    intro: str
    parts: Sequence[Part] = field(default_factory=list)
    folded: bool = False
    outcome: str = ""


def chapter(name: str, parts: Sequence[Part], *, folded: bool = False, outcome: str = "") -> Section | None:
    """Return a section of texts.yaml; None without parts."""
    told = read("texts")["sections"][name]
    return Section(name, told["heading"], told["intro"], parts, folded, outcome) if parts else None
