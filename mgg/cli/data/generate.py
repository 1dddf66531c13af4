"""``mgg generate``: generate stand-ins for real graphs and for the lookups of recommendation models.

``mgg criteo``: convert Criteo's file to samples for ``mgg lookup``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mgg import config
from mgg.cli.data.graph import facts, memory_of
from mgg.cli.names import completes
from mgg.cli.options import FOLDER, Number, common, show, whole
from mgg.errors import InputError
from mgg.schema import MAX_INT64

CRITEO_LIKE = "criteo-like"


@click.command()
@click.argument("generator", shell_complete=completes("generators"))
@click.option("--out", type=FOLDER, required=True, help="graph folder; for criteo-like, folder of samples")
@click.option("--name", help="name of the graph  [default: that of the generator]")
@click.option("--scale", type=Number(0, 1e6, min_open=True), help="size as a share of the full graph  [default: 1]")
@whole("--seed", 0, MAX_INT64, None, "seed of the random draws")
@click.option("--shuffle", is_flag=True, help="permute the node ids")
@whole("--features", 1, 65536, None, "columns of random features, to time training")
@whole("--classes", 2, 65536, None, "with --features: classes of random labels")
@whole("--samples", 1, MAX_INT64, None, "with criteo-like: samples  [default: 262144]")
@click.option("--memory", "budget", help="with citation-like or papers-like: peak memory  [default: 4GiB]")
@whole("--workers", 1, None, None, "with these two: threads  [default: one per core]")
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
        show(_samples(criteo_like.generate(out, name=name, scale=scale, seed=seed, samples=samples), out), as_json)
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


@click.command()
@click.argument("file", type=FOLDER)
@click.option("--out", type=FOLDER, required=True, help="folder of samples")
@click.option(
    "--ids", type=click.Choice(("first", "hash")), required=True,
    help="how to number categories: by first appearance, or the category's number modulo --rows",
)  # fmt: skip
@whole("--rows", 2, 2**31 - 1, None, "with --ids hash: rows of every table")
@whole("--samples", 1, None, None, "read only this many lines  [default: all]")
@click.option("--name", help="name of the data set  [default: that of the file]")
@common
def criteo(
    file: Path, out: Path, ids: Any, rows: int | None, samples: int | None, name: str | None, as_json: bool
) -> None:
    """Read FILE, train.txt of Criteo's Kaggle challenge, into samples for mgg lookup."""
    from mgg.lookup.criteo import load

    show(_samples(load(file, out, ids=ids, rows=rows, samples=samples, name=name), out), as_json)


def _samples(manifest: Any, out: Path) -> dict[str, Any]:
    """What a command prints about a folder of samples that it made."""
    rows = {"tables": len(manifest.tables), "rows": sum(manifest.tables)}
    return {"dataset": manifest.name, "samples": manifest.samples, **rows, "out": str(out)}
