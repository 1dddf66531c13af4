"""What the Snakefile needs beside its rules: the only part of mgg that imports Snakemake."""

from __future__ import annotations

import sys
from typing import NoReturn


def refuse(message: object, code: int = 2) -> NoReturn:
    """End snakemake with one line; an exception would print a traceback."""
    print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(code)
