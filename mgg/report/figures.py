"""The figures of the report: times and bytes as bars, scaling and training as curves.

Nothing is told by color alone: bars are labelled, lines have their own marker and dash, the fastest has a star.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from mgg.report.numbers import bytes_unit, count, number, time_unit, within
from mgg.report.svg import INK, SERIES, SHADE, draw
from mgg.report.tables import Rows, group, shared

STAR = "★"
_MARKERS = ["o", "s", "^", "D", "v", "P", "X", "<", ">", "h"]
_DASHES: list[Any] = ["-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), (0, (8, 3))]
_VOLUMES = {"v_fc": "V_FC", "v_fr": "V_FR", "v_cg": "V_CG"}
_LONGEST = 26  # characters of a label in a figure; the tables have the whole one
_ROW = 0.185  # inches a bar


class Styles:
    """The same color, marker and dash for a label in every figure of a report; a short form of long labels."""

    def __init__(self, labels: Sequence[str]) -> None:
        ordered = sorted(set(labels))
        self._index = {label: index for index, label in enumerate(ordered)}
        self._short: dict[str, str] = {}
        taken: Counter[str] = Counter()
        for label in ordered:
            short = _shorten(label, _LONGEST)
            taken[short] += 1
            self._short[label] = short if taken[short] == 1 else f"{_shorten(label, _LONGEST - 3)} {taken[short]}"

    def short(self, label: str) -> str:
        """``label`` in at most 26 characters, different for different labels."""
        return self._short[label]

    def color(self, label: str) -> str:
        """The color of ``label``."""
        return SERIES[self._index[label] % len(SERIES)]

    def line(self, label: str) -> dict[str, Any]:
        """Keywords of Axes.plot for ``label``."""
        index = self._index[label]
        return _line(index) | {"color": self.color(label), "label": self.short(label)}


def _line(index: int) -> dict[str, Any]:
    """Marker and dash number ``index``: 10 markers, then again with other dashes."""
    dash = _DASHES[(index + index // len(_MARKERS)) % len(_DASHES)]
    return {"marker": _MARKERS[index % len(_MARKERS)], "linestyle": dash, "linewidth": 1.6, "markersize": 5.5}


def _shorten(text: str, longest: int) -> str:
    half = (longest - 1) // 2
    return text if len(text) <= longest else f"{text[:half]}…{text[-(longest - 1 - half) :]}"


@dataclass(frozen=True)
class _Bar:
    """One bar; ``ends`` is the whisker (quartiles), ``note`` the text behind the bar; no ``color``: only hatched."""

    name: str
    value: float
    note: str
    color: str | None = None
    ends: tuple[float, float] | None = None
    strong: bool = False

    @property
    def end(self) -> float:
        """Where the bar or its whisker ends."""
        return max(self.value, self.ends[1]) if self.ends else self.value


@dataclass(frozen=True)
class _Group:
    """The bars of one number of PEs."""

    heading: str
    bars: list[_Bar]


def times(rows: Rows, styles: Styles, key: str, where: str) -> str:
    """Time of one product, a bar a technique and number of PEs; ``rows`` of table aggregate, one setting and D."""
    unit = time_unit([row["median"] for row in rows])
    groups = []
    for (pes,), found in group(rows, "pes").items():
        heading = count(pes, "PE") + (f", more than {shared(found)}" if shared(found) else "")
        bars = []
        for row in found:
            note = within(row["median"], unit) + (f" {STAR} fastest" if row["fastest"] else "")
            note += " (wrong result)" if row["check"] == "failed" else ""
            ends = (row["q1"] / unit.size, row["q3"] / unit.size)
            name, color = styles.short(row["label"]), styles.color(row["label"])
            bars.append(_Bar(name, row["median"] / unit.size, note, color, ends, row["fastest"]))
        groups.append(_Group(heading, bars))
    best = [
        f"{count(r['pes'], 'PE')}: {r['label']}, {within(r['median'], unit)} {unit.name}" for r in rows if r["fastest"]
    ]
    alt = f"Bar chart: time of one aggregation, {where}. Fastest: {'; '.join(best) or 'nothing to compare'}."
    return _bars(groups, f"time of one aggregation ({unit.name}), less is better", key=key, alt=alt)


def volumes(rows: Rows, styles: Styles, key: str, where: str) -> str:
    """Bytes on the wire beside CoLa's volumes; ``rows`` of table aggregate with more than 1 PE, one setting and D."""
    unit = bytes_unit([row["bytes_wire"] for row in rows])
    groups = []
    for (pes,), found in group(rows, "pes").items():
        bars = [
            _Bar(styles.short(label), moved / unit.size, within(moved, unit), styles.color(label))
            for label, moved in ((row["label"], row["bytes_wire"]) for row in found)
        ]
        formulas = {name: found[0][column] for column, name in _VOLUMES.items()}
        bars += [_Bar(name, size / unit.size, within(size, unit)) for name, size in formulas.items()]
        groups.append(_Group(count(pes, "PE"), bars))
    least = {pes: min(found, key=lambda row: row["bytes_wire"]) for (pes,), found in group(rows, "pes").items()}
    told = [
        f"{count(pes, 'PE')}: {row['label']}, {within(row['bytes_wire'], unit)} {unit.name}"
        for pes, row in least.items()
    ]
    alt = f"Bar chart: bytes on the wire of one aggregation, {where}. Least: {'; '.join(told)}."
    return _bars(groups, f"bytes on the wire, one aggregation ({unit.name})", key=key, alt=alt)


