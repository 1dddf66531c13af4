"""Figures of the report: times and bytes as bars, scaling and training as curves.

Color is never the only cue: bars have labels, lines have their own marker and dash, the fastest has a star.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from mgg.report.figures.bars import LONGEST, Bar, Bars, drawn, shorten
from mgg.report.figures.svg import INK, SERIES, SHADE, draw
from mgg.report.tables.compute import Row, Rows, group, shared
from mgg.report.tables.numbers import bytes_unit, count, number, time_unit, within

STAR, NEAR = "★", "≈"
_MARKERS = ["o", "s", "^", "D", "v", "P", "X", "<", ">", "h"]
_DASHES: list[Any] = ["-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), (0, (8, 3))]
#: Curves whose largest value exceeds this many times the middle one get a logarithmic axis.
_STEEP = 4
_VOLUMES = {"v_fc": "V_FC", "v_fr": "V_FR", "v_cg": "V_CG"}


class Styles:
    """Consistent color, marker, dash and short form for each label in all figures of a report."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._index = {label: index for index, label in enumerate(sorted(set(labels)))}
        self._short: dict[str, str] = {}
        taken: Counter[str] = Counter()
        for label in self._index:
            short = shorten(label, LONGEST)
            taken[short] += 1
            self._short[label] = short if taken[short] == 1 else f"{shorten(label, LONGEST - 3)} {taken[short]}"

    def short(self, label: str) -> str:
        """Return ``label`` in at most 26 characters, unique among the labels."""
        return self._short[label]

    def color(self, label: str) -> str:
        """Return the color of ``label``."""
        return SERIES[self._index[label] % len(SERIES)]

    def line(self, label: str) -> dict[str, Any]:
        """Return the keywords of Axes.plot for ``label``."""
        return _line(self._index[label]) | {"label": self.short(label)}


