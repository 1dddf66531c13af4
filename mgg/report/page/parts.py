"""Building blocks of the page (tables, figures and sections) before they become HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from markupsafe import Markup

from mgg.report.tables.compute import Row, Rows, group, where
from mgg.report.tables.numbers import ABSENT, Filled


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
#: What a cell shows of a row: a function, or a text of ``numbers.Filled`` with lines for text, small line and tooltip.
Show = str | Callable[[Row], Cell | str]
#: Columns of a table: headings, and what a row shows there. A heading has units as ``{t}`` and ``{b}``.
Columns = Sequence[tuple[str, Show]]


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
    line, head, filled = _described(name), _described(heading), Filled(rows, *(show for _, show in columns))
    groups = [
        (head(found[0]), [(line(row), [_cell(filled, show, row) for _, show in columns]) for row in found])
        for found in group(rows, *by).values()
    ]
    headings = [filled.units(each) for each, _ in columns]
    return Grid(filled.units(caption), corner, headings, groups, filled.units(note), words=words)


def pivot(
    caption: str, corner: str, rows: Rows, line: Words, over: str, show: Show, note: str = "", *,
    by: Sequence[str] = (), heading: Words = "", at: Callable[[Any], str] | None = None, best: str = "",
    prose: bool = False, dense: bool = False,
) -> Grid:  # fmt: skip
    """Return a table with a line per name ``line``, in the order of rows, and a column per value of column ``over``.

    Args:
        caption: its heading; like ``note`` with units as ``{t}`` and ``{b}``.
        corner: heading of the first column.
        rows: one per cell; of several the last one counts.
        line: the name of a row's line.
        over: the column whose values are the columns.
        show: what a cell shows.
        note: shown below.
        by: columns whose values are groups, with ``heading``.
        heading: of a group.
        at: the heading of a value of ``over``.
        best: column that says whether a cell is the best of its comparison.
        prose: as for ``Grid``.
        dense: as for ``Grid``.
    """
    name, head, filled = _described(line), _described(heading), Filled(rows, show)
    places, groups = sorted({row[over] for row in rows}), []
    for found in group(rows, *by).values():
        lines = dict[str, dict[Any, Cell]]()
        for row in found:
            cell = _cell(filled, show, row)
            lines.setdefault(name(row), {})[row[over]] = replace(cell, best=True) if row.get(best) else cell
        told = [(each, [cells.get(place, Cell(ABSENT)) for place in places]) for each, cells in lines.items()]
        groups.append((head(found[0]), told))
    columns = [at(place) if at else where({over: place}, over) for place in places]
    return Grid(filled.units(caption), corner, columns, groups, filled.units(note), prose, dense)


def _described(words: Words) -> Callable[[Row], str]:
    if not isinstance(words, str):
        return words
    told, conditions = (part.split(", ") if part else [] for part in words.removesuffix(")").partition(" (")[::2])
    return lambda row: where(row, *told) + (f" ({where(row, *conditions)})" if conditions else "")


def _cell(filled: Filled, show: Show, row: Row) -> Cell:
    if not isinstance(show, str):
        shown = show(row)
        return Cell(shown) if isinstance(shown, str) else shown
    text, *others = (filled(each, row) for each in show.split("\n"))
    small, hint, *_ = [*others, "", ""]
    return Cell(text or ABSENT, small, hint=hint)


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