def ratios(rows: Rows, names: Mapping[tuple[str, str], str], key: str, subject: str, rival: str, paper: str) -> str:
    """The rival's time over the subject's, and the number called ``paper``; ``rows`` of figures with a ``case``."""
    groups = []
    for (dataset, code), found in group(rows, "dataset", "graph_hash").items():
        bars = []
        for row in found:
            bars.append(_Bar(_shorten(row["case"], _LONGEST), row["ratio"], number(row["ratio"]), SERIES[0]))
            if row["paper"]:
                bars.append(_Bar(paper, row["paper"], f"{row['paper']:g}"))
        groups.append(_Group(names[dataset, code], bars))
    told = [f"{each.heading}, {bar.name}: {bar.note}" for each in groups for bar in each.bars]
    alt = f"Bar chart: time of {rival} over that of {subject}. {'; '.join(told)}."
    return _bars(groups, f"{_shorten(rival, 24)} / {_shorten(subject, 24)}, time", key=key, alt=alt)


def paired(groups: Mapping[str, Sequence[tuple[str, float, float | None]]], axis: str, key: str) -> str:
    """By heading bars of (name, our value, the paper's if any), the paper's hatched."""
    found = []
    for heading, values in groups.items():
        bars = []
        for name, ours, paper in values:
            bars.append(_Bar(_shorten(name, _LONGEST), ours, number(ours), SERIES[0]))
            if paper is not None:
                bars.append(_Bar("in the paper", paper, number(paper)))
        found.append(_Group(heading, bars))
    told = [f"{each.heading}, {bar.name}: {bar.note}" for each in found for bar in each.bars]
    return _bars(found, axis, key=key, alt=f"Bar chart: {axis}. {'; '.join(told)}.")


def limited(groups: Mapping[str, Sequence[tuple[str, float, bool]]], limit: float, axis: str, key: str) -> str:
    """By heading bars of (name, value, whether it is within ``limit``), and a line at the limit."""
    found = [
        _Group(
            heading,
            [
                _Bar(_shorten(name, _LONGEST), value, number(value) + ("" if within_ else " beyond"), SERIES[0])
                for name, value, within_ in values
            ],
        )
        for heading, values in groups.items()
    ]
    told = [f"{each.heading}, {bar.name}: {bar.note}" for each in found for bar in each.bars]
    return _bars(found, axis, key=key, alt=f"Bar chart: {axis}, limit {limit:g}. {'; '.join(told)}.", limit=limit)


def lines(series: Mapping[str, Sequence[tuple[int, float]]], axis: str, key: str, where: str) -> str:
    """Times in seconds over a knob whose values double, a line a name."""
    unit = time_unit([time for points in series.values() for _, time in points])

    def plot(figure: Figure) -> None:
        axes = figure.add_subplot()
        for index, (name, points) in enumerate(series.items()):
            values = [(x, time / unit.size) for x, time in points]
            axes.plot(*zip(*values, strict=True), color=SERIES[index % len(SERIES)], label=name, **_line(index))
        axes.set_xscale("log", base=2)
        _ticks(axes.xaxis, sorted({float(x) for points in series.values() for x, _ in points}))
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(axis)
        axes.set_ylabel(f"time of one aggregation ({unit.name})")
        figure.legend(loc="outside lower center", ncols=2)

    at, best = min(
        ((f"{name}, {x}", time) for name, points in series.items() for x, time in points), key=lambda p: p[1]
    )
    alt = f"Line chart: time of one aggregation over {axis}, {where}. Least: {within(best, unit)} {unit.name} ({at})."
    return draw(plot, key=key, alt=alt, height=2.5 + 0.18 * math.ceil(len(series) / 2))


