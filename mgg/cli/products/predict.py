"""``mgg predict``: predict products, and passes of vertex programs, by the cost model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mgg import config
from mgg.cli.names import completes
from mgg.cli.options import EMULATE, FOLDER, CommaList, assignments_of, common, grids_of, show, split_assignments, usual
from mgg.errors import InputError
from mgg.network import Network

if TYPE_CHECKING:
    from mgg.cost.product import MachineModel

_PREDICT = config.PredictConfig()


def _links(pairs: Iterable[str]) -> dict[str, Any]:
    """Parse ``class.field=number`` pairs into link settings."""
    values: dict[str, dict[str, Any]] = {}
    for key, value in assignments_of(pairs).items():
        name, dot, field = key.partition(".")
        if not dot:
            raise InputError(f"--link {key}: expected CLASS.FIELD=NUMBER, for example infiniband-ndr.bandwidth=45e9")
        values.setdefault(name, {})[field] = value
    return values


@click.command()
@click.argument("paths", type=FOLDER, nargs=-1, required=True)
@click.option(
    "--technique", "techniques", type=CommaList(), default=",".join(_PREDICT.techniques), show_default=True,
    shell_complete=completes("techniques"), help="techniques",
)  # fmt: skip
@click.option(
    "--variant", "variants", multiple=True, metavar="TECHNIQUE[:KEY=VALUE[,VALUE...]]...",
    help="predict a technique with these options instead of its defaults; lists stand for all combinations;"
    " may be repeated, for example --variant cola --variant cola:fusion=false",
)  # fmt: skip
@click.option(
    "--model",
    shell_complete=completes("models", files=True),
    help="with layouts: predict the passes of this model's vertex programs instead (docs/concepts/costs.md)",
)
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="setting of --model")
@click.option("--dim", "dims", type=CommaList(int), default="64", show_default=True, help="embedding columns")
@usual("--dtype", "fp32", "type of the embeddings", type=click.Choice(["fp32", "bf16"]))
@usual("--machine", _PREDICT.machine, "h200, h100, a100, a800, v100 (docs/concepts/costs.md), or a file of mgg links")
@click.option("--network", "link", help="class of the link between workgroups  [default: the machine's]")
@EMULATE
@click.option("--link", "pairs", multiple=True, metavar="CLASS.FIELD=NUMBER", help="latency, bandwidth or message")
@click.option("--pes", type=CommaList(int, most=config.MAX_PES), help="with graphs: numbers of PEs")
@usual("--scheme", "edge_balanced", "with graphs: partition scheme", shell_complete=completes("schemes"))
@click.option("--workgroup", type=click.IntRange(1), default=8, show_default=True, help="with graphs: PEs per host")
@click.option("--out", type=FOLDER, help="file of records (JSON lines) for mgg report; its records stay")
@click.option("--replace", is_flag=True, help="replace the records in --out instead")
@common
def predict(
    paths: tuple[Path, ...], techniques: list[str], variants: tuple[str, ...], model: str | None,
    assignments: tuple[str, ...], dims: list[int], dtype: str,
    machine: str, link: str | None, network: Network | None, pairs: tuple[str, ...], pes: list[int] | None,
    scheme: str, workgroup: int, out: Path | None, replace: bool, as_json: bool,
) -> None:  # fmt: skip
    """Predict products of PATHS (graphs, partitions, layouts) by the cost model, for any number of PEs,
    or with --model the passes of a model over the arcs of layouts.
    """
    from mgg.aggregate.predict import Question, changed
    from mgg.aggregate.predict import predict as run
    from mgg.cost import machines
    from mgg.records import add_lines, check_lines_output
    from mgg.records.prediction import PredictionRecord

    if assignments and model is None:
        raise InputError("--set: without --model there is nothing that has settings: leave it out")
    given = config.section(config.PredictConfig, {"links": _links(pairs), "network": link}, "predict")
    here = changed(machines.find(machine), given.links, given.network, network)
    if model is not None:
        _predict_model(paths, model, assignments, here, as_json)
        return
    if out is not None:
        check_lines_output(out, PredictionRecord, replace=replace)
    asked = Question(techniques, dims, dtype, pes or (), scheme, workgroup, grids_of(variants, techniques))
    records = run(paths, here, asked)
    if out is not None:
        add_lines(out, records, replace=replace)
    if as_json:
        show({"records": [record.model_dump() for record in records]}, True)
        return
    _note(records[0].machine, records[0].basis)
    for record in records:
        line = f"D={record.dim} P={record.pes}  {record.seconds * 1e3:.3f} ms predicted on {record.machine}"
        line += f", {record.network}" * (network is not None)
        options = ", ".join(f"{key}={value}" for key, value in record.options.items())
        name = f"{record.technique} ({options})" if options else record.technique
        show({f"{record.dataset} {name}": line + ", the pick of auto" * record.chosen}, False)


def _note(machine: str, basis: str) -> None:
    if basis.startswith("not measured"):
        show({"note": f"machine {machine} is {basis}"}, False)


#: Options that do not apply to a model's passes.
_OF_PRODUCTS = ("techniques", "variants", "dims", "dtype", "pes", "scheme", "workgroup", "out", "replace")


def _predict_model(
    paths: Iterable[Path], name: str, assignments: tuple[str, ...], machine: MachineModel, as_json: bool
) -> None:  # fmt: skip
    """Predict the passes of a model's vertex programs and print them, per layer and PE."""
    from mgg.aggregate.predict import split_of_layout
    from mgg.layout import read_manifest
    from mgg.model import build, find, settings_of
    from mgg.model.predicted_layers import predicted_passes
    from mgg.naming import model_name

    context = click.get_current_context()
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name in _OF_PRODUCTS and source is not ParameterSource.DEFAULT:
            raise InputError(
                f"{option.opts[0]}: does not apply to a model's passes: leave it out, or leave out --model"
            )
    settings, _ = split_assignments(assignments, [], model_name(name))
    found = find(name)
    chosen = settings_of(found, settings)
    rows: list[dict[str, Any]] = []
    for path in paths:
        facts = read_manifest(path)
        columns = facts.classes or facts.tasks
        chain = build(found, chosen, facts.features, columns, facts.nodes, facts.relations)
        splits = split_of_layout(path, facts, "forward"), split_of_layout(path, facts, "transpose")
        passes = list(predicted_passes(chain, *splits, machine))
        if not passes:
            raise InputError(
                f"--model {name}: has no layer that is a vertex program (docs/guides/vertex.md): leave it out, and name"
                " the widths of its products by --dim"
            )
        for each in passes:
            rows.append({
                "dataset": facts.name, "pes": facts.pes, "layer": each.layer, "pass": each.way,
                "backward": each.schedule, "chosen": each.chosen, "seconds": each.spent.seconds.tolist(),
                "bytes": each.spent.moved.astype(int).tolist(),
            })  # fmt: skip
    if as_json:
        show({"model": found.name, "machine": machine.name, "basis": machine.basis, "passes": rows}, True)
        return
    _note(machine.name, machine.basis)
    for one in rows:
        seconds, moved = one["seconds"], one["bytes"]
        slowest = max(range(one["pes"]), key=seconds.__getitem__)
        name = " ".join(filter(None, (one["dataset"], one["layer"], one["pass"], one["backward"])))
        line = f"P={one['pes']}  {seconds[slowest] * 1e3:.3f} ms predicted on {machine.name}, PE {slowest},"
        picked = ", the pick of auto" * bool(one["backward"] and one["chosen"])
        show({name: f"{line} which gets {moved[slowest]} bytes{picked}"}, False)
