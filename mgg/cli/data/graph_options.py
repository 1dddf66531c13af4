"""The options of commands that read a source or limit their memory, and what they print about a graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from mgg import config
from mgg.cli.names import completes

F = TypeVar("F", bound=Callable[..., Any])
_GRAPH = config.GraphConfig()


def budget(command: F) -> F:
    """Add the options of commands that limit their memory."""
    command = click.option("--workers", type=click.IntRange(1), help="threads  [default: one per core]")(command)
    text = "peak memory of the process, for example 1GiB or 800MB"
    return click.option("--memory", "budget", default=_GRAPH.memory, show_default=True, help=text)(command)


def reads(command: F) -> F:
    """Add the options of commands that read a source."""
    text = (
        "reader of the files (mgg list loaders); not needed for folders of mgg retrieve or mgg graph and for known"
        " suffixes"
    )
    called = "name of the graph  [default: that of the data set, file or folder]"
    command = click.option("--name", help=called)(command)
    command = click.option("--labels", is_flag=True, help="refuse a source whose nodes have no labels")(command)
    kept = "what to do with arcs from a node to itself  [default: keep for matrix files, else drop]"
    command = click.option("--loops", type=click.Choice(get_args(config.Loops)), help=kept)(command)
    merged = "weight of an arc that the source lists several times  [default: sum for matrix files, else first]"
    command = click.option("--repeats", type=click.Choice(get_args(config.Repeats)), help=merged)(command)
    command = click.option("--symmetrize", is_flag=True, help="add the reverse of every arc")(command)
    role = (
        "tables: role of a column whose name MGG does not know: source, target, weight, type; id, label,"
        " split, train, validation, test, feature; ignore; may be repeated"
    )
    command = click.option("--column", metavar="ROLE=NAME", multiple=True, help=role)(command)
    header = "edges without a header: roles of their columns, for example source,target,weight"
    command = click.option("--columns", metavar="NAMES", help=header)(command)
    return click.option("--loader", shell_complete=completes("loaders"), help=text)(command)


def memory_of(budget: str, workers: int | None) -> Any:
    """The memory and threads that the options give.

    Raises:
        InputError: ``budget`` is not a size.
    """
    from mgg.graph.budget import parse_size
    from mgg.graph.external import Memory
    from mgg.graph.external.memory import usable_cores

    return Memory(parse_size(budget, "--memory"), workers or usable_cores())


def facts(manifest: Any, out: Path) -> dict[str, Any]:
    """What a command prints about a graph that it made."""
    fields = (
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
        "repeats",
        "loops",
    )
    return {"dataset": manifest.name} | {field: getattr(manifest, field) for field in fields} | {"out": str(out)}
