"""Convert Matplotlib figures to inline SVG with the page's colors, font and width."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib
from markupsafe import Markup, escape
from matplotlib.figure import Figure

#: Placeholder colors, replaced by CSS variables in the SVG, so that a figure suits light, dark and paper.
INK, GRID, SHADE = "#010101", "#010102", "#010103"
SERIES = [f"#0102{number:02x}" for number in range(10)]
_VARIABLES = {INK: "ink", GRID: "grid", SHADE: "shade"} | {color: f"s{number}" for number, color in enumerate(SERIES)}
#: Beginning of an artist's gid that becomes its tooltip.
TITLE = "title: "
#: Beginning of every id in a figure. The page puts a number in its place, so that ids are unique there.
ID = "ID-"

# Any: the type stubs of Matplotlib spell out its parameters in some versions only.
_STYLE: Any = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "svg.fonttype": "none",
    "svg.hashsalt": "mgg",
    "text.parse_math": False,  # a '$' in a data set's name is a dollar sign
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8.5,
    "grid.color": GRID,
    "axes.grid": True,
    "axes.axisbelow": True,
    "hatch.linewidth": 0.6,
}
#: What Matplotlib writes and the page does not need: all before the element, a style sheet for the whole page.
_NEEDLESS = re.compile(r"(?s)^.*?(?=<svg )|<metadata>.*?</metadata>|<defs>\s*<style.*?</defs>")
#: Of a tag: ids that nothing refers to (others are a letter and a hash), and the font.
_DROPPED = re.compile(r""" id="(?![mhp][0-9a-f]{10}")[^"]*"| font-family: [^;"]*;""")
_REFERENCE = re.compile(r'(id="|url\(#|href="#)(?=[mhp][0-9a-f]{10}\b)')


def draw(plot: Callable[[Figure], None], alt: str) -> Markup:
    """Let ``plot`` fill a figure and set its height; return an ``<svg>`` element.

    ``alt`` is the text for screen readers; an artist whose gid begins with ``TITLE`` has the rest as its tooltip. Equal
    calls give equal text: no date, and ids depend only on the content.
    """
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # The measuring font lacks some scripts, whose glyphs the reader's browser has.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        # At 400 pixels of page width a 9-point label still shows 9 pixels high.
        figure = Figure(figsize=(4.7, 1), layout="constrained")
        plot(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = re.sub(r"<[^>]+>", lambda tag: _tag(" ".join(tag[0].split())), _NEEDLESS.sub("", buffer.getvalue().decode()))
    size = re.search(r'viewBox="[^"]*"', text)
    head = f'<svg {size[0] if size else ""} role="img" aria-label="{escape(alt)}">'
    return Markup(head + re.sub(r">\s+<", "><", text.partition(">")[2].strip()))  # nosec B704


def _tag(tag: str) -> str:
    """Return a tag with the page's colors, unique ids and its tooltip."""
    if tag.startswith(begin := f'<g id="{TITLE}'):
        title = tag.removeprefix(begin).removesuffix('">')
        return f"<g><title>{title}</title>"
    tag = _REFERENCE.sub(rf"\1{ID}", _DROPPED.sub("", tag).replace("xlink:href", "href"))
    return re.sub("|".join(_VARIABLES), lambda color: f"var(--{_VARIABLES[color[0]]})", tag)
