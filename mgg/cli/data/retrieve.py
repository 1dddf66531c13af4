"""``mgg retrieve``: fetch the raw files of a data set."""

from __future__ import annotations

from pathlib import Path

import click

from mgg.cli.names import completes
from mgg.cli.options import FOLDER, common, show


@click.command()
@click.argument("name", shell_complete=completes("datasets"))
@click.option("--out", type=FOLDER, required=True, help="folder of the raw files")
@common
def retrieve(name: str, out: Path, as_json: bool) -> None:
    """Fetch the raw files of data set NAME, one of mgg list datasets.

    They come from $MGG_DATA_DIR, the cache or the network; checksums are verified.
    """
    from mgg.graph.retrieve import retrieve as run

    run(name, out)
    show({"dataset": name, "out": str(out)}, as_json)
