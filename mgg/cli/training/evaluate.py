"""``mgg evaluate``: score the predictions of a run."""

from __future__ import annotations

from pathlib import Path

import click

from mgg.cli.options import FOLDER, common, show


@click.command()
@click.argument("run", type=FOLDER)
@common
def evaluate(run: Path, as_json: bool) -> None:
    """Score the predictions of a training RUN, or of mgg infer; for OGB's data sets with OGB's own Evaluator."""
    from mgg.train.evaluate import evaluate as score

    show(score(run), as_json)