def _bars(groups: Sequence[_Group], axis: str, *, key: str, alt: str, limit: float | None = None) -> str:
    bars = [bar for each in groups for bar in each.bars]
    top = max(limit or 0.0, *(bar.end for bar in bars)) or 1.0

    def plot(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.grid(axis="y", visible=False)
        ticks: list[float] = []
        place = 0.0
        for each in groups:
            axes.text(0.01, place, each.heading, weight="bold", va="center", transform=axes.get_yaxis_transform())
            for bar in each.bars:
                place += 1
                ticks.append(place)
                _bar(axes, bar, place, top)
            place += 1.3
        if limit is not None:
            axes.axvline(limit, color=INK, linestyle=(0, (4, 2)), linewidth=1.2)
        axes.set_yticks(ticks, [bar.name for bar in bars])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(place - 0.7, -0.7)
        # Room for the notes behind the longest bar.
        axes.set_xlim(0, top * (1.5 if any(bar.strong for bar in bars) else 1.25))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axes.set_xlabel(axis)

    return draw(plot, key=key, alt=alt, height=0.6 + _ROW * (len(bars) + 1.3 * len(groups)))


def _bar(axes: Axes, bar: _Bar, place: float, top: float) -> None:
    if bar.color:
        axes.barh(place, bar.value, height=0.7, color=bar.color, edgecolor=INK, linewidth=1.6 if bar.strong else 0)
    else:
        axes.barh(place, bar.value, height=0.55, facecolor="none", edgecolor=INK, linewidth=0.8, hatch="////")
    if bar.ends:
        axes.plot(bar.ends, [place, place], color=INK, linewidth=1.2, marker="|", markersize=5)
    weight = "bold" if bar.strong else "normal"
    axes.text(bar.end + 0.015 * top, place, bar.note, va="center", fontsize=8.5, weight=weight)


def scaling(rows: Rows, styles: Styles, key: str, where: str) -> str:
    """Speedup over PEs beside the ideal line; ``rows`` of table aggregate with a speedup, one setting and D."""
    pes = sorted({row["pes"] for row in rows})
    beyond = sorted({row["pes"] for row in rows if row["oversubscribed"]})
    within_cores = [p for p in pes if p not in beyond]

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
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xlim(pes[0] / 1.15, pes[-1] * 1.15)
        _ticks(axes.xaxis, [float(p) for p in _thin(pes)])
        low, high = axes.get_ylim()
        first, last = math.floor(math.log2(low)), math.ceil(math.log2(high))
        step = math.ceil((last - first) / 8)
        _ticks(axes.yaxis, [2.0**power for power in range(first, last + 1) if power % step == 0])
        axes.set_ylim(low, high)
        axes.set_xlabel("PEs")
        axes.set_ylabel("speedup (times), more is better")
        figure.legend(loc="outside lower center", ncols=2)

    best = max(rows, key=lambda row: row["speedup"])
    alt = (
        f"Line chart: speedup against the best time of 1 PE, {where}. "
        f"Highest: {number(best['speedup'])} with {count(best['pes'], 'PE')} ({best['label']})."
    )
    entries = len({row["label"] for row in rows}) + 1 + bool(beyond)
    return draw(plot, key=key, alt=alt, height=2.6 + 0.18 * math.ceil(entries / 2))


def _ticks(axis: Any, values: Sequence[float]) -> None:
    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value >= 1 else f"1/{1 / value:g}"))


def _thin(values: Sequence[int], most: int = 10) -> list[int]:
    """At most ``most`` of the values, evenly, the last one among them."""
    step = math.ceil(len(values) / most)
    return list(values[::-1][::step])[::-1]


@dataclass(frozen=True)
class Curve:
    """A training curve: for each epoch the median over runs, the smallest and the largest."""

    name: str
    epochs: list[int]
    middle: list[float]
    low: list[float]
    high: list[float]


def curves(rows: Mapping[str, Rows], column: str) -> list[Curve]:
    """From rows of table epochs by the name of their curve; values that are not finite (divergence) are left out."""
    found = []
    for name, points in rows.items():
        at: dict[int, list[float]] = defaultdict(list)
        for row in points:
            if math.isfinite(row[column]):
                at[row["epoch"]].append(row[column])
        epochs = sorted(at)
        middle = [statistics.median(at[epoch]) for epoch in epochs]
        found.append(Curve(name, epochs, middle, [min(at[e]) for e in epochs], [max(at[e]) for e in epochs]))
    return found


def training(lines: Sequence[Curve], axis: str, key: str, alt: str, share: bool = False) -> str:
    """Curves over epochs; ``share``: values are shares of 1, shown in percent."""
    scale = 100.0 if share else 1.0

    columns = 1 if any(len(line.name) > 20 for line in lines) else 2

    def plot(figure: Figure) -> None:
        axes = figure.add_subplot()
        for index, line in enumerate(lines):
            color = SERIES[index % len(SERIES)]
            # Runs that agree lie on top of each other: thinner lines and staggered markers keep every one visible.
            step = max(1, len(line.epochs) // 8)
            style = _line(index) | {"linewidth": max(1.0, 2.6 - 0.4 * index), "markersize": 5}
            marks = (index * step // max(1, len(lines)), step)
            values = [scale * value for value in line.middle]
            axes.plot(line.epochs, values, color=color, label=_shorten(line.name, 40), markevery=marks, **style)
            if line.low != line.high:
                low, high = ([scale * value for value in side] for side in (line.low, line.high))
                axes.fill_between(line.epochs, low, high, color=color, alpha=0.25, linewidth=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_ylim(bottom=0, top=100 if share else None)
        axes.set_xlabel("epoch")
        axes.set_ylabel(axis)
        figure.legend(loc="outside lower center", ncols=columns)

    return draw(plot, key=key, alt=alt, height=2.5 + 0.18 * math.ceil(len(lines) / columns))
