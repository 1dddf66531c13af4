"""``mgg retrieve``: fetch the raw files of a data set. ``mgg graph``: convert files to Parquet CSR shards.

``mgg graph-scatter``, ``graph-shard`` and ``graph-gather`` are the steps of ``mgg graph`` as separate jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import click

from mgg import config
from mgg.cli.names import completes
from mgg.cli.options import FOLDER, bundle, common, show, whole
from mgg.errors import InputError

#: Options of commands that limit their memory.
BUDGET = bundle(
    click.option(
        "--memory", "budget", default=config.GraphConfig().memory, show_default=True,
        help="peak memory of the process, for example 1GiB or 800MB",
    ),
    whole("--workers", 1, None, None, "threads  [default: one per core]"),
)  # fmt: skip
_READS = bundle(
    click.option(
        "--loader", shell_complete=completes("loaders"),
        help="reader of the files (mgg list loaders); not needed for folders of mgg retrieve or mgg graph and for known"
        " suffixes",
    ),
    click.option(
        "--columns", metavar="NAMES",
        help="edges without a header: roles of their columns, for example source,target,weight",
    ),
    click.option(
        "--column", metavar="ROLE=NAME", multiple=True,
        help="tables: role of a column whose name MGG does not know: source, target, weight, type; id, label,"
        " split, train, validation, test, feature; ignore; may be repeated",
    ),
    click.option("--symmetrize", is_flag=True, help="add the reverse of every arc"),
    click.option(
        "--repeats", type=click.Choice(get_args(config.Repeats)),
        help="weight of an arc that the source lists several times  [default: sum for matrix files, else first]",
    ),
    click.option(
        "--loops", type=click.Choice(get_args(config.Loops)),
        help="what to do with arcs from a node to itself  [default: keep for matrix files, else drop]",
    ),
    click.option("--labels", is_flag=True, help="refuse a source whose nodes have no labels"),
    click.option("--name", help="name of the graph  [default: that of the data set, file or folder]"),
)  # fmt: skip


def memory_of(budget: str, workers: int | None) -> Any:
    """The memory and threads that the options give.

    Raises:
        InputError: ``budget`` is not a size.
    """
    from mgg.graph.budget import parse_size
    from mgg.graph.external import Memory
    from mgg.graph.external.memory import usable_cores

    return Memory(parse_size(budget, "--memory"), workers or usable_cores())


def _how_to_read(
    columns: str | None, column: Iterable[str], budget: str, workers: int | None, **others: Any
) -> dict[str, Any]:
    """What ``mgg.graph.build`` takes for the values of the options of ``_READS`` and ``BUDGET``."""
    from mgg.graph.io.columns import ColumnChoice

    return {"memory": memory_of(budget, workers), "columns": ColumnChoice.parsed(columns, column), **others}


def facts(manifest: Any, out: Path) -> dict[str, Any]:
    """What a command prints about a graph that it made."""
    fields = (
        "nodes", "arcs", "symmetric", "weighted", "features", "classes", "relations", "tasks", "order", "listed_arcs",
        "dropped_loops", "dropped_repeats", "repeats", "loops",
    )  # fmt: skip
    return {"dataset": manifest.name} | {field: getattr(manifest, field) for field in fields} | {"out": str(out)}


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


@click.command()
@click.argument("source", shell_complete=completes("datasets", files=True))
@click.option("--out", type=FOLDER, required=True, help="graph folder")
@_READS
@click.option(
    "--order", default=config.DatasetConfig().order, show_default=True, shell_complete=completes("orders"),
    help="numbering of the nodes (mgg list orders)",
)  # fmt: skip
@BUDGET
@common
def graph(source: str, out: Path, order: str, as_json: bool, **reading: Any) -> None:
    """Turn SOURCE (a file, a folder or a data set's name) into a graph folder of Parquet CSR shards."""
    from mgg.graph.build import build

    show(facts(build(source, out, order=order, **_how_to_read(**reading)), out), as_json)


@click.command(hidden=True)
@click.argument("source")
@click.option("--out", type=FOLDER, required=True, help="folder of the scattered graph")
@_READS
@BUDGET
@common
def graph_scatter(source: str, out: Path, as_json: bool, **reading: Any) -> None:
    """Step 1 of mgg graph for a cluster: read SOURCE and spool its arcs by row range."""
    from mgg.graph.build import scatter

    made = scatter(source, out, **_how_to_read(**reading))
    show({"dataset": made.name, "nodes": made.nodes, "listed_arcs": made.listed_arcs, "out": str(out)}, as_json)


@click.command(hidden=True)
@click.argument("buckets", type=FOLDER)
@click.option("--part", required=True, metavar="K-of-N", help="which of N row ranges, for example 2-of-8")
@click.option("--out", type=FOLDER, required=True, help="folder of the sorted range")
@BUDGET
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
