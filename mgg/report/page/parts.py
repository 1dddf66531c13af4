"""Building blocks of the page (tables, figures and sections) before they become HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from mgg.report.tables.compute import Row, Rows, group, where
from mgg.report.tables.numbers import ABSENT


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
#: Columns of a table: headings, and what a row shows there.
Columns = list[tuple[str, Callable[[Row], Cell | str]]]


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


#: What describes a row: a function, or columns as in ``graph, pes (machine, device)``.
Words = str | Callable[[Row], str]


def table(
    caption: str, corner: str, columns: Columns, rows: Rows, name: Words, note: str = "", *,
    by: Sequence[str] = (), heading: Words = "", words: Sequence[str] = (),
) -> Grid:  # fmt: skip
    """Return a table with a line per row, called ``name``, and a group per value of the columns ``by``."""
    line, head = _described(name), _described(heading)
    groups = [
        (head(found[0]), [(line(row), [_cell(show(row)) for _, show in columns]) for row in found])
        for found in group(rows, *by).values()
    ]
    return Grid(caption, corner, [each for each, _ in columns], groups, note, words=words)


def _described(words: Words) -> Callable[[Row], str]:
    if not isinstance(words, str):
        return words
    told, conditions = (part.split(", ") if part else [] for part in words.removesuffix(")").partition(" (")[::2])
    return lambda row: where(row, *told) + (f" ({where(row, *conditions)})" if conditions else "")


def across(
    rows: Iterable[Row], line: Words, over: str, places: Iterable[Any], show: Callable[[Row], Cell | str]
) -> list[Line]:
    """Return a line per name ``line``, in the order of rows, with a cell at each of ``places`` of the column ``over``.

    Of several rows at a place the last one counts.
    """
    found, name = dict[str, dict[Any, Cell]](), _described(line)
    for row in rows:
        found.setdefault(name(row), {})[row[over]] = _cell(show(row))
    places = list(places)
    return [(each, [at.get(place, Cell(ABSENT)) for place in places]) for each, at in found.items()]


def _cell(shown: Cell | str) -> Cell:
    return Cell(shown) if isinstance(shown, str) else shown


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
