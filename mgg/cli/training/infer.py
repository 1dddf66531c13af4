"""``mgg infer``: predict every node by a model that was trained elsewhere. ``mgg evaluate``: score predictions."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from mgg.cli.names import completes
from mgg.cli.options import BACKEND, FOLDER, common, show, split_assignments
from mgg.cli.training.train import DTYPE, TECHNIQUE, one
from mgg.errors import InputError


@click.command()
@click.argument("layout", type=FOLDER)
@click.option(
    "--model", required=True, callback=one, shell_complete=completes("models", files=True),
    help="name of a model (mgg list models), or a file of your own",
)  # fmt: skip
@click.option("--weights", type=FOLDER, required=True, help=".safetensors or .npz file of its weights, by name")
@click.option(
    "--map", "maps", multiple=True, metavar="THEIRS=OURS",
    help="MGG's name for an array of the file; OURS.T transposes it, OURS.reshape keeps the order of its values,"
    " an empty OURS leaves it out",
)  # fmt: skip
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE",
    help="setting of the model's layers, also MODEL.KEY=VALUE, or option of the technique: TECHNIQUE.KEY=VALUE",
)  # fmt: skip
@TECHNIQUE
@BACKEND
@DTYPE
@click.option("--out", type=FOLDER, required=True, help="folder of the predictions")
@common
def infer(
    layout: Path, model: str, weights: Path, maps: tuple[str, ...], assignments: tuple[str, ...], technique: str,
    backend: str, dtype: str, out: Path, as_json: bool,
) -> None:  # fmt: skip
    """Predict for all nodes of LAYOUT with weights trained elsewhere; more than one PE: mpiexec -n P mgg infer ..."""
    from mgg.backend import launch, together
    from mgg.kernel.compile_ahead import ahead
    from mgg.layout import load, read_manifest
    from mgg.naming import model_name
    from mgg.train.expected_kernels import of_training
    from mgg.train.infer import infer as run

    settings, given = split_assignments(assignments, [technique], model_name(model))
    options = {"technique": technique, "options": given[technique], "dtype": dtype}
    with suppress(InputError):  # every PE reports it once the job runs
        ahead.expect(of_training(model, **options))
    options |= {"model": model, "weights": weights, "maps": maps, "settings": settings, "out": out}
    record = launch(
        backend, lambda: read_manifest(layout).pes,
        lambda world: run(world, together(world, lambda: load(layout, world.rank)), **options),
    )[0]  # fmt: skip
    shown = {name: getattr(record, name) for name in ("model", "technique", "pes", "dataset", "nodes", "weights")}
    show(shown | {"out": str(out)}, as_json)


@click.command()
@click.argument("run", type=FOLDER)
@common
def evaluate(run: Path, as_json: bool) -> None:
    """Score the predictions of a training RUN, or of mgg infer; for OGB's data sets with OGB's own Evaluator."""
    from mgg.train.evaluate import evaluate as score

    show(score(run), as_json)
