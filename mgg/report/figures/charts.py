"""Figures of the report: bars with their values, and curves with a tooltip at each marker.

Color is never the only cue: bars have labels, lines have their own marker and dash, the fastest has a star.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from mgg.report.figures.svg import INK, SERIES, SHADE, TITLE, draw
from mgg.report.tables.compute import Row, Rows, group, shared
from mgg.report.tables.numbers import count, listing, number, unit_of, within

STAR, NEAR = "★", "≈"
LONGEST = 26  # characters of a label in a figure; tables show it in full
ROW = 0.185  # inches per bar
_WIDE = 30  # ratios that differ by more than this factor are drawn on a logarithmic axis
_STEEP = 4  # curves whose largest value exceeds this many times the middle one get a logarithmic axis
_MARKERS = "os^DvPX<>h"
_DASHES: list[Any] = ["-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), (0, (8, 3))]

#: Keywords of Axes.plot by label.
Looks = Mapping[str, Mapping[str, Any]]


def shorten(text: str, longest: int = LONGEST) -> str:
    """Shorten ``text`` in the middle to at most ``longest`` characters."""
    half = (longest - 1) // 2
    return text if len(text) <= longest else f"{text[:half]}…{text[-(longest - 1 - half) :]}"


def looks(labels: Iterable[str]) -> Looks:
    """Return color, marker, dash and short name of each label, the same in all figures of a report."""
    found, taken = {}, Counter[str]()
    for index, label in enumerate(sorted(set(labels))):
        short = shorten(label)
        taken[short] += 1
        if taken[short] > 1:
            short = f"{shorten(label, LONGEST - 3)} {taken[short]}"
        found[label] = _look(index) | {"label": short}
    return found


def _look(index: int) -> dict[str, Any]:
    """Return the look of line number ``index``: 10 markers and colors, then the same with other dashes."""
    dash, place = _DASHES[(index + index // len(_MARKERS)) % len(_DASHES)], index % len(_MARKERS)
    return {"marker": _MARKERS[place], "linestyle": dash, "markersize": 5.5, "color": SERIES[place]}


def mark(row: Row) -> str:
    """Return a star for the fastest, ≈ for those too close to call, else ""; ``row`` of table aggregate.

    On 1 PE techniques move nothing, so differences are no merit of a technique and nothing is marked.
    """
    if row["pes"] == 1:
        return ""
    return STAR if row["starred"] else NEAR if row["close"] else ""


@dataclass(frozen=True)
class Bar:
    """One bar; without ``color`` it is only hatched."""

    name: str
    value: float
    note: str = ""  # the text after it
    color: str | None = SERIES[0]
    ends: tuple[float, float] | None = None  # of its whisker
    strong: bool = False
    start: float | None = None  # where it begins; else at the axis
    tip: str = ""  # its tooltip

    @property
    def end(self) -> float:
        """Return where the bar, or its whisker, ends."""
        return max(((self.start or 0.0) + self.value, *(self.ends or ())))


def bars(
    groups: Mapping[str, Sequence[Bar | Sequence[Bar]]], axis: str, about: str = "", *, limit: float = 0.0,
    log: bool = False, row: Mapping[str, float] = MappingProxyType({}), alt: str = "",
) -> Markup:  # fmt: skip
    """Draw bars by heading, one below the other, or several in a row.

    Args:
        groups: the bars.
        axis: name of the axis.
        about: what the bars show, for screen readers; empty: the axis.
        limit: a line across all; 0: none.
        log: the axis is logarithmic, and bars start at 1.
        row: height of the rows by heading, where it is not 1; these rows have no names.
        alt: text for screen readers in place of all bars and notes.
    """
    rows = {heading: [[bar] if isinstance(bar, Bar) else bar for bar in found] for heading, found in groups.items()}
    every = [bar for found in rows.values() for lane in found for bar in lane]
    top = max(limit, *(bar.end for bar in every)) or 1.0
    begin = 1.0 if log else 0.0

    def plot(figure: Figure) -> None:
        height = sum(len(lanes) * row.get(heading, 1.0) + 1.3 for heading, lanes in rows.items())
        figure.set_figheight(0.6 + ROW * height)
        axes, place, ticks = _horizontal(figure, axis), 0.0, dict[float, str]()
        for heading, lanes in rows.items():
            axes.text(0.01, place, heading, weight="bold", va="center", transform=axes.get_yaxis_transform())
            step = row.get(heading, 1.0)
            for number_, lane in enumerate(lanes):
                at = place + 0.5 + (number_ + 0.5) * step
                for bar in lane:
                    _bar(axes, bar, at, step, begin)
                    if bar.note:
                        behind = max(bar.end, 1.0) * 1.08 if log else max(bar.end, limit) + 0.015 * top
                        weight = "bold" if bar.strong else "normal"
                        axes.text(behind, at, bar.note, va="center", fontsize=8.5, weight=weight)
                if heading not in row:
                    ticks[at] = shorten(lane[0].name)
            place += len(lanes) * step + 1.3
        if limit:
            axes.axvline(limit, color=INK, linestyle=(0, (4, 2)), linewidth=1.2)
        axes.set_yticks(list(ticks), list(ticks.values()))
        axes.set_ylim(place - 0.7, -0.7)
        # Room for the notes behind the longest bar.
        if log:
            axes.set_xscale("log")
            axes.set_xlim(min(1.0, *(bar.value for bar in every)) / 1.5, top * (top**0.25))
            axes.axvline(1, color=INK, linewidth=0.8)
            _decades(axes.xaxis, (1,))
            axes.minorticks_off()
        else:
            axes.set_xlim(0, top * (1.5 if any(bar.strong for bar in every) else 1.25))

    told = "; ".join(f"{heading}, {bar.name}: {bar.note}" for heading, found in rows.items() for (bar, *_) in found)
    return draw(plot, alt or f"Bar chart: {about or axis}. {told}.")


def _bar(axes: Axes, bar: Bar, place: float, step: float, begin: float) -> None:
    look: Any = {"edgecolor": INK, "facecolor": "none", "hatch": "////", "linewidth": 0.8}
    if bar.color:
        look = {"edgecolor": INK, "facecolor": bar.color, "linewidth": 1.6 if bar.strong else 0}
    if bar.tip:
        # The edge keeps a short bar visible on a long axis.
        look |= {"edgecolor": bar.color, "linewidth": 0.7, "gid": f"{TITLE}{bar.tip}"}
    start = begin if bar.start is None else bar.start
    axes.barh(place, bar.value - begin, (0.7 if bar.color else 0.55) * step, start, **look)
    if bar.ends:
        axes.plot(bar.ends, [place, place], color=INK, linewidth=1.2, marker="|", markersize=5)


def stacked(rows: Rows, parts: Sequence[str], axis: str, alt: str) -> Markup:
    """Draw one bar per row with a segment per column of ``parts``; names are in column ``name``."""

    def plot(figure: Figure) -> None:
        figure.set_figheight(1.56 + 0.28 * len(rows))
        axes = _horizontal(figure, axis)
        for place, row in enumerate(rows):
            widths = [row[part] for part in parts]
            axes.barh(
                place, widths, 0.65, [0.0, *accumulate(widths[:-1])], color=SERIES[: len(parts)], edgecolor=INK,
                hatch=["", "////", "....", "xx"], linewidth=0.6, label=parts if place == 0 else None,
            )  # fmt: skip
        axes.set_yticks(range(len(rows)), [shorten(row["name"], 34) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        figure.legend(loc="outside lower center", ncols=2)

    return draw(plot, alt)


def _horizontal(figure: Figure, label: str) -> Axes:
    axes = figure.add_subplot()
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter("{x:,.6g}")
    axes.set_xlabel(label)
    return axes


def paired(
    groups: Mapping[str, Sequence[tuple[str, float, float | None]]], axis: str, about: str = "", *,
    quotients: bool = False, printed: str = "in the paper",
) -> Markup:  # fmt: skip
    """Draw, per heading, bars of (name, our value, the paper's if any); the paper's, called ``printed``, are hatched.

    ``quotients``: of times; their bars start at 1, on a logarithmic axis if they differ widely.
    """
    found: dict[str, list[Bar]] = {}
    for heading, values in groups.items():
        for name, ours, paper in values:
            theirs = [] if paper is None else [Bar(printed, paper, number(paper), None)]
            found.setdefault(heading, []).extend([Bar(name, ours, number(ours)), *theirs])
    heights = [bar.value for each in found.values() for bar in each]
    return bars(found, axis, about, log=quotients and max(heights) > _WIDE * min(heights) > 0)


def times(rows: Rows, looks: Looks, where: str) -> Markup:
    """Draw the time of one product, one bar per technique and number of PEs; ``rows`` of one setting and D."""
    unit, groups = unit_of([row["median_s"] for row in rows]), {}
    for (pes,), found in group(rows, "pes").items():
        heading = count(pes, "PE") + (f", more than {shared(found)}" if shared(found) else "")
        groups[heading] = drawn = list[Bar]()
        for row in found:
            sign, look = mark(row), looks[row["label"]]
            note = " ".join([within(row["median_s"], unit), sign, *["fastest"] * (sign == STAR)]).rstrip()
            note += " (wrong result)" if row["check"] == "failed" else ""
            ends = (row["low_s"] / unit.size, row["high_s"] / unit.size)
            drawn.append(Bar(look["label"], row["median_s"] / unit.size, note, look["color"], ends, sign == STAR))
    what = f"time of one aggregation ({unit.name})"
    return bars(groups, f"{what}, less is better", f"{what}, {where}")


def volumes(rows: Rows, looks: Looks, where: str) -> Markup:
    """Draw bytes on the wire next to CoLa's volumes; ``rows`` of table aggregate, over 1 PE, one setting and D."""
    unit, groups = unit_of([row["bytes_wire"] for row in rows], "bytes"), {}
    for (pes,), found in group(rows, "pes").items():
        moved = [(looks[row["label"]]["label"], row["bytes_wire"], looks[row["label"]]["color"]) for row in found]
        moved += [(name.upper(), found[0][name], None) for name in ("v_fc", "v_fr", "v_cg")]
        groups[count(pes, "PE")] = [Bar(name, n / unit.size, within(n, unit), color) for name, n, color in moved]
    axis = f"bytes on the wire, one aggregation ({unit.name})"
    return bars(groups, axis, f"{axis}, {where}")


def series(rows: Rows, name: str, over: str, value: str = "median_s") -> dict[str, dict[int, float]]:
    """Return the ``value`` at each ``over`` of each line by its ``name`` (columns); lines in the order of rows."""
    found: dict[str, dict[int, float]] = {}
    for row in sorted(rows, key=lambda row: row[over]):
        found.setdefault(row[name], {})[row[over]] = row[value]
    return {each: found[each] for each in dict.fromkeys(row[name] for row in rows)}


def curves(
    rows: Rows, name: str, over: str, axis: str, where: str, *, value: str = "median_s", what: str = "one aggregation"
) -> Markup:
    """Draw times (column ``value``, seconds) of ``what`` over a column whose values double, one line per ``name``."""
    unit, least = unit_of([row[value] for row in rows]), min(rows, key=lambda row: (row[value], row[name]))
    wide = max(row[value] for row in rows) > 10 * least[value]
    points = sorted({row[over] for row in rows})

    def frame(axes: Axes) -> None:
        axes.set_xscale("log", base=2)
        axes.set_xticks(points, [f"{x:g}" for x in points])
        axes.set_yscale("log")
        # Powers of ten alone could leave an axis without a number.
        _decades(axes.yaxis, (1, 3) if wide else (1, 1.5, 2, 3, 5, 7))

    found = series(rows, name, over, value).items()
    lines = {label: [(x, y / unit.size) for x, y in at.items()] for label, at in found}
    alt = f"Line chart: time of {what} over {axis}, {where}. "
    alt += f"Least: {within(least[value], unit)} {unit.name} ({least[name]}, {least[over]})."
    return _lines(lines, axis, f"time of {what} ({unit.name})", alt, frame, lambda x, y: f"{x:g}: {y} {unit.name}")


def scaling(rows: Rows, looks: Looks, where: str) -> Markup:
    """Draw speedup over PEs next to the ideal line; ``rows`` of table aggregate with a speedup, one setting and D."""
    pes = sorted({row["pes"] for row in rows})
    beyond = sorted({row["pes"] for row in rows if row["oversubscribed"]})
    inside = [p for p in pes if p not in beyond]
    ends = pes[0] / 1.15, pes[-1] * 1.15

    def frame(axes: Axes) -> None:
        if beyond:
            start, told = math.sqrt(inside[-1] * beyond[0]) if inside else ends[0], f"more PEs than {shared(rows)}"
            axes.axvspan(start, ends[1], facecolor=SHADE, linewidth=0, label=told, zorder=0)
        axes.plot([1, pes[-1]], [1, pes[-1]], color=INK, linestyle=(0, (2, 2)), linewidth=1.2, label="ideal")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        shown = pes[:: -math.ceil(len(pes) / 10)]  # at most ten, the last among them
        axes.set_xticks(shown, [str(p) for p in shown])
        axes.yaxis.set_major_locator(LogLocator(2, numticks=9))
        axes.yaxis.set_major_formatter("{x:.3g}x")
        axes.set_xlim(ends)

    lines = {label: list(at.items()) for label, at in series(rows, "label", "pes", "speedup").items()}
    best = max(rows, key=lambda row: row["speedup"])
    alt = (
        f"Line chart: speedup against the best time of 1 PE, {where}. "
        f"Highest: {number(best['speedup'])} with {count(best['pes'], 'PE')} ({best['label']})."
    )
    axis = "speedup, more is better"
    return _lines(lines, "PEs", axis, alt, frame, lambda x, y: f"{count(int(x), 'PE')}: {y}x", looks)


def training(runs: Mapping[str, Rows], column: str, what: str, where: str) -> Markup | None:
    """Draw a column of table epochs over epochs, a curve for each name: the median of its runs, within their range.

    Losses are in nats, shares of 1 in percent. Return None if no epoch has a value.
    """
    share = "accuracy" in column
    scale, unit = (100.0, "%") if share else (1.0, "nats")
    lines: dict[str, Sequence[tuple[float, ...]]] = {}
    for name, rows in runs.items():
        values = pd.Series([row[column] for row in rows], [row["epoch"] for row in rows], dtype=float) * scale
        found = values[values.abs() < math.inf].groupby(level=0).agg(["median", "min", "max"])
        if len(found):
            lines[name] = list(found.itertuples(name=None))
    if not lines:
        return None
    middle = sorted(y for points in lines.values() for _, y, *_ in points)
    # The axis is logarithmic if the first epochs would flatten the rest.
    log = not share and middle[0] > 0 and middle[-1] > _STEEP * middle[len(middle) // 2]

    def frame(axes: Axes) -> None:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        if log:
            axes.set_yscale("log")
            _decades(axes.yaxis, (1, 2, 5))
        else:
            axes.set_ylim(bottom=0, top=100 if share else None)

    ends = [f"{name} {number(points[-1][1])}" for name, points in lines.items()]
    alt = f"Line chart: {what} ({unit}) over epochs, {where}. Last epoch: {listing(ends, 12)}."
    return _lines(lines, "epoch", f"{what} ({unit})", alt, frame, lambda x, y: f"epoch {x:g}: {y}{' %' * share}")


def _lines(
    lines: Mapping[str, Sequence[tuple[float, ...]]], x: str, y: str, alt: str, frame: Callable[[Axes], None],
    say: Callable[[float, str], str], looks: Looks = MappingProxyType({}),
) -> Markup:  # fmt: skip
    """Draw lines through points (x, y), or (x, y, low, high) with a band.

    ``frame`` sets scales and ticks; ``say(x, y in words)`` is the tooltip of a point with a marker.
    """

    def plot(figure: Figure) -> None:
        axes = figure.add_subplot()
        for index, (name, points) in enumerate(lines.items()):
            look = {"label": shorten(name, 40)} | _look(index) | dict(looks.get(name, {}))
            xs, ys, low, high = zip(*((*point, 0.0, 0.0)[:4] for point in points), strict=True)
            # Equal curves overlap: thinner lines and staggered markers keep every one visible.
            step = max(1, len(points) // 8)
            marked = slice(index * step // len(lines), None, step)
            axes.plot(xs, ys, markevery=marked, linewidth=max(1.0, 2.6 - 0.4 * index), **look)
            for at, value in list(zip(xs, ys, strict=True))[marked]:
                gid = f"{TITLE}{name}, {say(at, number(value))}"
                axes.plot([at], [value], gid=gid, **look | {"linestyle": "none", "label": "_"})
            if low != high:
                axes.fill_between(xs, low, high, color=look["color"], alpha=0.25, linewidth=0)
        axes.set(xlabel=x, ylabel=y)
        frame(axes)
        axes.minorticks_off()
        handles = axes.get_legend_handles_labels()[1]
        columns = 1 if any(len(label) > LONGEST for label in handles) else 2
        figure.set_figheight(2.5 + 0.18 * math.ceil(len(handles) / columns))
        figure.legend(loc="outside lower center", ncols=columns)

    return draw(plot, alt)


def _decades(axis: Any, steps: Sequence[float]) -> None:
    """Set ticks at ``steps`` of each power of ten, as plain numbers."""
    axis.set_major_locator(LogLocator(10, subs=steps))
    axis.set_major_formatter("{x:,.6g}")
