"""The command line: one command a stage, the same entry points that the workflow's rules call."""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
import yaml

from mgg import __version__, config
from mgg.errors import InputError, MachineError, MggError
from mgg.files import keep_others_out

# Stages are imported inside their commands: `mgg --help` and one stage must not wait for all the others.

F = TypeVar("F", bound=Callable[..., Any])
_FOLDER = click.Path(path_type=Path)
_GRAPH = config.GraphConfig()
_DATASET = config.DatasetConfig()
_AGGREGATE = config.AggregateConfig()
_TRAIN = config.TrainConfig()
_PREDICT = config.PredictConfig()
_NUMBER = re.compile(r"[0-9.]+[eE][-+]?[0-9]+")  # 45e9 is text to YAML
_AUTO = "auto"
_BACKENDS = get_args(config.Backend)
_BACKEND_HELP = "simulated: threads; mpi: CPU ranks; nvshmem: GPUs; auto: GPUs where each PE has one, else CPUs"


class _CommaList(click.ParamType):
    """Values separated by commas."""

    name = "list"

    def __init__(self, item: type = str, choices: Sequence[str] = ()):
        self.item = item
        self.choices = choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        if isinstance(value, list):
            return value
        try:
            items = [self.item(part.strip()) for part in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a comma-separated list of whole numbers", param, ctx)
        if self.item is int and not 1 <= min(items) <= max(items) <= config.MAX_DIM:
            self.fail(f"{value!r} holds a number that is not in 1..{config.MAX_DIM}", param, ctx)
        for each in items:
            if self.choices and each not in self.choices:
                self.fail(f"{each!r} is not one of {', '.join(self.choices)}", param, ctx)
        return list(dict.fromkeys(items))


def _common(command: F) -> F:
    """The options that every command has."""
    command = click.option("--debug", is_flag=True, help="show the traceback of an error")(command)
    return click.option("--json", "as_json", is_flag=True, help="print one JSON object on standard output")(command)


def _speaks() -> bool:
    """Rank 0 alone prints; asked before and after MPI starts, so it reads the launcher's variables."""
    from mgg.backend import job_rank

    return job_rank() == 0


def _show(values: dict[str, Any], as_json: bool) -> None:
    """Print a result: one JSON object, or a line a value."""
    if not _speaks():
        return
    if as_json:
        click.echo(json.dumps(values))
        return
    for key, value in values.items():
        click.echo(f"{key}: {value}")


def _assignments(pairs: Iterable[str]) -> dict[str, Any]:
    """``key=value`` pairs; values are read as YAML scalars (true, 3, 0.5, text)."""
    values = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set {pair}: expected key=value")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = text
        if not isinstance(value, (bool, int, float, str)):
            raise InputError(f"--set {pair}: the value must be a number, true, false or text")
        values[key] = value
    return values


def _split_assignments(pairs: Iterable[str], techniques: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Assignments as given and, by technique, those written ``technique.key=value``."""
    plain: dict[str, Any] = {}
    qualified: dict[str, Any] = {name: {} for name in techniques}
    for key, value in _assignments(pairs).items():
        owner, dot, option = key.partition(".")
        if not dot:
            plain[key] = value
        elif owner in qualified:
            qualified[owner][option] = value
        else:
            raise InputError(
                f"--set {key}: technique {owner!r} is not among those named; {config.nearest(owner, qualified)}"
            )
    return plain, qualified


def _chosen(techniques: list[str], assignments: Iterable[str], variants: Iterable[str]) -> list[tuple[str, Any]]:
    """What --technique, --set and --variant name: each technique with each of its sets of options."""
    from mgg.aggregate.variants import expand, parse

    techniques = [name for name in techniques if name != _AUTO]
    if assignments and not techniques:
        raise InputError("--set: technique auto picks at default options; name the technique that has this option")
    plain, qualified = _split_assignments(assignments, techniques)
    grids: dict[str, list[Any]] = {name: [] for name in techniques}
    for text in variants:
        name, grid = parse(text)
        if name not in grids:
            raise InputError(
                f"--variant {text}: technique {name!r} is not among those named; {config.nearest(name, grids)}"
            )
        grids[name].append(grid)
    return [(name, options) for name in techniques for options in expand(name, plain | qualified[name], grids[name])]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mgg")
def cli() -> None:
    """Full-graph GNN training and distributed SpMM on every GPU of a cluster, or on CPU ranks."""


@cli.command()
@click.option(
    "--slurm", is_flag=True, help="try out the cluster instead: partitions, GPUs, MPI flavours, shared folder"
)
@click.option("--partition", help="with --slurm: the partition whose nodes are tried  [default: the cluster's]")
@click.option("--account", help="with --slurm: the account that is charged  [default: yours]")
@_common
def doctor(slurm: bool, partition: str | None, account: str | None, as_json: bool, debug: bool) -> None:
    """Say what this machine can run, and why not."""
    from mgg.backend import probe
    from mgg.backend import slurm as cluster

    if not slurm:
        if partition or account:
            raise InputError("--partition and --account need --slurm")
        _show(probe.report(), as_json)
        return
    facts, ready = cluster.report(Path.cwd(), partition, account)
    _show(facts, as_json)
    if not ready:
        raise MachineError("this cluster cannot run the workflow yet: see what fails above")


@cli.command()
@click.argument("name")
@click.option("--out", type=_FOLDER, required=True, help="folder of the raw files")
@_common
def retrieve(name: str, out: Path, as_json: bool, debug: bool) -> None:
    """Fetch the raw files of data set NAME: from $MGG_DATA_DIR, the cache or the network, checksums verified."""
    from mgg.graph.retrieve import retrieve as run

    run(name, out)
    _show({"dataset": name, "out": str(out)}, as_json)


def _budget(command: F) -> F:
    """The options of commands that keep within an amount of memory."""
    command = click.option("--workers", type=click.IntRange(1), help="threads  [default: one a core]")(command)
    text = "memory that the process may take at its peak, for example 1GiB or 800MB"
    return click.option("--memory", "budget", default=_GRAPH.memory, show_default=True, help=text)(command)


def _reads(command: F) -> F:
    """The options of commands that read a source."""
    text = "reader of the files; folders made by mgg retrieve or mgg graph and well-known suffixes say it themselves"
    command = click.option("--symmetrize", is_flag=True, help="add the reverse of every arc")(command)
    return click.option("--loader", help=text)(command)


def _memory(budget: str, workers: int | None) -> Any:
    from mgg.graph.external import Memory, parse_size
    from mgg.graph.external.memory import usable_cores

    return Memory(parse_size(budget), workers or usable_cores())


@cli.command()
@click.argument("source")
@click.option("--out", type=_FOLDER, required=True, help="graph folder")
@_reads
@click.option(
    "--order", default=_DATASET.order, show_default=True, help="numbering: natural, degree, rcm, rabbit, auto"
)
@_budget
@_common
def graph(
    source: str, out: Path, loader: str | None, symmetrize: bool, order: str, budget: str, workers: int | None,
    as_json: bool, debug: bool,
) -> None:  # fmt: skip
    """Turn SOURCE (a file, a folder or a data set's name) into a graph folder of Parquet CSR shards."""
    from mgg.graph.build import build

    memory = _memory(budget, workers)
    manifest = build(source, out, loader=loader, symmetrize=symmetrize, order=order, memory=memory)
    _show(_facts(manifest, out), as_json)


@cli.command()
@click.argument("source")
@click.option("--out", type=_FOLDER, required=True, help="folder of the scattered graph")
@_reads
@_budget
@_common
def graph_scatter(
    source: str, out: Path, loader: str | None, symmetrize: bool, budget: str, workers: int | None,
    as_json: bool, debug: bool,
) -> None:  # fmt: skip
    """Step 1 of mgg graph for a cluster: read SOURCE and spool its arcs by row range."""
    from mgg.graph.build import scatter

    made = scatter(source, out, loader=loader, symmetrize=symmetrize, memory=_memory(budget, workers))
    _show({"name": made.name, "nodes": made.nodes, "listed_arcs": made.listed_arcs, "out": str(out)}, as_json)


@cli.command()
@click.argument("buckets", type=_FOLDER)
@click.option("--part", required=True, metavar="K-of-N", help="which of N row ranges, for example 2-of-8")
@click.option("--out", type=_FOLDER, required=True, help="folder of the sorted range")
@_budget
@_common
def graph_shard(
    buckets: Path, part: str, out: Path, budget: str, workers: int | None, as_json: bool, debug: bool
) -> None:
    """Step 2 of mgg graph for a cluster: sort one row range of the scattered graph BUCKETS."""
    from mgg.graph.build import shard

    match = re.fullmatch(r"(\d{1,6})-of-(\d{1,6})", part, re.ASCII)
    number, of = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= of:
        raise InputError(f"--part {part[:40]}: expected K-of-N with K from 1 to N, for example 2-of-8")
    made = shard(buckets, out, number=number, of=of, memory=_memory(budget, workers))
    _show({"first": made.first, "rows": made.rows, "arcs": made.arcs, "out": str(out)}, as_json)


@cli.command()
@click.argument("buckets", type=_FOLDER)
@click.argument("shards", type=_FOLDER, nargs=-1, required=True)
@click.option("--out", type=_FOLDER, required=True, help="graph folder")
@_common
def graph_gather(buckets: Path, shards: tuple[Path, ...], out: Path, as_json: bool, debug: bool) -> None:
    """Step 3 of mgg graph for a cluster: put all sorted ranges SHARDS of the scattered graph BUCKETS together."""
    from mgg.graph.build import gather

    _show(_facts(gather(buckets, shards, out), out), as_json)


@cli.command()
@click.argument("generator")
@click.option("--out", type=_FOLDER, required=True, help="graph folder")
@click.option("--name", help="what the graph is called  [default: as the generator]")
@click.option("--scale", type=float, help="size as a share of the full graph  [default: 1]")
@click.option("--seed", type=int, help="seed of the random draws")
@click.option("--shuffle", is_flag=True, help="permute the node ids")
@click.option("--features", type=click.IntRange(1, 65536), help="columns of random features, to time training")
@click.option("--classes", type=click.IntRange(2, 65536), help="with --features: classes of random labels")
@_common
def generate(
    generator: str, out: Path, name: str | None, scale: float | None, seed: int | None, shuffle: bool,
    features: int | None, classes: int | None, as_json: bool, debug: bool,
) -> None:  # fmt: skip
    """Generate a graph with GENERATOR: planted, reddit-like, products-like, orkut-like or web-like."""
    from mgg.graph.generate import generate as run

    made = run(generator, out, name=name, scale=scale, seed=seed, shuffle=shuffle, features=features, classes=classes)
    _show(_facts(made, out), as_json)


def _facts(manifest: Any, out: Path) -> dict[str, Any]:
    fields = (
        "name",
        "nodes",
        "arcs",
        "symmetric",
        "weighted",
        "features",
        "classes",
        "relations",
        "tasks",
        "order",
        "listed_arcs",
        "dropped_loops",
        "dropped_repeats",
    )
    return {field: getattr(manifest, field) for field in fields} | {"out": str(out)}


@cli.command()
@click.argument("graph", type=_FOLDER)
@click.option("--pes", type=click.IntRange(1, 4096), required=True, help="number of PEs")
@click.option("--scheme", default="edge_balanced", show_default=True, help="edge_balanced, equal_nodes or metis")
@click.option("--workgroup", type=click.IntRange(1), default=8, show_default=True, help="PEs joined by fast links")
@click.option(
    "--dim", type=click.IntRange(1, config.MAX_DIM), default=64, show_default=True, help="columns of the stated volumes"
)
@click.option("--out", type=_FOLDER, required=True, help="partition folder")
@_common
def partition(
    graph: Path, pes: int, scheme: str, workgroup: int, dim: int, out: Path, as_json: bool, debug: bool
) -> None:
    """Choose which PE owns which rows of GRAPH; prints the quality of the choice as JSON."""
    from mgg.partition import build

    made = build(graph, out, pes=pes, scheme=scheme, workgroup=workgroup, dim=dim)
    _show({"pes": pes, "scheme": scheme, "workgroup": workgroup, **made.quality.model_dump(), "out": str(out)}, True)


@cli.command()
@click.argument("graph", type=_FOLDER)
@click.argument("part", type=_FOLDER)
@click.option("--out", type=_FOLDER, required=True, help="layout folder")
@_common
def layout(graph: Path, part: Path, out: Path, as_json: bool, debug: bool) -> None:
    """Write what each PE holds of GRAPH, partitioned by PART."""
    from mgg.layout import build

    made = build(graph, part, out)
    halo_rows = sum(made.forward.halo_rows)
    _show(
        {"name": made.name, "pes": made.pes, "halo_rows": halo_rows, "files": len(made.files), "out": str(out)}, as_json
    )


@cli.command()
@click.argument("layout", type=_FOLDER)
@click.option(
    "--technique",
    "techniques",
    type=_CommaList(),
    required=True,
    help="technique, or several: mgg,halo (docs/techniques.md); auto: the one that the cost model picks",
)
@click.option("--dim", "dims", type=_CommaList(int), required=True, help="embedding columns, or several: 16,64")
@click.option(
    "--dtype", "dtypes", type=_CommaList(choices=get_args(config.Dtype)), default=_AGGREGATE.dtypes,
    help=f"type of the embeddings, or both: fp32,bf16  [default: {','.join(_AGGREGATE.dtypes)}]",
)  # fmt: skip
@click.option("--transpose", is_flag=True, help="the transposed (backward) product")
@click.option("--set", "assignments", multiple=True, metavar="[TECHNIQUE.]KEY=VALUE", help="option of a technique")
@click.option(
    "--variant", "variants", multiple=True, metavar="TECHNIQUE[:KEY=VALUE[,VALUE...]]...",
    help="time a technique with these options on top of --set, instead of once; lists stand for all combinations;"
    " repeat for more, for example --variant mgg --variant mgg:ps=2,4:dist=1,8",
)  # fmt: skip
@click.option(
    "--backend", type=click.Choice(_BACKENDS), default=_AGGREGATE.backend, show_default=True, help=_BACKEND_HELP
)
@click.option("--warmup", type=click.IntRange(0), default=_AGGREGATE.warmup, show_default=True, help="untimed products")
@click.option(
    "--iterations", type=click.IntRange(1), default=_AGGREGATE.iterations, show_default=True, help="timed ones"
)
@click.option("--no-check", is_flag=True, help="skip the comparison with a float64 product")
@click.option("--breakdown", is_flag=True, help="also time each product with its transfers left out")
@click.option("--out", type=_FOLDER, required=True, help="records, JSON lines")
@_common
def aggregate(
    layout: Path, techniques: list[str], dims: list[int], dtypes: list[str], transpose: bool,
    assignments: tuple[str, ...], variants: tuple[str, ...], backend: str, warmup: int, iterations: int, no_check: bool,
    breakdown: bool, out: Path, as_json: bool, debug: bool,
) -> None:  # fmt: skip
    """Check and time the aggregation of LAYOUT; more than one PE: mpiexec -n P mgg aggregate ..."""
    from mgg.aggregate import technique
    from mgg.aggregate.measure import Protocol, sweep
    from mgg.backend import World, job_rank, launch, launch_threads, splits, together
    from mgg.layout import load, read_manifest
    from mgg.record import check_lines_output, write_lines

    chosen, auto = _chosen(techniques, assignments, variants), _AUTO in techniques
    direction = "transpose" if transpose else "forward"

    def pes() -> int:
        return read_manifest(layout).pes

    def program(world: World, part: list[Any], earlier: list[Any], last: bool) -> tuple[list[Any], list[MggError]]:
        together(world, lambda: check_lines_output(out))
        mine = together(world, lambda: load(layout, world.rank))
        protocol = Protocol(direction, warmup, iterations, not no_check, breakdown)
        try:
            records, refused = sweep(
                world, mine, part, dims=dims, dtypes=dtypes, protocol=protocol, auto=auto and part is not apart
            )
        except (InputError, MachineError) as error:
            # Of several parts one may be refused as a whole.
            if not error.everywhere or (last and not earlier):
                raise
            records, refused = [], [error]
        if last:
            together(world, lambda: write_lines(out, earlier + records) if world.rank == 0 else None)
        return records, refused

    records: list[Any] = []
    refused: list[MggError] = []
    apart = [each for each in chosen if technique(each[0]).one_process]
    if not (apart and splits(backend, pes, len(apart) == len(chosen) and not auto)):
        apart = []
    if len(apart) < len(chosen) or auto:
        ranks = [each for each in chosen if each not in apart]
        records, refused = launch(backend, pes, lambda world: program(world, ranks, [], not apart))[0]
    if apart:
        try:
            found = launch_threads(pes, lambda world: program(world, apart, records, True))
            records, refused = (records + found[0], refused + found[1]) if found else (records, refused)
        except (InputError, MachineError) as refusal:
            if not records:
                raise
            # What the ranks have measured is kept.
            refused.append(refusal)
            if job_rank() == 0:
                write_lines(out, records)
    if _speaks():
        for error in refused:
            click.echo(f"mgg: not measured: {' '.join(str(error).split())}", err=True)
    if as_json:
        _show({"out": str(out), "records": [record.model_dump() for record in records]}, True)
        return
    for record in records:
        line = f"D={record.dim} P={record.pes}  {record.median * 1e3:.3f} ms  {record.bytes_wire} bytes on the wire"
        if record.predicted is not None:
            line += f"  foretold {record.predicted * 1e3:.3f} ms{', picked by auto' if record.chosen else ''}"
        told = {key: value for key, value in record.options.items() if record.defaults.get(key) != value}
        given = f" ({', '.join(f'{key}={value}' for key, value in told.items())})" if told else ""
        dtype = f" {record.dtype}" if len(dtypes) > 1 else ""
        _show({f"{record.technique}{given} {record.direction}{dtype}": line}, False)


@cli.command()
@click.argument("layout", type=_FOLDER)
@click.option("--model", required=True, help="model: appnp, gat, gcn, gin, rgcn, sage or sgc")
@click.option(
    "--technique", default="halo", show_default=True, help="aggregation technique (docs/techniques.md), or auto"
)
@click.option("--backend", type=click.Choice(_BACKENDS), default=_TRAIN.backend, show_default=True, help=_BACKEND_HELP)
@click.option(
    "--dtype", type=click.Choice(["fp32", "bf16"]), default=_TRAIN.dtype, show_default=True,
    help="type of embeddings and halos; sums and weights are fp32",
)  # fmt: skip
@click.option(
    "--metric", default="auto", show_default=True,
    help="what is scored and picks the best epoch: accuracy; micro_f1 or roc_auc for several yes-or-no labels a node",
)  # fmt: skip
@click.option(
    "--epochs", type=click.IntRange(1), default=_TRAIN.epochs, show_default=True, help="passes over the graph"
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="seed of weights and dropout")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE",
    help="setting of the model (docs/models.md, docs/training.md), or option of the technique: TECHNIQUE.KEY=VALUE",
)  # fmt: skip
@click.option(
    "--checkpoint-every", type=click.FloatRange(0, min_open=True), default=_TRAIN.checkpoint_every, show_default=True,
    metavar="SECONDS", help="seconds between checkpoints",
)  # fmt: skip
@click.option("--resume", is_flag=True, help="go on from the newest checkpoint, if there is one")
@click.option("--weights", type=_FOLDER, help="start from these: a run, its weights.safetensors, or a checkpoint")
@click.option(
    "--stall-after", type=click.FloatRange(0, min_open=True), default=_TRAIN.stall_after, show_default=True,
    metavar="SECONDS", help="name a PE that neither works nor waits for others for so long, and end",
)  # fmt: skip
@click.option("--phases", is_flag=True, help="record how long aggregations, dense products and communication take")
@click.option("--tensorboard", type=_FOLDER, help="folder of TensorBoard event files  [default: none]")
@click.option("--out", type=_FOLDER, required=True, help="run folder")
@_common
def train(
    layout: Path, model: str, technique: str, backend: str, dtype: str, metric: str, epochs: int, seed: int,
    assignments: tuple[str, ...], checkpoint_every: float, resume: bool, weights: Path | None, stall_after: float,
    phases: bool, tensorboard: Path | None, out: Path, as_json: bool, debug: bool,
) -> None:  # fmt: skip
    """Train a model on the whole graph of LAYOUT; more than one PE: mpiexec -n P mgg train ..."""
    from mgg.backend import World, launch, together
    from mgg.layout import load, read_manifest
    from mgg.train import Result, stop_signals
    from mgg.train import train as run

    settings, options = _split_assignments(assignments, [technique])
    with stop_signals() as stop:

        def program(world: World) -> Result:
            return run(
                world,
                together(world, lambda: load(layout, world.rank)),
                model=model,
                technique=technique,
                options=options[technique],
                epochs=epochs,
                seed=seed,
                settings=settings,
                out=out,
                dtype=dtype,
                metric=metric,
                weights=weights,
                checkpoint_every=checkpoint_every,
                resume=resume,
                stall_after=stall_after,
                phases=phases,
                progress=True,
                tensorboard=tensorboard,
                stop=stop,
            )

        record = launch(backend, lambda: read_manifest(layout).pes, program)[0].record
    fields = (
        "model",
        "technique",
        "pes",
        "epochs",
        "loss",
        "metric",
        "best_epoch",
        "validation_accuracy",
        "test_accuracy",
        "median",
    )
    shown = {name: getattr(record, name) for name in fields}
    if record.validation_accuracy is None and not as_json:
        del shown["validation_accuracy"]
    _show(shown | {"out": str(out)}, as_json)


@cli.command()
@click.option("--pes", type=click.IntRange(1), help="number of PEs without a launcher  [default: 1]")
@click.option(
    "--backend", type=click.Choice(_BACKENDS), default=_AGGREGATE.backend, show_default=True, help=_BACKEND_HELP
)
@click.option("--refresh", is_flag=True, help="measure anew what was measured before")
@click.option("--out", type=_FOLDER, help="file for mgg predict --machine")
@_common
def links(pes: int | None, backend: str, refresh: bool, out: Path | None, as_json: bool, debug: bool) -> None:
    """Measure what the links and operators of this job take, and keep it for technique auto; mpiexec -n P mgg links."""
    from mgg.aggregate.machines import of_world
    from mgg.backend import job_size, launch
    from mgg.files import write_text

    machine = launch(backend, lambda: pes or job_size() or 1, lambda world: of_world(world, refresh))[0]
    if out is not None and _speaks():
        write_text(out, machine.model_dump_json(indent=1) + "\n")
    if as_json:
        _show(machine.model_dump(), True)
        return
    for name, link in machine.links.links.items():
        each = f", {link.message * 1e9:.3g} ns a row" if link.message else ""
        _show(
            {name: f"{link.bandwidth / 1e9:.4g} GB/s, {link.latency * 1e6:.3g} us a request{each} ({link.source})"},
            False,
        )


def _links(pairs: Iterable[str]) -> dict[str, Any]:
    """``class.field=number`` pairs as link settings."""
    values: dict[str, dict[str, Any]] = {}
    for key, value in _assignments(pairs).items():
        name, dot, field = key.partition(".")
        if not dot:
            raise InputError(f"--link {key}: expected CLASS.FIELD=NUMBER, for example infiniband-ndr.bandwidth=45e9")
        values.setdefault(name, {})[field] = (
            float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value
        )
    return values


@cli.command()
@click.argument("paths", type=_FOLDER, nargs=-1, required=True)
@click.option(
    "--technique", "techniques", type=_CommaList(), default=",".join(_PREDICT.techniques), show_default=True,
    help="techniques, at their default options",
)  # fmt: skip
@click.option("--dim", "dims", type=_CommaList(int), default="64", show_default=True, help="embedding columns")
@click.option(
    "--dtype", type=click.Choice(["fp32", "bf16"]), default="fp32", show_default=True, help="type of the embeddings"
)
@click.option("--machine", default=_PREDICT.machine, show_default=True, help="h200, a800, v100 or a file of mgg links")
@click.option("--network", help="class of the link between workgroups  [default: the machine's]")
@click.option("--link", "pairs", multiple=True, metavar="CLASS.FIELD=NUMBER", help="latency, bandwidth or message")
@click.option("--pes", type=_CommaList(int), default=None, help="of a GRAPH: numbers of PEs to split it for")
@click.option("--scheme", default="edge_balanced", show_default=True, help="of a GRAPH: partition scheme")
@click.option("--workgroup", type=click.IntRange(1), default=8, show_default=True, help="of a GRAPH: PEs of a host")
@click.option("--out", type=_FOLDER, help="records, JSON lines, for mgg report")
@_common
def predict(
    paths: tuple[Path, ...], techniques: list[str], dims: list[int], dtype: str, machine: str, network: str | None,
    pairs: tuple[str, ...], pes: list[int] | None, scheme: str, workgroup: int, out: Path | None, as_json: bool,
    debug: bool,
) -> None:  # fmt: skip
    """Predict products of PATHS (graphs, partitions, layouts) by the cost model, for any number of PEs."""
    from mgg.aggregate import machines
    from mgg.aggregate.predict import Question, changed
    from mgg.aggregate.predict import predict as run
    from mgg.record import PredictionRecord, check_lines_output, write_lines

    given = config.section(config.PredictConfig, {"links": _links(pairs), "network": network}, "predict")
    if out is not None:
        check_lines_output(out, PredictionRecord)
    asked = Question(techniques, dims, dtype, pes or (), scheme, workgroup)
    records = run(paths, changed(machines.find(machine), given.links, given.network), asked)
    if out is not None:
        write_lines(out, records)
    if as_json:
        _show({"predictions": [record.model_dump() for record in records]}, True)
        return
    for record in records:
        line = f"D={record.dim} P={record.pes}  {record.seconds * 1e3:.3f} ms predicted on {record.machine}"
        _show({f"{record.dataset} {record.technique}": line + ", the pick of auto" * record.chosen}, False)


@cli.command()
@click.argument("run", type=_FOLDER)
@_common
def evaluate(run: Path, as_json: bool, debug: bool) -> None:
    """Score the predictions of a training RUN; for OGB's data sets with OGB's own Evaluator."""
    from mgg.train.evaluate import evaluate as score

    _show(score(run), as_json)


@cli.command()
@click.argument("paths", type=_FOLDER, nargs=-1, required=True)
@click.option("--title", default=config.ReportConfig().title, show_default=True, help="heading of the page")
@click.option(
    "--figure",
    "figures",
    multiple=True,
    help="a paper's figure to set beside, for example mgg_fig10a (config/README.md lists them)",
)
@click.option("--note", "notes", multiple=True, metavar="FIGURE=TEXT", help="a remark below a figure")
@click.option("--out", type=_FOLDER, required=True, help="report folder")
@_common
def report(
    paths: tuple[Path, ...], title: str, figures: tuple[str, ...], notes: tuple[str, ...], out: Path, as_json: bool,
    debug: bool,
) -> None:  # fmt: skip
    """Make the report page and tables of timing records (.jsonl), training runs and partitions (folders)."""
    from mgg.report import build

    remarks = {name: text for name, _, text in (note.partition("=") for note in notes)}
    build(paths, out, title, figures, remarks)
    _show({"page": str(out / "index.html")}, as_json)


def main() -> None:
    """Run the command line; errors are one line and an exit code (README.md, Exit codes)."""
    keep_others_out()
    try:
        cli.main(standalone_mode=False, prog_name="mgg")
        code = 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        code = 0
    except click.ClickException as error:
        code = _fail(_usage(error), 2, everywhere=True)
    except click.Abort:
        code = 130
    except MggError as error:
        code = _fail(str(error), error.exit_code, error.everywhere)
    except MemoryError as error:
        code = _fail(f"not enough memory: {error}", MachineError.exit_code, everywhere=False)
    except Exception as error:
        code = _fail(f"internal error: {type(error).__name__}: {error} (--debug shows where)", 1, everywhere=False)
    sys.stdout.flush()
    sys.exit(code)


def _usage(error: click.ClickException) -> str:
    """One line for a wrong option or argument."""
    command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "mgg"
    return f"{error.format_message()} (see {command} --help)"


def _fail(message: str, code: int, everywhere: bool) -> int:
    """Print one line; end the other ranks too if this one failed alone."""
    from mgg.backend import abort_job, job_rank, mpi_runs

    if "--debug" in sys.argv:
        traceback.print_exc()
    # Before MPI starts, every rank has read the same command line and files, and fails alike.
    alone = not everywhere and mpi_runs()
    if alone:
        message = f"PE {job_rank()}: {message}"
    if alone or job_rank() == 0:
        click.echo(f"mgg: {' '.join(message.split())}", err=True)
    sys.stderr.flush()
    if alone:
        abort_job(code)
    return code


if __name__ == "__main__":
    main()
