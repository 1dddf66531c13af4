"""The page's figures as standalone SVG files that need no style sheet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain, count
from pathlib import Path

from mgg.report.page.parts import Drawing, Section

#: Folders of figures by subject; each exists even if it is empty.
FOLDERS = {kind: f"figures_{kind}" for kind in ("aggregate", "train", "papers", "jobs")}
_LONGEST = 80  # characters of a file's name


def files(sections: Mapping[str, Iterable[Section]]) -> dict[str, str]:
    """Return the text of each figure of ``sections`` (by kind), by its path in the report folder."""
    style = _style()
    found: dict[str, str] = {}
    for kind, folder in FOLDERS.items():
        for section in sections.get(kind, ()):
            for drawing in (drawing for part in section.parts for drawing in part.drawings):
                names = (f"{_name(drawing)}{end}" for end in chain([""], (f"-{number}" for number in count(2))))
                path = next(path for name in names if (path := f"{folder}/{name}.svg") not in found)
                found[path] = _alone(str(drawing.svg), style)
    return found


def _alone(svg: str, style: str) -> str:
    """Return the text of a standalone file, which, unlike inline SVG, needs a name space."""
    return svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(">", f">{style}", 1) + "\n"


def _name(drawing: Drawing) -> str:
    """Return a file name from the caption's first sentence, in characters that every file system accepts."""
    words = re.sub(r"[^a-z0-9]+", "-", re.split(r"[.;] ", f"{drawing.caption} ")[0].lower())
    return words[:_LONGEST].strip("-") or "figure"


def _style() -> str:
    """Return the page's light colors and font, because viewers may use a white background."""
    root = re.match(
        r":root \{(.*?)\}", (Path(__file__).parents[1] / "page" / "page.css").read_text(encoding="utf-8"), re.DOTALL
    )
    variables = " ".join(re.findall(r"--[\w-]+: [^;]+;", root[1])) if root else ""
    font = 'font-family: "DejaVu Sans", Verdana, Arial, sans-serif;'
    return f"<style>svg {{ {variables} background: #ffffff; fill: var(--ink); {font} }}</style>"
