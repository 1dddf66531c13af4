"""``mgg graph``: convert files to Parquet CSR shards."""

from __future__ import annotations

from pathlib import Path

import click

from mgg import config
from mgg.cli.data.graph_options import budget, facts, memory_of, reads
from mgg.cli.names import completes
from mgg.cli.options import FOLDER, common, show

_DATASET = config.DatasetConfig()


@click.command()
@click.argument("source", shell_complete=completes("datasets", files=True))
@click.option("--out", type=FOLDER, required=True, help="graph folder")
@reads
@click.option(
    "--order", default=_DATASET.order, show_default=True, shell_complete=completes("orders"),
    help="numbering of the nodes (mgg list orders)",
)  # fmt: skip
@budget
@common
def graph(
    source: str, out: Path, loader: str | None, columns: str | None, column: tuple[str, ...], symmetrize: bool,
    repeats: config.Repeats | None, loops: config.Loops | None, labels: bool, name: str | None, order: str, budget: str,
    workers: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Turn SOURCE (a file, a folder or a data set's name) into a graph folder of Parquet CSR shards."""
    from mgg.graph.build import build
    from mgg.graph.io.columns import Columns

    memory = memory_of(budget, workers)
    said = Columns.parsed(columns, column)
    manifest = build(
        source, out, loader=loader, columns=said, symmetrize=symmetrize, repeats=repeats, loops=loops, labels=labels,
        order=order, memory=memory, name=name,
    )  # fmt: skip
    show(facts(manifest, out), as_json)
