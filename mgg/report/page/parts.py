"""What the page is made of: tables, figures and sections, before they become HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup


@dataclass(frozen=True)
class Cell:
    """A cell: main text, small second line, whether it is the best of its comparison, shade of 1 to 8 (a heat map),
    and what a pointer on it is told.
    """

    text: str
    small: str = ""
    best: bool = False
    heat: int = 0
    hint: str = ""

    @property
    def look(self) -> str:
        """The cell's class in the style sheet, if any."""
        return "best" if self.best else f"heat{self.heat}" if self.heat else ""


@dataclass(frozen=True)
class Grid:
    """A table of the page: groups of (heading or "", rows of a name and its cells).

    ``prose``: cells hold sentences; ``dense``: there are many small ones; ``words``: columns of words, not numbers.
    """

    caption: str
    corner: str
    columns: Sequence[str]
    groups: Sequence[tuple[str, Sequence[tuple[str, Sequence[Cell]]]]]
    note: str = ""
    prose: bool = False
    dense: bool = False
    words: Sequence[str] = ()


@dataclass(frozen=True)
class Drawing:
    """A figure: the SVG and its caption."""

    svg: Markup
    caption: str


@dataclass(frozen=True)
class Part:
    """Tables and figures under one heading; ``folded``: they show when it is opened."""

    heading: str
    intro: str
    grids: Sequence[Grid] = ()
    drawings: Sequence[Drawing] = ()
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """One graph, or the training on one graph; ``folded``: what is below its heading shows when it is opened."""

    anchor: str
    heading: str
    intro: str
    parts: Sequence[Part] = field(default_factory=list)
    folded: bool = False