def _line(index: int) -> dict[str, Any]:
    """Return the look of line number ``index``: 10 markers and colors, then the same with other dashes."""
    dash, color = _DASHES[(index + index // len(_MARKERS)) % len(_DASHES)], SERIES[index % len(SERIES)]
    marker = _MARKERS[index % len(_MARKERS)]
    return {"marker": marker, "linestyle": dash, "linewidth": 1.6, "markersize": 5.5, "color": color}


def mark(row: Row) -> str:
    """Return a star for the fastest, ≈ for those too close to call, else ""; ``row`` of table aggregate.

    On 1 PE techniques move nothing, so differences are no merit of a technique and nothing is marked.
    """
    if row["pes"] == 1:
        return ""
    return STAR if row["starred"] else NEAR if row["close"] else ""


def times(rows: Rows, styles: Styles, key: str, where: str) -> Markup:
    """Draw the time of one product, one bar per technique and number of PEs; ``rows`` of one setting and D."""
    unit = time_unit([row["median_s"] for row in rows])
    groups, best = [], []
    for (pes,), found in group(rows, "pes").items():
        heading = count(pes, "PE") + (f", more than {shared(found)}" if shared(found) else "")
        bars = []
        for row in found:
            sign, time = mark(row), within(row["median_s"], unit)
            note = " ".join([time, sign, *["fastest"] * (sign == STAR)]).rstrip()
            note += " (wrong result)" if row["check"] == "failed" else ""
            ends = (row["low_s"] / unit.size, row["high_s"] / unit.size)
            name, color = styles.short(row["label"]), styles.color(row["label"])
            bars.append(Bar(name, row["median_s"] / unit.size, note, color, ends, sign == STAR))
            best += [f"{count(pes, 'PE')}: {row['label']}, {time} {unit.name}"] * (sign == STAR)
        groups.append(Bars(heading, bars))
    alt = f"Bar chart: time of one aggregation, {where}. Fastest: {'; '.join(best) or 'none to be called so'}."
    return drawn(groups, f"time of one aggregation ({unit.name}), less is better", key=key, alt=alt)


def volumes(rows: Rows, styles: Styles, key: str, where: str) -> Markup:
    """Draw bytes on the wire next to CoLa's volumes; ``rows`` of table aggregate, over 1 PE, one setting and D."""
    unit = bytes_unit([row["bytes_wire"] for row in rows])
    groups, told = [], []
    for (pes,), found in group(rows, "pes").items():
        moved = [(styles.short(row["label"]), row["bytes_wire"], styles.color(row["label"])) for row in found]
        formulas = [(name, found[0][column], None) for column, name in _VOLUMES.items()]
        bars = [Bar(name, size / unit.size, within(size, unit), color) for name, size, color in (*moved, *formulas)]
        groups.append(Bars(count(pes, "PE"), bars))
        least = min(found, key=lambda row: row["bytes_wire"])
        told.append(f"{count(pes, 'PE')}: {least['label']}, {within(least['bytes_wire'], unit)} {unit.name}")
    alt = f"Bar chart: bytes on the wire of one aggregation, {where}. Least: {'; '.join(told)}."
    return drawn(groups, f"bytes on the wire, one aggregation ({unit.name})", key=key, alt=alt)


def series(rows: Rows, name: str, over: str, value: str = "median_s") -> dict[str, list[tuple[int, float]]]:
    """Return the points (``over``, ``value``) of each line by its ``name`` (columns); lines in the order of rows."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        found.setdefault(row[name], []).append((row[over], row[value]))
    return {each: sorted(points) for each, points in found.items()}


def lines(
    series: Mapping[str, Sequence[tuple[int, float]]], axis: str, key: str, where: str, what: str = "one aggregation"
) -> Markup:
    """Draw times (seconds) of ``what`` over a knob whose values double, one line per name."""
    found = [(time, name, x) for name, points in series.items() for x, time in points]
    least, longest = min(found, key=lambda each: each[0]), max(found)
    unit = time_unit([time for time, *_ in found])

    def plot(figure: Figure) -> None:
        axes = figure.add_subplot()
        for index, (name, points) in enumerate(series.items()):
            axes.plot(*zip(*((x, time / unit.size) for x, time in points), strict=True), label=name, **_line(index))
        axes.set_xscale("log", base=2)
        _ticks(axes.xaxis, sorted({float(x) for *_, x in found}))
        axes.set_yscale("log")
        # Powers of ten alone could leave an axis without a number.
        _decades(axes.yaxis, (1, 3) if longest[0] > 10 * least[0] else (1, 1.5, 2, 3, 5, 7))
        axes.set_xlabel(axis)
        axes.set_ylabel(f"time of {what} ({unit.name})")
        figure.legend(loc="outside lower center", ncols=2)

    told = f"{within(least[0], unit)} {unit.name} ({least[1]}, {least[2]})"
    alt = f"Line chart: time of {what} over {axis}, {where}. Least: {told}."
    return draw(plot, key=key, alt=alt, height=2.5 + 0.18 * math.ceil(len(series) / 2))


@dataclass(frozen=True)
class Plane:
    """Settings that differ in two knobs, each as (x, y): those measured, those a search tried (in order, with their
    numbers), the search's end, and the fastest.
    """

    title: str
    x: str
    y: str
    measured: Sequence[tuple[int, int]]
    tried: Mapping[int, tuple[int, int]]
    end: tuple[int, int] | None
    best: tuple[int, int] | None


def walk(planes: Sequence[Plane], key: str, where: str) -> Markup:
    """Draw the path of a search over the planes of its knobs: dotted, with step numbers."""

    def plot(figure: Figure) -> None:
        for axes, plane in zip(figure.subplots(1, len(planes), squeeze=False)[0], planes, strict=True):
            axes.set_title(plane.title)
            axes.plot(*zip(*plane.measured, strict=True), "s", color=SHADE, markersize=12, label="measured")
            if plane.tried:
                steps = list(plane.tried.values())
                axes.plot(*zip(*steps, strict=True), "o:", color=SERIES[0], markersize=3, label="searched")
            for step, place in plane.tried.items():
                axes.annotate(str(step), place, textcoords="offset points", xytext=(4, 4), fontsize=8)
            for name, marker, color, at in (
                ("search ends", "^", SERIES[1], plane.end), ("best", "*", SERIES[2], plane.best)
            ):  # fmt: skip
                if at is not None:
                    axes.plot(*at, marker, color=color, markersize=9, label=name, linestyle="none", alpha=0.8)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
            _ticks(axes.xaxis, sorted({float(x) for x, _ in plane.measured}))
            _ticks(axes.yaxis, sorted({float(y) for _, y in plane.measured}))
            axes.set_xlabel(plane.x)
            axes.set_ylabel(plane.y)
            axes.margins(0.15)
        names = {
            name: line for axes in figure.axes for line, name in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(names.values(), names, loc="outside lower center", ncols=len(names))

    told = "; ".join(
        f"{plane.title}: " + ", ".join(f"{plane.y} {y} {plane.x} {x}" for x, y in plane.tried.values())
        for plane in planes
    )
    return draw(plot, key=key, alt=f"The way of the search, {where}. {told}.", height=3.2)


def scaling(rows: Rows, styles: Styles, key: str, where: str) -> Markup:
    """Draw speedup over PEs next to the ideal line; ``rows`` of table aggregate with a speedup, one setting and D."""
    pes = sorted({row["pes"] for row in rows})
    beyond = sorted({row["pes"] for row in rows if row["oversubscribed"]})
    within_cores = [p for p in pes if p not in beyond]
    titles: dict[str, str] = {}

    def plot(figure: Figure) -> None:
        axes = figure.add_subplot()
        if beyond:
            start = math.sqrt(within_cores[-1] * beyond[0]) if within_cores else pes[0] / 1.15
            axes.axvspan(
                start, pes[-1] * 1.15, facecolor=SHADE, linewidth=0, label=f"more PEs than {shared(rows)}", zorder=0
            )
        axes.plot([1, pes[-1]], [1, pes[-1]], color=INK, linestyle=(0, (2, 2)), linewidth=1.2, label="ideal")
        for (label,), found in group(rows, "label").items():
            points = sorted((row["pes"], row["speedup"]) for row in found)
            axes.plot(*zip(*points, strict=True), **styles.line(label))
            told = [(x, y, f"{label}, {count(x, 'PE')}: {number(y)}x") for x, y in points]
            _hovered(axes, told, styles.line(label), titles)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xlim(pes[0] / 1.15, pes[-1] * 1.15)
        _ticks(axes.xaxis, [float(p) for p in _thin(pes)])
        low, high = axes.get_ylim()
        first, last = math.floor(math.log2(low)), math.ceil(math.log2(high))
        step = math.ceil((last - first) / 8)
        _ticks(axes.yaxis, [2.0**power for power in range(first, last + 1) if power % step == 0], True)
        axes.set_ylim(low, high)
        axes.set_xlabel("PEs")
        axes.set_ylabel("speedup, more is better")
        figure.legend(loc="outside lower center", ncols=2)

    best = max(rows, key=lambda row: row["speedup"])
    alt = (
        f"Line chart: speedup against the best time of 1 PE, {where}. "
        f"Highest: {number(best['speedup'])} with {count(best['pes'], 'PE')} ({best['label']})."
    )
    entries = len({row["label"] for row in rows}) + 1 + bool(beyond)
    return draw(plot, key=key, alt=alt, height=2.6 + 0.18 * math.ceil(entries / 2), titles=titles)


def _ticks(axis: Any, values: Sequence[float], times: bool = False) -> None:
    """Set ticks only at ``values``; ``times`` formats them as ``1.0x``."""
    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: _fold(value) if times else f"{value:g}"))


def _decades(axis: Any, steps: Sequence[float]) -> None:
    """Set ticks at ``steps`` of each power of ten, formatted as plain numbers."""
    axis.set_major_locator(LogLocator(10, subs=steps))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _fold(value: float) -> str:
    """Format a factor: ``4.0x``, ``0.25x``."""
    return f"{value:.1f}x" if value >= 1 else f"{value:.3g}x"


def _hovered(
    axes: Any, points: Sequence[tuple[float, float, str]], style: Mapping[str, Any], titles: dict[str, str]
) -> None:
    """Draw a marker at each (x, y, tooltip); ``titles`` gets the tooltips by gid."""
    for x, y, told in points:
        gid = f"v{len(titles)}"
        titles[gid] = told
        axes.plot([x], [y], gid=gid, linestyle="none", **{key: style[key] for key in ("marker", "markersize", "color")})


def _thin(values: Sequence[int]) -> list[int]:
    """Return at most ten of the values, evenly spaced and including the last."""
    step = math.ceil(len(values) / 10)
    return list(values[::-1][::step])[::-1]


@dataclass(frozen=True)
class Curve:
    """A training curve: median, smallest and largest value over runs for each epoch."""

    name: str
    epochs: list[int]
    middle: list[float]
    low: list[float]
    high: list[float]


def curves(rows: Mapping[str, Rows], column: str) -> list[Curve]:
    """Make curves from rows of table epochs by curve name; missing and non-finite values are left out."""
    found = []
    for name, points in rows.items():
        at: dict[int, list[float]] = defaultdict(list)
        for row in points:
            if row[column] is not None and math.isfinite(row[column]):
                at[row["epoch"]].append(row[column])
        epochs = sorted(at)
        middle = [statistics.median(at[epoch]) for epoch in epochs]
        found.append(Curve(name, epochs, middle, [min(at[e]) for e in epochs], [max(at[e]) for e in epochs]))
    return found


def training(lines: Sequence[Curve], axis: str, key: str, alt: str, share: bool = False) -> Markup:
    """Draw curves over epochs; ``share``: values are shares of 1, shown in percent.

    The axis is logarithmic if the first epochs would flatten the rest.
    """
    scale, mark = (100.0, " %") if share else (1.0, "")
    columns = 1 if any(len(line.name) > 20 for line in lines) else 2
    everything = sorted(value for line in lines for value in line.middle)
    steep = bool(everything) and not share and 0 < _STEEP * everything[len(everything) // 2] < everything[-1]
    log = steep and everything[0] > 0
    titles: dict[str, str] = {}

    def plot(figure: Figure) -> None:
        axes = figure.add_subplot()
        for index, line in enumerate(lines):
            # Equal runs overlap: thinner lines and staggered markers keep every one visible.
            step = max(1, len(line.epochs) // 8)
            style = _line(index) | {"linewidth": max(1.0, 2.6 - 0.4 * index), "markersize": 5}
            marks = (index * step // max(1, len(lines)), step)
            values = [scale * value for value in line.middle]
            axes.plot(line.epochs, values, label=shorten(line.name, 40), markevery=marks, **style)
            told = [
                (x, y, f"{line.name}, epoch {x}: {number(y)}{mark}") for x, y in zip(line.epochs, values, strict=True)
            ]
            _hovered(axes, told[marks[0] :: step], style, titles)
            if line.low != line.high:
                low, high = ([scale * value for value in side] for side in (line.low, line.high))
                axes.fill_between(line.epochs, low, high, color=style["color"], alpha=0.25, linewidth=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        if log:
            axes.set_yscale("log")
            _decades(axes.yaxis, (1, 2, 5))
        else:
            axes.set_ylim(bottom=0, top=100 if share else None)
        axes.set_xlabel("epoch")
        axes.set_ylabel(axis)
        figure.legend(loc="outside lower center", ncols=columns)

    return draw(plot, key=key, alt=alt, height=2.5 + 0.18 * math.ceil(len(lines) / columns), titles=titles)
