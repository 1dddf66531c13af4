"""``mgg describe``: properties of a graph, and of a model on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mgg.cli.names import completes
from mgg.cli.options import FOLDER, common, say, show, split_assignments, usual, whole
from mgg.config import MAX_DIM, GraphConfig
from mgg.errors import InputError
from mgg.origin import origin


@click.command()
@click.argument("graph", type=FOLDER)
@click.option(
    "--model", shell_complete=completes("models", files=True),
    help="also show the widths of this model's layers: a name, or a file of your own",
)  # fmt: skip
@whole("--columns", 1, MAX_DIM, None, "columns of its input  [default: the graph's features]")
@whole("--classes", 1, MAX_DIM, None, "columns of the model's output  [default: the graph's classes]")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="setting of the model")
@usual("--communities/--no-communities", True, "find communities, with the graph in memory")
@usual("--memory", GraphConfig().memory, "memory for communities, for example 1GiB", name="budget")
@click.option("--out", type=FOLDER, help="file to add a record to, for mgg report")
@click.option("--replace", is_flag=True, help="replace the records in --out")
@common
def describe(
    graph: Path, model: str | None, columns: int | None, classes: int | None, assignments: tuple[str, ...],
    communities: bool, budget: str, out: Path | None, replace: bool, as_json: bool,
) -> None:  # fmt: skip
    """Print the degrees, averaged edge span and communities of GRAPH, and the widths of a model's layers."""
    from mgg.graph.budget import parse_size
    from mgg.graph.extract import extract
    from mgg.graph.store import Graph
    from mgg.records import add_lines, check_lines_output
    from mgg.records.graph import GraphRecord

    if out is not None:
        check_lines_output(out, GraphRecord, replace=replace)
    elif replace:
        raise InputError("describe: --replace needs --out FILE: name a file, or leave --replace out")
    opened, limit = Graph.open(graph), parse_size(budget, "--memory") if communities else None
    layers = _layers(opened.manifest, model, columns, classes, assignments)
    found = extract(opened, limit, lambda what: say(f"{what} ...", err=True))
    if out is not None:
        add_lines(out, [GraphRecord(graph_hash=opened.hash, **found, **origin())], replace=replace)
    written = {} if out is None else {"out": str(out)}
    if model is None:
        show(found | written, as_json)
        return
    if as_json:
        show(found | {"model": model, "layers": layers} | written, True)
        return
    show(found | written | {"model": model}, False)
    for each in layers:
        widths = ", ".join(map(str, each["aggregated"]))
        show({each["layer"]: f"{each['inputs']} -> {each['outputs']}, aggregates {widths}: type {each['type']}"}, False)


def _layers(
    facts: Any, model: str | None, columns: int | None, classes: int | None, assignments: tuple[str, ...]
) -> list[dict[str, Any]]:
    """The layers of the model on the graph, none without a model."""
    from mgg.model import build, find, settings_of
    from mgg.model.layer_widths import layers_of
    from mgg.naming import model_name

    if model is None:
        given = {"--columns": columns, "--classes": classes, "--set": assignments}
        if unused := [name for name, value in given.items() if value]:
            raise InputError(f"{unused[0]}: needs --model")
        return []
    outputs = classes or facts.classes or facts.tasks
    if not outputs:
        raise InputError(f"{facts.name}: the graph has no classes: give the model's output columns by --classes")
    settings, _ = split_assignments(assignments, [], model_name(model))
    found, inputs = find(model), columns or facts.features
    chain = build(found, settings_of(found, settings), inputs, outputs, facts.nodes, facts.relations)
    return layers_of(chain, inputs)
