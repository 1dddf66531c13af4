"""Explanations of terms and techniques: tooltips, legend lines and links to the list of terms."""

from __future__ import annotations

import re
from collections.abc import Iterable

from markupsafe import Markup, escape

from mgg.report.page.parts import read

#: Names of volumes (each has an entry under Terms) and of machines (each has a column).
_NAMES = re.compile(r"\b(VI_CoLa|V_cover|VI?_(?:CG|FR|FC))\b|\b[Mm]achine (M\d+)\b")
#: Words in headings and the terms they stand for.
_WORDS = {
    "launch": "Launch, median", "launches": "Launch, median", "speedup": "Speedup, efficiency", "halo rows": "Halo",
    "edge cut": "Edge cut", "imbalance": "Imbalance", "workgroups": "Workgroup", "★": "Star",
    "bytes on the wire": "Bytes on the wire",
}  # fmt: skip
_HINTED = re.compile(rf"{_NAMES.pattern}|(?<!\w)({'|'.join(_WORDS)})(?!\w)")


def terms() -> list[tuple[str, str, str]]:
    """Return each term's anchor, name and meaning."""
    return [(anchor(name), name, text) for name, text in read("glossary")["terms"].items()]


def linked(text: str, names: re.Pattern[str] = _NAMES) -> Markup:
    """Return ``text``, escaped, with links and tooltips on names of volumes and links on names of machines."""
    return Markup(names.sub(_link, str(escape(text))))  # nosec B704


def hinted(text: str) -> Markup:
    """Return ``linked(text)`` with tooltips on the words of a heading that are terms."""
    return linked(text, _HINTED)


def technique(label: str) -> Markup:
    """Return a technique's label (or several, separated by semicolons), escaped, with a tooltip on each."""
    names = [(each, re.split(r"[ (,:]", each, maxsplit=1)[0]) for each in label.split("; ")]
    known = read("glossary")["techniques"]
    return Markup("; ".join(_hint(str(escape(each)), known.get(name)) for each, name in names))  # nosec B704


def legend(names: Iterable[str]) -> str:
    """Return a sentence on each technique that has an entry."""
    told = read("glossary")["techniques"]
    return " ".join(f"{name} {told[name]}." for name in sorted(set(names)) if name in told)


def anchor(name: str) -> str:
    """Return the id of the entry that explains the term ``name``."""
    return f"term-{re.sub(r'[^a-z0-9]+', '-', name.lower())}"


def _hint(shown: str, text: str | None) -> str:
    return f'<abbr title="{escape(text)}">{shown}</abbr>' if text else shown


def _link(found: re.Match[str]) -> str:
    terms = read("glossary")["terms"]
    if found[1]:
        return f'<a href="#{anchor(found[1])}" title="{escape(terms[found[1]])}">{found[0]}</a>'
    return f'<a href="#where">{found[0]}</a>' if found[2] else _hint(found[0], terms[_WORDS[found[3]]])
