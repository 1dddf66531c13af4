"""``mgg layout``: write what each PE holds."""

from __future__ import annotations

from pathlib import Path

import click

from mgg.cli.data.graph_options import budget, memory_of
from mgg.cli.options import FOLDER, common, show


@click.command()
@click.argument("graph", type=FOLDER)
@click.argument("part", type=FOLDER)
@click.option("--out", type=FOLDER, required=True, help="layout folder")
@budget
@common
def layout(graph: Path, part: Path, out: Path, budget: str, workers: int | None, as_json: bool) -> None:
    """Split GRAPH into one folder per PE, as partition PART says."""
    from mgg.layout import build

    made = build(graph, part, out, memory_of(budget, workers))
    halo_rows = sum(made.forward.halo_rows)
    show(
        {"dataset": made.name, "pes": made.pes, "halo_rows": halo_rows, "files": len(made.files), "out": str(out)},
        as_json,
    )
