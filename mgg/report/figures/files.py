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
    # The page's light colors, because viewers may use a white background.
    page = (Path(__file__).parents[1] / "page" / "page.css").read_text(encoding="utf-8")
    colors = " ".join(re.findall(r"--[\w-]+: [^;]+;", page.partition("}")[0]))
    font = 'font-family: "DejaVu Sans", Verdana, Arial, sans-serif;'
    style = f"><style>svg {{ {colors} background: #ffffff; fill: var(--ink); {font} }}</style>"
    found: dict[str, str] = {}
    for kind, folder in FOLDERS.items():
        for section in sections.get(kind, ()):
            for drawing in (drawing for part in section.parts for drawing in part.drawings):
                names = (f"{folder}/{_name(drawing)}{end}.svg" for end in chain([""], (f"-{n}" for n in count(2))))
                # Unlike inline SVG, a file needs a name space.
                text = str(drawing.svg).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
                found[next(path for path in names if path not in found)] = text.replace(">", style, 1) + "\n"
    return found


def _name(drawing: Drawing) -> str:
    """Return a file name from the caption's first sentence, in characters that every file system accepts."""
    words = re.sub(r"[^a-z0-9]+", "-", re.split(r"[.;] ", f"{drawing.caption} ")[0].lower())
    return words[:_LONGEST].strip("-") or "figure"
