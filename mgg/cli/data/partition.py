"""``mgg partition``: choose which PE owns which rows."""

from __future__ import annotations

from pathlib import Path

import click

from mgg import config
from mgg.cli.names import completes
from mgg.cli.options import FOLDER, common, show

_PARTITION = config.PartitionConfig()


@click.command()
@click.argument("graph", type=FOLDER)
@click.option("--pes", type=click.IntRange(1, config.MAX_PES), required=True, help="number of PEs")
@click.option(
    "--scheme", default=_PARTITION.scheme, show_default=True, shell_complete=completes("schemes"),
    help="how rows are cut (mgg list schemes)",
)  # fmt: skip
@click.option(
    "--workgroup",
    type=click.IntRange(1),
    default=_PARTITION.workgroup,
    show_default=True,
    help="PEs joined by fast links",
)
@click.option(
    "--dim",
    type=click.IntRange(1, config.MAX_DIM),
    default=_PARTITION.dim,
    show_default=True,
    help="columns of B, for the volumes in bytes",
)
@click.option("--cover", is_flag=True, help="also count V_cover: the bytes of halo.split=cover without workgroups")
@click.option("--out", type=FOLDER, required=True, help="partition folder")
@common
def partition(
    graph: Path, pes: int, scheme: str, workgroup: int, dim: int, cover: bool, out: Path, as_json: bool
) -> None:
    """Choose which PE owns which rows of GRAPH, and print how good the choice is."""
    from mgg.partition import build

    made = build(graph, out, pes=pes, scheme=scheme, workgroup=workgroup, dim=dim, cover=cover)
    told = {"dataset": made.name, "pes": pes, "scheme": scheme, "workgroup": workgroup, **made.quality.model_dump()}
    if not as_json:
        del told["halo_rows_per_pair"]  # P numbers for each of P PEs
    show(told | {"out": str(out)}, as_json)
