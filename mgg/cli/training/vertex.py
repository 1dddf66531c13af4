"""``mgg vertex``: show how vertex programs are executed."""

from __future__ import annotations

import click

from mgg.cli.options import common, say, show, split_assignments, whole
from mgg.config import MAX_DIM
from mgg.errors import InputError


@click.group()
def vertex() -> None:
    """Look into the vertex programs of a model (docs/guides/vertex.md)."""


@vertex.command()
@click.argument("model", metavar="MODEL_FILE")
@whole("--columns", 1, MAX_DIM, 16, "columns of the features")
@whole("--classes", 1, MAX_DIM, 8, "number of classes")
@whole("--relations", 0, None, 0, "number of arc types")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="setting of the model")
@common
def explain(
    model: str, columns: int, classes: int, relations: int, assignments: tuple[str, ...], as_json: bool
) -> None:  # fmt: skip
    """Print each vertex program of a model: its values, passes over arcs, transfers between PEs and kept arrays.

    No graph is read: --columns, --classes and --relations describe one.
    """
    from mgg.model import build, find, settings_of
    from mgg.model.program import programs_of
    from mgg.naming import model_name

    settings, _ = split_assignments(assignments, [], model_name(model))
    found = find(model)
    layers = programs_of(build(found, settings_of(found, settings), columns, classes, relations=relations))
    if not layers:
        raise InputError(f"model {model!r}: has no layer that is a vertex program (VertexLayer, docs/guides/vertex.md)")
    explained = [{"layer": each.name, "program": each.program.name, "text": each.explained()} for each in layers]
    if as_json:
        given = {"model": found.name, "columns": columns, "classes": classes, "relations": relations}
        show(given | {"layers": explained}, True)
    else:
        say("\n\n".join(f"layer {each['layer']}, program {each['program']}:\n{each['text']}" for each in explained))
