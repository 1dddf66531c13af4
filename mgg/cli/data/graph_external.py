"""``mgg graph-scatter``, ``graph-shard`` and ``graph-gather``: the steps of ``mgg graph`` as separate jobs."""

from __future__ import annotations

import re
from pathlib import Path

import click

from mgg.cli.data.graph_options import budget, facts, memory_of, reads
from mgg.cli.options import FOLDER, common, show
from mgg.config import Loops, Repeats
from mgg.errors import InputError


@click.command(hidden=True)
@click.argument("source")
@click.option("--out", type=FOLDER, required=True, help="folder of the scattered graph")
@reads
@budget
@common
def graph_scatter(
    source: str, out: Path, loader: str | None, columns: str | None, column: tuple[str, ...], symmetrize: bool,
    repeats: Repeats | None, loops: Loops | None, labels: bool, name: str | None, budget: str, workers: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Step 1 of mgg graph for a cluster: read SOURCE and spool its arcs by row range."""
    from mgg.graph.build import scatter
    from mgg.graph.io.columns import Columns

    memory = memory_of(budget, workers)
    said = Columns.parsed(columns, column)
    made = scatter(
        source, out, loader=loader, columns=said, symmetrize=symmetrize, repeats=repeats, loops=loops, labels=labels,
        memory=memory, name=name,
    )  # fmt: skip
    show({"dataset": made.name, "nodes": made.nodes, "listed_arcs": made.listed_arcs, "out": str(out)}, as_json)


@click.command(hidden=True)
@click.argument("buckets", type=FOLDER)
@click.option("--part", required=True, metavar="K-of-N", help="which of N row ranges, for example 2-of-8")
@click.option("--out", type=FOLDER, required=True, help="folder of the sorted range")
@budget
@common
def graph_shard(buckets: Path, part: str, out: Path, budget: str, workers: int | None, as_json: bool) -> None:
    """Step 2 of mgg graph for a cluster: sort one row range of the scattered graph BUCKETS."""
    from mgg.graph.build import shard

    match = re.fullmatch(r"(\d{1,6})-of-(\d{1,6})", part, re.ASCII)
    number, of = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= of:
        raise InputError(f"--part {part[:40]}: expected K-of-N with K from 1 to N, for example 2-of-8")
    made = shard(buckets, out, number=number, of=of, memory=memory_of(budget, workers))
    show({"first": made.first, "rows": made.rows, "arcs": made.arcs, "out": str(out)}, as_json)


@click.command(hidden=True)
@click.argument("buckets", type=FOLDER)
@click.argument("shards", type=FOLDER, nargs=-1, required=True)
@click.option("--out", type=FOLDER, required=True, help="graph folder")
@common
def graph_gather(buckets: Path, shards: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Step 3 of mgg graph for a cluster: put all sorted ranges SHARDS of the scattered graph BUCKETS together."""
    from mgg.graph.build import gather

    show(facts(gather(buckets, shards, out), out), as_json)
