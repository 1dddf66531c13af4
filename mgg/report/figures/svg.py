"""Convert Matplotlib figures to inline SVG with the page's colors, font and width."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

WIDTH = 4.7  # inches: at 400 pixels of page width a 9-point label still shows 9 pixels high

#: Placeholder colors, replaced by CSS variables in the SVG, so that a figure suits light, dark and paper.
INK, GRID, SHADE = "#010101", "#010102", "#010103"
SERIES = [f"#0102{number:02x}" for number in range(10)]
_VARIABLES = {INK: "var(--ink)", GRID: "var(--grid)", SHADE: "var(--shade)"} | {
    color: f"var(--s{number})" for number, color in enumerate(SERIES)
}

# Any: the type stubs of Matplotlib spell out its parameters in some versions only.
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mgg",
    "text.parse_math": False,  # a '$' in a data set's name is a dollar sign
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.titlesize": 10,
    "legend.fontsize": 8.5,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
}
_SVG = "http://www.w3.org/2000/svg"
_HREF = "{http://www.w3.org/1999/xlink}href"
_COLOR = re.compile("|".join(_VARIABLES))
_REFERENCE = re.compile(r"url\(#([^)]*)\)")
_FONT = re.compile(r"font-family:[^;]*;?\s*")


def draw(
    plot: Callable[[Figure], None],
    *,
    key: str,
    alt: str,
    height: float,
    titles: Mapping[str, str] = MappingProxyType({}),
) -> Markup:
    """Let ``plot`` fill a figure ``height`` inches high; return an ``<svg>`` element.

    ``key`` makes the element's ids unique in the page, ``alt`` is the text for screen readers, and ``titles`` maps the
    gid of an artist to its tooltip. Equal calls give equal text: no date, and ids depend only on the content.
    """
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # The measuring font lacks some scripts, whose glyphs the reader's browser has.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        plot(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), key, alt, titles)


def horizontal(figure: Figure, label: str, most: int) -> Axes:
    """Return axes for horizontal bars over an axis ``label`` with at most ``most`` intervals."""
    axes = figure.add_subplot()
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(most))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.set_xlabel(label)
    return axes


def _inline(text: bytes, key: str, alt: str, titles: Mapping[str, str]) -> Markup:
    # Trusted XML: matplotlib just made it.
    root = ElementTree.fromstring(text)  # nosec B314
    for child in list(root):
        if child.tag == f"{{{_SVG}}}metadata" or (child.tag == f"{{{_SVG}}}defs" and len(child) and _is_style(child)):
            root.remove(child)
    used = set()
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == _HREF:
                used.add(value.removeprefix("#"))
            used.update(_REFERENCE.findall(value))
    for element in list(root.iter()):
        if title := titles.get(element.get("id", "")):
            told = ElementTree.Element(f"{{{_SVG}}}title")
            told.text = title
            element.insert(0, told)
    for element in root.iter():
        _rewrite(element, key, used)
    for name in ("width", "height"):
        root.attrib.pop(name)
    root.attrib |= {"role": "img", "aria-label": alt}
    ElementTree.register_namespace("", _SVG)
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # nosec B704


def _is_style(defs: ElementTree.Element) -> bool:
    """Return whether ``defs`` is Matplotlib's style sheet, which would apply to the whole page."""
    return defs[0].tag == f"{{{_SVG}}}style"


def _rewrite(element: ElementTree.Element, key: str, used: set[str]) -> None:
    """Drop unused ids, make the others unique, and replace colors with CSS variables."""
    element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
    attributes = {}
    for name, value in element.attrib.items():
        if name == "id":
            if value in used:
                attributes[name] = f"{key}-{value}"
        elif name == _HREF:
            attributes["href"] = f"#{key}-{value.removeprefix('#')}"
        else:
            local = _REFERENCE.sub(rf"url(#{key}-\1)", _FONT.sub("", value))
            attributes[name] = " ".join(_COLOR.sub(lambda found: _VARIABLES[found[0]], local).split())
    element.attrib.clear()
    element.attrib.update(attributes)
