"""``mgg generate``: the stand-ins of real graphs."""

from __future__ import annotations

from pathlib import Path

import click

from mgg.cli.graph_options import facts
from mgg.cli.options import FOLDER, Number, common, show
from mgg.schema import MAX_INT64


@click.command()
@click.argument("generator")
@click.option("--out", type=FOLDER, required=True, help="graph folder")
@click.option("--name", help="what the graph is called  [default: as the generator]")
@click.option("--scale", type=Number(0, 1e6, min_open=True), help="size as a share of the full graph  [default: 1]")
@click.option("--seed", type=click.IntRange(0, MAX_INT64), help="seed of the random draws")
@click.option("--shuffle", is_flag=True, help="permute the node ids")
@click.option("--features", type=click.IntRange(1, 65536), help="columns of random features, to time training")
@click.option("--classes", type=click.IntRange(2, 65536), help="with --features: classes of random labels")
@common
def generate(
    generator: str, out: Path, name: str | None, scale: float | None, seed: int | None, shuffle: bool,
    features: int | None, classes: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Generate a graph with GENERATOR: planted, reddit-like, products-like, orkut-like, web-like and others."""
    from mgg.graph.generate import generate as run

    made = run(generator, out, name=name, scale=scale, seed=seed, shuffle=shuffle, features=features, classes=classes)
    show(facts(made, out), as_json)
