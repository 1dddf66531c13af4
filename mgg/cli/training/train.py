"""``mgg train``: train a model on the whole graph."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from mgg import config
from mgg.cli import stop
from mgg.cli.names import completes
from mgg.cli.options import BACKEND, EMULATE, FOLDER, SECONDS, THREADS, common, show, split_assignments, whole
from mgg.errors import InputError, MachineError
from mgg.network import Network
from mgg.records import Side
from mgg.schema import MAX_INT64

_TRAIN = config.TrainConfig()


def one(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Callback of options that take one value here, but a list in other commands."""
    if "," in value:
        raise click.BadParameter(f"takes one, found {value!r}: run mgg train once for each of them")
    return value


class _Training(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; explain an unknown option that is a setting of a model."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from mgg.model import models, settings_of

            name = error.option_name.lstrip("-").replace("-", "_")
            if all(name not in type(settings_of(model)).model_fields for model in models()):
                raise
            said = f"No such option {error.option_name!r}: {name} is a setting of the model, --set {name}=VALUE"
            raise click.UsageError(said, ctx) from None


#: Options that mgg infer has, too.
TECHNIQUE = click.option(
    "--technique", callback=one, default=_TRAIN.techniques[0], show_default=True,
    shell_complete=completes("techniques"), help="aggregation technique (mgg list techniques), or auto",
)  # fmt: skip
DTYPE = click.option(
    "--dtype", type=click.Choice(get_args(config.Dtype)), default=_TRAIN.dtype, show_default=True,
    help="type of embeddings and halos; sums and weights are fp32",
)  # fmt: skip


def _library(side: Side) -> Any:
    """The trainer class of a library's side, with the side filled in; None for MGG's own sides."""
    if side == "mgg" or side == "unfused":  # noqa: PLR1714 - mypy narrows the type by it
        return None
    if click.get_current_context().get_parameter_source("technique") is not ParameterSource.DEFAULT:
        raise InputError(f"--technique: side {side} aggregates by itself: leave it out")
    try:
        from mgg.interop.pyg_training import LibraryTrainer
        from mgg.interop.sampling import SampledTrainer
    except ImportError as error:
        raise MachineError(f"side {side}: {error}").on_every_pe() from None
    return partial(SampledTrainer if side == "pyg_sampled" else LibraryTrainer, side=side)


@click.command(cls=_Training)
@click.argument("layout", type=FOLDER)
@click.option(
    "--model", required=True, callback=one, shell_complete=completes("models", files=True),
    help="name of a model (mgg list models), gcn for example, or a file of your own, ./my_model.py",
)  # fmt: skip
@click.option("--model-hash", metavar="SHA256", help="refuse your own file if its content has another hash")
@TECHNIQUE
@BACKEND
@THREADS
@EMULATE
@DTYPE
@click.option(
    "--side", type=click.Choice(get_args(Side)), default="mgg",
    show_default=True,
    help="what trains: mgg; unfused: vertex programs with a pass over arcs for each value; pyg, pyg_csr, pyg_bmm,"
    " pyg_sampled: PyTorch Geometric (docs/guides/interop.md)",
)  # fmt: skip
@click.option(
    "--metric", default=_TRAIN.metric, show_default=True,
    help="score, which also picks the best epoch: accuracy; micro_f1 or roc_auc for several yes-or-no labels per node",
)  # fmt: skip
@whole("--epochs", 1, config.MAX_EPOCHS, _TRAIN.epochs, "number of epochs")
@whole("--seed", 0, MAX_INT64, _TRAIN.seeds[0], "seed of weights and dropout")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE",
    help="setting of the model (docs/concepts/models.md, docs/concepts/training.md), also MODEL.KEY=VALUE, or option"
    " of the technique: TECHNIQUE.KEY=VALUE",
)  # fmt: skip
@click.option(
    "--checkpoint-every", type=SECONDS, default=_TRAIN.checkpoint_every, show_default=True,
    metavar="SECONDS", help="write checkpoints often enough that a fault costs at most this much work",
)  # fmt: skip
@click.option("--resume", is_flag=True, help="continue from the newest checkpoint, if there is one")
@click.option("--weights", type=FOLDER, help="start from the weights of a run, a weights.safetensors or a checkpoint")
@click.option(
    "--stall-after", type=SECONDS, default=_TRAIN.stall_after, show_default=True,
    metavar="SECONDS", help="end the run if a PE neither works nor waits for others for this long, and name the PE",
)  # fmt: skip
@click.option(
    "--memory-per-pe", metavar="SIZE",
    help="most memory per PE, on its GPU or its host, for example 20GiB  [default: the free memory]",
)  # fmt: skip
@click.option(
    "--activations", type=click.Choice(get_args(config.Activations)), default=_TRAIN.activations, show_default=True,
    help="activations for the backward pass: keep; recompute; host: hold them in host memory (CPU PEs: in mapped"
    " files); auto: keep them all if they fit, else the fastest mix",
)  # fmt: skip
@click.option("--phases", is_flag=True, help="record how long aggregations, dense products and communication take")
@click.option("--inference", is_flag=True, help="after the last epoch, time passes without dropout and gradients")
@click.option("--tensorboard", type=FOLDER, help="folder of TensorBoard event files  [default: none]")
@click.option("--out", type=FOLDER, required=True, help="run folder")
@common
def train(
    layout: Path, model: str, model_hash: str | None, technique: str, backend: str, threads: int,
    network: Network | None, dtype: str, side: Side, assignments: tuple[str, ...], memory_per_pe: str | None,
    activations: config.Activations, out: Path, as_json: bool, **others: Any,
) -> None:  # fmt: skip
    """Train a model on the whole graph of LAYOUT; more than one PE: mpiexec -n P mgg train ..."""
    # ``others`` are options that mgg.train takes by the same names.
    from mgg.backend import World, launch, together
    from mgg.backend.emulated import emulating
    from mgg.backend.machine.start_times import start_times
    from mgg.graph.budget import parse_size
    from mgg.kernel.compile_ahead import ahead
    from mgg.layout import load, read_manifest
    from mgg.model import find
    from mgg.naming import is_own_model, model_name
    from mgg.train import Result
    from mgg.train import train as run
    from mgg.train.expected_kernels import of_training

    if model_hash and not is_own_model(model):
        raise InputError(f"--model-hash: {model} is one of MGG's models; the option is for a file of your own")
    library = _library(side)
    allowed = None if memory_per_pe is None else parse_size(memory_per_pe, "--memory-per-pe")
    if library and (allowed is not None or activations != "auto"):
        raise InputError(f"--memory-per-pe, --activations: side {side} always keeps its activations: leave them out")
    if library and threads > 1:
        raise InputError(f"--threads {threads}: side {side} has one thread per PE: leave it out")
    settings, options = split_assignments(assignments, [] if library else [technique], model_name(model))

    with suppress(InputError):  # every PE reports it once the job runs
        ahead.expect([] if library else of_training(model, technique, options[technique], dtype))
    start_times.done("Python, imports")

    def program(world: World) -> Result:
        found = together(world, lambda: find(model, model_hash))
        part = together(world, lambda: load(layout, world.rank))
        start_times.done("layout")
        world = emulating(world, network, part.manifest.workgroup)
        return run(
            world, part, model=found, technique=technique, options=options.get(technique), settings=settings, out=out,
            dtype=dtype, side=side, library=library, activations=activations, memory_per_pe=allowed, progress=True,
            stop=stop.asked, **others,
        )  # fmt: skip

    record = launch(backend, lambda: read_manifest(layout).pes, program, threads)[0].record
    fields = (
        "model", "technique", "pes", "epochs", "loss", "metric", "best_epoch", "validation_accuracy", "test_accuracy",
        "median",
    )  # fmt: skip
    shown = {name: getattr(record, name) for name in fields}
    if not as_json:
        shown["seconds per epoch, median"] = shown.pop("median")
        if record.validation_accuracy is None:
            del shown["validation_accuracy"]
    if record.inference is not None:
        shown["inference" if as_json else "seconds a pass without gradients, median"] = record.inference
    if record.emulated is not None:
        shown["network"] = record.emulated
    if record.activations:
        shown["activations"] = record.activations
    show(shown | {"out": str(out)}, as_json)
