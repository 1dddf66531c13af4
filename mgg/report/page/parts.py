"""Building blocks of the page (tables, figures and sections) before they become HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup


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


@dataclass(frozen=True)
class Grid:
    """A table: groups of (heading or "", rows), where a row is a name and its cells.

    ``prose``: cells hold sentences; ``dense``: many small cells; ``words``: columns of words instead of numbers.
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
    """A figure: SVG and caption."""

    svg: Markup
    caption: str


@dataclass(frozen=True)
class Part:
    """Tables and figures under one heading; ``folded`` hides them until it is opened."""

    heading: str
    intro: str
    grids: Sequence[Grid] = ()
    drawings: Sequence[Drawing] = ()
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A section on one graph or the training on it; ``folded`` hides its contents until it is opened."""

    anchor: str
    heading: str
    intro: str
    parts: Sequence[Part] = field(default_factory=list)
    folded: bool = False
