"""The model files and commands of docs/guides/vertex.md."""

from __future__ import annotations

import re
from pathlib import Path

from support.workflow import ROOT

DOCS = (ROOT / "docs/guides/vertex.md").read_text(encoding="utf-8")
PYTHON: list[str] = re.findall(r"^```python\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
#: Name -> block, if it begins with a comment that names the file.
FILES = {found[1]: block for block in PYTHON if (found := re.match(r"# (\w+)\.py\n", block))}
MODELS = {name: block for name, block in FILES.items() if name.startswith("my_")}
COMMANDS = [line for block in re.findall(r"^```console\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
            for line in block.splitlines()]  # fmt: skip
#: Settings that make these models small.
SMALL = {"my_gatv2": {"hidden": 4, "heads": 2}, **{name: {"hidden": 4} for name in MODELS if name != "my_gatv2"}}


def written(folder: Path, name: str) -> str:
    """Write a file of the guide into ``folder``; returns its path."""
    path = folder / f"{name}.py"
    path.write_text(FILES[name], encoding="utf-8")
    return str(path)
