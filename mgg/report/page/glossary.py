"""What terms and techniques mean, told where they stand: a hint on a pointer, a legend line, a link to the list."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import yaml
from markupsafe import Markup, escape

#: Names of volumes, which have an entry each under Terms, and of machines, which have a column each.
_NAMES = re.compile(r"\b(VI_CoLa|V_cover|VI?_(?:CG|FR|FC))\b|\b[Mm]achine (M\d+)\b")
#: Words of headings and the terms that they stand for.
_WORDS = {
    "launch": "Launch, median", "launches": "Launch, median", "speedup": "Speedup, efficiency", "halo rows": "Halo",
    "edge cut": "Edge cut", "imbalance": "Imbalance", "workgroups": "Workgroup", "★": "Star",
    "bytes on the wire": "Bytes on the wire",
}  # fmt: skip
_HINTED = re.compile(rf"{_NAMES.pattern}|(?<!\w)({'|'.join(_WORDS)})(?!\w)")


@cache
def _entries() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return found


def terms() -> list[tuple[str, str, str]]:
    """Every term: its anchor, its name and what it means."""
    return [(anchor(name), name, text) for name, text in _entries()["terms"].items()]


def linked(text: str) -> Markup:
    """``text``, escaped, with a link and a hint on each name of a volume and a link on each of a machine."""
    return Markup(_NAMES.sub(_link, str(escape(text))))  # nosec B704


def hinted(text: str) -> Markup:
    """``linked(text)`` with a hint on each word of a heading that is a term."""
    terms = _entries()["terms"]

    def put(found: re.Match[str]) -> str:
        return _hint(found[3], terms[_WORDS[found[3]]]) if found[3] else _link(found)

    return Markup(_HINTED.sub(put, str(escape(text))))  # nosec B704


def technique(label: str) -> Markup:
    """The label of a technique, or several with semicolons between, escaped, with a hint on what each does."""
    told = []
    for each in label.split("; "):
        text = _entries()["techniques"].get(re.split(r"[ (,:]", each, maxsplit=1)[0])
        told.append(_hint(str(escape(each)), text) if text else str(escape(each)))
    return Markup("; ".join(told))  # nosec B704


def legend(names: Iterable[str]) -> str:
    """A sentence on each of the techniques that has an entry."""
    told = _entries()["techniques"]
    return " ".join(f"{name} {told[name]}." for name in sorted(set(names)) if name in told)


def anchor(name: str) -> str:
    """The id of the entry that explains the term ``name``."""
    return f"term-{re.sub(r'[^a-z0-9]+', '-', name.lower())}"


def _hint(shown: str, text: str) -> str:
    return f'<abbr title="{escape(text)}">{shown}</abbr>'


def _link(found: re.Match[str]) -> str:
    if not found[1]:
        return f'<a href="#where">{found[0]}</a>'
    return f'<a href="#{anchor(found[1])}" title="{escape(_entries()["terms"][found[1]])}">{found[0]}</a>'
