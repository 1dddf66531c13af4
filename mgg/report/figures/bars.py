"""Bar charts of the report: groups of bars with their values next to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from mgg.report.figures.svg import INK, SERIES, draw, horizontal
from mgg.report.tables.numbers import number

LONGEST = 26  # characters of a label in a figure; tables show it in full
_ROW = 0.185  # inches per bar
_WIDE = 30  # ratios that differ by more than this factor are drawn on a logarithmic axis


def shorten(text: str, longest: int) -> str:
    """Shorten ``text`` in the middle to at most ``longest`` characters."""
    half = (longest - 1) // 2
    return text if len(text) <= longest else f"{text[:half]}…{text[-(longest - 1 - half) :]}"


@dataclass(frozen=True)
class Bar:
    """One bar; ``ends`` is its whisker, ``note`` the text after it; without ``color`` it is only hatched."""

    name: str
    value: float
    note: str
    color: str | None = None
    ends: tuple[float, float] | None = None
    strong: bool = False

    @property
    def end(self) -> float:
        """Return the end of the bar or of its whisker."""
        return max(self.value, self.ends[1]) if self.ends else self.value


@dataclass(frozen=True)
class Bars:
    """Bars under one heading."""

    heading: str
    bars: list[Bar]


def told(groups: Sequence[Bars]) -> str:
    """Describe the bars for a screen reader."""
    return "; ".join(f"{each.heading}, {bar.name}: {bar.note}" for each in groups for bar in each.bars)


def paired(
    groups: Mapping[str, Sequence[tuple[str, float, float | None]]],
    axis: str,
    key: str,
    *,
    quotients: bool = False,
    printed: str = "in the paper",
    about: str = "",
    note: Callable[[float], str] = number,
) -> Markup:
    """Draw, per heading, bars of (name, our value, the paper's if any); the paper's are hatched.

    Args:
        groups: the bars.
        axis: name of the axis.
        key: as for ``draw``.
        quotients: values are quotients of times; their bars start at 1, on a logarithmic axis if they differ widely.
        printed: name of the paper's bars.
        about: what the bars show, for screen readers; empty: the axis.
        note: formats the paper's values.
    """
    found = []
    for heading, values in groups.items():
        bars = []
        for name, ours, paper in values:
            bars.append(Bar(shorten(name, LONGEST), ours, number(ours), SERIES[0]))
            if paper is not None:
                bars.append(Bar(printed, paper, note(paper)))
        found.append(Bars(heading, bars))
    heights = [bar.value for each in found for bar in each.bars]
    log = quotients and max(heights) > _WIDE * min(heights) > 0
    return drawn(found, axis, key=key, alt=f"Bar chart: {about or axis}. {told(found)}.", log=log)


def limited(groups: Mapping[str, Sequence[tuple[str, float, bool]]], limit: float, axis: str, key: str) -> Markup:
    """Draw, per heading, bars of (name, value, whether it is within ``limit``) and a line at the limit."""

    def bar(name: str, value: float, within_: bool) -> Bar:
        return Bar(shorten(name, LONGEST), value, number(value) + ("" if within_ else " beyond"), SERIES[0])

    found = [Bars(heading, [bar(*each) for each in values]) for heading, values in groups.items()]
    return drawn(found, axis, key=key, alt=f"Bar chart: {axis}, limit {limit:g}. {told(found)}.", limit=limit)


def drawn(
    groups: Sequence[Bars], axis: str, *, key: str, alt: str, limit: float | None = None, log: bool = False
) -> Markup:
    """Draw the groups one below the other; ``limit``: a line across all; ``log``: logarithmic bars from 1."""
    bars = [bar for each in groups for bar in each.bars]
    top = max(limit or 0.0, *(bar.end for bar in bars)) or 1.0

    def plot(figure: Figure) -> None:
        axes = horizontal(figure, axis, 5)
        ticks: list[float] = []
        place = 0.0
        for each in groups:
            axes.text(0.01, place, each.heading, weight="bold", va="center", transform=axes.get_yaxis_transform())
            for bar in each.bars:
                place += 1
                ticks.append(place)
                _bar(axes, bar, place, top, log, limit or 0.0)
            place += 1.3
        if limit is not None:
            axes.axvline(limit, color=INK, linestyle=(0, (4, 2)), linewidth=1.2)
        axes.set_yticks(ticks, [bar.name for bar in bars])
        axes.set_ylim(place - 0.7, -0.7)
        # Room for the notes behind the longest bar.
        if log:
            axes.set_xscale("log")
            axes.set_xlim(min(1.0, *(bar.value for bar in bars)) / 1.5, top * (top**0.25))
            axes.axvline(1, color=INK, linewidth=0.8)
            axes.xaxis.set_major_locator(LogLocator(10))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        else:
            axes.set_xlim(0, top * (1.5 if any(bar.strong for bar in bars) else 1.25))

    return draw(plot, key=key, alt=alt, height=0.6 + _ROW * (len(bars) + 1.3 * len(groups)))


def _bar(axes: Axes, bar: Bar, place: float, top: float, log: bool, limit: float) -> None:
    start = 1.0 if log else 0.0
    at: Any = {"y": place, "width": bar.value - start, "left": start, "edgecolor": INK}
    if bar.color:
        axes.barh(**at, height=0.7, color=bar.color, linewidth=1.6 if bar.strong else 0)
    else:
        axes.barh(**at, height=0.55, facecolor="none", linewidth=0.8, hatch="////")
    if bar.ends:
        axes.plot(bar.ends, [place, place], color=INK, linewidth=1.2, marker="|", markersize=5)
    weight = "bold" if bar.strong else "normal"
    behind = max(bar.end, 1.0) * 1.08 if log else max(bar.end, limit) + 0.015 * top
    axes.text(behind, place, bar.note, va="center", fontsize=8.5, weight=weight)
