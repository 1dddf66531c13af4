"""``mgg generate``: generate stand-ins for real graphs and for the lookups of recommendation models."""

from __future__ import annotations

from pathlib import Path

import click

from mgg import config
from mgg.cli.data.criteo import told
from mgg.cli.data.graph_options import facts, memory_of
from mgg.cli.names import completes
from mgg.cli.options import FOLDER, Number, common, show
from mgg.errors import InputError
from mgg.schema import MAX_INT64

CRITEO_LIKE = "criteo-like"


@click.command()
@click.argument("generator", shell_complete=completes("generators"))
@click.option("--out", type=FOLDER, required=True, help="graph folder; for criteo-like, folder of samples")
@click.option("--name", help="name of the graph  [default: that of the generator]")
@click.option("--scale", type=Number(0, 1e6, min_open=True), help="size as a share of the full graph  [default: 1]")
@click.option("--seed", type=click.IntRange(0, MAX_INT64), help="seed of the random draws")
@click.option("--shuffle", is_flag=True, help="permute the node ids")
@click.option("--features", type=click.IntRange(1, 65536), help="columns of random features, to time training")
@click.option("--classes", type=click.IntRange(2, 65536), help="with --features: classes of random labels")
@click.option("--samples", type=click.IntRange(1, MAX_INT64), help="with criteo-like: samples  [default: 262144]")
@click.option("--memory", "budget", help="with citation-like or papers-like: peak memory  [default: 4GiB]")
@click.option("--workers", type=click.IntRange(1), help="with these two: threads  [default: one per core]")
@common
def generate(
    generator: str, out: Path, name: str | None, scale: float | None, seed: int | None, shuffle: bool,
    features: int | None, classes: int | None, samples: int | None, budget: str | None, workers: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Generate a graph with GENERATOR (mgg list generators).

    criteo-like makes samples over 26 tables for mgg lookup instead of a graph.
    """
    if generator == CRITEO_LIKE:
        from mgg.lookup import criteo_like

        if shuffle or features or classes or budget or workers:
            alien = "leave out --shuffle, --features, --classes, --memory and --workers"
            raise InputError(f"{generator} makes samples, not a graph: {alien}")
        show(told(criteo_like.generate(out, name=name, scale=scale, seed=seed, samples=samples), out), as_json)
        return
    if samples is not None:
        raise InputError(f"--samples works only with {CRITEO_LIKE}")
    from mgg.graph.generate import generate as run

    memory = memory_of(budget or config.GraphConfig().memory, workers) if budget or workers else None
    made = run(
        generator, out, name=name, scale=scale, seed=seed, shuffle=shuffle, features=features, classes=classes,
        memory=memory,
    )  # fmt: skip
    show(facts(made, out), as_json)
