"""``mgg partition``: choose which PE owns which rows. ``mgg layout``: write what each PE holds."""

from __future__ import annotations

from pathlib import Path

import click

from mgg import config
from mgg.cli.data.graph import BUDGET, memory_of
from mgg.cli.names import completes
from mgg.cli.options import FOLDER, common, show, usual, whole

_PARTITION = config.PartitionConfig()


@click.command()
@click.argument("graph", type=FOLDER)
@click.option("--pes", type=click.IntRange(1, config.MAX_PES), required=True, help="number of PEs")
@usual("--scheme", _PARTITION.scheme, "how rows are cut (mgg list schemes)", shell_complete=completes("schemes"))
@whole("--workgroup", 1, None, _PARTITION.workgroup, "PEs joined by fast links")
@whole("--dim", 1, config.MAX_DIM, _PARTITION.dim, "columns of B, for the volumes in bytes")
@click.option("--cover", is_flag=True, help="also count V_cover: the bytes of halo.split=cover without workgroups")
@click.option("--out", type=FOLDER, required=True, help="partition folder")
@common
def partition(
    graph: Path, pes: int, scheme: str, workgroup: int, dim: int, cover: bool, out: Path, as_json: bool
) -> None:
    """Choose which PE owns which rows of GRAPH, and print how good the choice is."""
    from mgg.partition import build

    made = build(graph, out, pes=pes, scheme=scheme, workgroup=workgroup, dim=dim, cover=cover)
    facts = {"dataset": made.name, "pes": pes, "scheme": scheme, "workgroup": workgroup, **made.quality.model_dump()}
    if not as_json:
        del facts["halo_rows_per_pair"]  # P numbers for each of P PEs
    show(facts | {"out": str(out)}, as_json)


@click.command()
@click.argument("graph", type=FOLDER)
@click.argument("part", type=FOLDER)
@click.option("--out", type=FOLDER, required=True, help="layout folder")
@BUDGET
@common
def layout(graph: Path, part: Path, out: Path, budget: str, workers: int | None, as_json: bool) -> None:
    """Split GRAPH into one folder per PE, as partition PART says."""
    from mgg.layout import build

    made = build(graph, part, out, memory_of(budget, workers))
    facts = {"dataset": made.name, "pes": made.pes, "halo_rows": sum(made.forward.halo_rows)}
    show(facts | {"files": len(made.files), "out": str(out)}, as_json)
