"""Shared by the benchmarks: settings of models, options, results, layouts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mgg import layout, partition
from mgg.backend.machine.facts import these_versions, this_machine
from mgg.errors import MggError

#: Columns of the hidden layer of the models whose training steps are timed: two layers, one head, no dropout.
HIDDEN = 16
_ATTENTION: dict[str, Any] = {"hidden": HIDDEN, "heads": 1, "dropout": 0.0, "attention_dropout": 0.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "gcn": {"hidden": HIDDEN, "dropout": 0.0},
    "gin": {"hidden": HIDDEN, "dropout": 0.0, "layers": 2},
    "sage": {"hidden": HIDDEN, "dropout": 0.0},
    "gat": {**_ATTENTION, "output_heads": 1},
}
#: Settings of models that have no counterpart in PyTorch Geometric.
ALONE: dict[str, dict[str, Any]] = {
    "gatv2": {**_ATTENTION, "output_heads": 1},
    "transformer": {"hidden": HIDDEN, "heads": 1, "layers": 2, "dropout": 0.0},
}
OUT = click.argument("out", type=click.Path(path_type=Path))
SCALE = click.option("--scale", default=1.0, show_default=True, help="size as a share of the full graphs")


class Results:
    """A file of JSON lines, one per measurement, and the printed output; only PE 0 writes."""

    def __init__(self, path: Path, rank: int = 0, mode: str = "w") -> None:
        self.failed, self.started, self.path = 0, time.perf_counter(), path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open(mode, encoding="utf-8") if rank == 0 else None

    def about(self) -> None:
        """Record machine and versions."""
        self.record(machine=this_machine().model_dump(), versions=these_versions())

    def say(self, text: str) -> None:
        """Print it."""
        if self._file:
            click.echo(text)
            sys.stdout.flush()

    def record(self, **values: Any) -> None:
        """Write one measurement."""
        if self._file:
            self._file.write(json.dumps(values) + "\n")
            self._file.flush()

    @property
    def seconds(self) -> str:
        """Time since the start, as text."""
        return f"{time.perf_counter() - self.started:.0f} s"

    def end(self) -> None:
        """Print the number of failures."""
        self.say(f"{self.failed} failures, {self.seconds}")


def row(*cells: object) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def head(*names: str) -> str:
    """The first two rows of a Markdown table."""
    return f"{row(*names)}\n{row(*['---'] * len(names))}"


def laid_out(folder: Path, pes: int, workgroup: int = 8) -> Path:
    """Partition and lay out ``folder / "graph"``, in folders beside it; returns the layout."""
    graph, part, out = (folder / name for name in ("graph", "partition", "layout"))
    partition.build(graph, part, pes=pes, scheme="edge_balanced", workgroup=workgroup, dim=16)
    layout.build(graph, part, out)
    return out


def run(main: Callable[[], None]) -> None:
    """Run a command; an MggError becomes one line that begins with the script's name, and its exit code."""
    try:
        main()
    except MggError as error:
        click.echo(f"{Path(sys.argv[0]).stem}: {error}", err=True)
        sys.exit(error.exit_code)
