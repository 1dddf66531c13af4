"""``mgg criteo``: convert Criteo's file to samples for ``mgg lookup``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mgg.cli.options import FOLDER, common, show


@click.command()
@click.argument("file", type=FOLDER)
@click.option("--out", type=FOLDER, required=True, help="folder of samples")
@click.option(
    "--ids", type=click.Choice(("first", "hash")), required=True,
    help="how to number categories: by first appearance, or the category's number modulo --rows",
)  # fmt: skip
@click.option("--rows", type=click.IntRange(2, 2**31 - 1), help="with --ids hash: rows of every table")
@click.option("--samples", type=click.IntRange(1), help="read only this many lines  [default: all]")
@click.option("--name", help="name of the data set  [default: that of the file]")
@common
def criteo(
    file: Path, out: Path, ids: Any, rows: int | None, samples: int | None, name: str | None, as_json: bool
) -> None:
    """Read FILE, train.txt of Criteo's Kaggle challenge, into samples for mgg lookup."""
    from mgg.lookup.criteo import load

    show(told(load(file, out, ids=ids, rows=rows, samples=samples, name=name), out), as_json)


def told(manifest: Any, out: Path) -> dict[str, Any]:
    """What a command prints about a folder of samples that it made."""
    return {
        "dataset": manifest.name,
        "samples": manifest.samples,
        "tables": len(manifest.tables),
        "rows": sum(manifest.tables),
        "out": str(out),
    }
