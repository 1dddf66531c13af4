"""Links from a name in a sentence to where the page explains it."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

#: Names of volumes, which have an entry each under Terms, and of machines, which have a column each.
_NAMES = re.compile(r"\b(VI_CoLa|VI?_(?:CG|FR|FC))\b|\b[Mm]achine (M\d+)\b")


def linked(text: str) -> Markup:
    """``text``, escaped, with a link on each name of a volume and of a machine."""
    return Markup(_NAMES.sub(_link, str(escape(text))))  # nosec B704


def anchor(name: str) -> str:
    """The id of the entry that explains the volume ``name``."""
    return f"term-{name.lower().replace('_', '-')}"


def _link(found: re.Match[str]) -> str:
    target = anchor(found[1]) if found[1] else "where"
    return f'<a href="#{target}">{found[0]}</a>'
