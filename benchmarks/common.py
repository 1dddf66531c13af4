"""What the benchmarks share: models, options, results, data sets, steps that are timed, processes that are measured."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from mgg import layout, partition
from mgg.backend.machine.facts import these_versions, this_machine
from mgg.errors import MggError
from mgg.graph.build import build

#: Columns of the hidden layer of the models whose training steps are timed: two layers, one head, no dropout.
HIDDEN = 16
_ATTENTION: dict[str, Any] = {"hidden": HIDDEN, "heads": 1, "dropout": 0.0, "attention_dropout": 0.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "gcn": {"hidden": HIDDEN, "dropout": 0.0},
    "gin": {"hidden": HIDDEN, "dropout": 0.0, "layers": 2},
    "sage": {"hidden": HIDDEN, "dropout": 0.0},
    "gat": {**_ATTENTION, "output_heads": 1},
}
#: And those that have no twin in PyTorch Geometric.
ALONE: dict[str, dict[str, Any]] = {
    "gatv2": {**_ATTENTION, "output_heads": 1},
    "transformer": {"hidden": HIDDEN, "heads": 1, "layers": 2, "dropout": 0.0},
}
OUT = click.argument("out", type=click.Path(path_type=Path))
SCALE = click.option("--scale", default=1.0, show_default=True, help="size as a share of the full graphs")
#: What a measured process does; argv: Python to prepare, Python to time, and the ``paths`` that both use.
MEASURED = """
import json, resource, sys, time
from pathlib import Path
paths = [Path(text) for text in sys.argv[3:]]
exec(sys.argv[1])
started = time.perf_counter()
try:
    exec(sys.argv[2])
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
seconds = time.perf_counter() - started
status = Path("/proc/self/status").read_text(encoding="ascii")
print(json.dumps({"seconds": seconds, "peak_bytes": 1024 * int(status.split("VmHWM:")[1].split()[0])}))
"""


class Results:
    """A file of JSON lines, one a measurement, and what is printed meanwhile; of PE 0 alone."""

    def __init__(self, path: Path, rank: int = 0, mode: str = "w") -> None:
        self.failed, self.started, self.path = 0, time.perf_counter(), path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open(mode, encoding="utf-8") if rank == 0 else None

    def about(self) -> None:
        """Keep machine and versions."""
        self.record(machine=this_machine().model_dump(), versions=these_versions())

    def say(self, text: str) -> None:
        """Print it."""
        if self._file:
            click.echo(text)
            sys.stdout.flush()

    def record(self, **values: Any) -> None:
        """Keep one measurement."""
        if self._file:
            self._file.write(json.dumps(values) + "\n")
            self._file.flush()

    @property
    def seconds(self) -> str:
        """Since the start."""
        return f"{time.perf_counter() - self.started:.0f} s"

    def end(self) -> None:
        """Say how many failures there were."""
        self.say(f"{self.failed} failures, {self.seconds}")


def row(*cells: object) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def head(*names: str) -> str:
    """The rows that begin one."""
    return f"{row(*names)}\n{row(*['---'] * len(names))}"


def torch_steps(step: Callable[[], Any], warmup: int, steps: int) -> tuple[list[Any], float]:
    """What every step of PyTorch returned, and the median milliseconds of those after ``warmup``, by CUDA events."""
    import torch

    found, times = [], []
    for _ in range(warmup + steps):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        found.append(step())
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return found, float(np.median(times[warmup:]))


def measured(prepare: str, timed: str, *paths: Path) -> dict[str, float]:
    """Seconds and peak bytes of ``timed`` in a process that has run ``prepare``.

    Raises ChildProcessError with what it said last where it fails.
    """
    command = [sys.executable, "-c", MEASURED, prepare, timed, *map(str, paths)]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    if run.returncode:
        raise ChildProcessError((run.stderr.strip() or f"ended with {run.returncode}").splitlines()[-1])
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


def make_layout(dataset: str, folder: Path, pes: int, scheme: str = "edge_balanced") -> Path:
    """Graph, partition and layout of a data set under ``folder``; returns the layout.

    The data come from $MGG_DATA_DIR, the cache or the network.
    """
    build(dataset, folder / "graph")
    return laid_out(folder, pes, scheme)


def laid_out(folder: Path, pes: int, scheme: str = "edge_balanced", workgroup: int = 8) -> Path:
    """Partition and layout of ``folder / "graph"`` beside it; returns the layout."""
    graph, part, made = (folder / name for name in ("graph", "partition", "layout"))
    partition.build(graph, part, pes=pes, scheme=scheme, workgroup=workgroup, dim=16)
    layout.build(graph, part, made)
    return made


def run(main: Callable[[], None]) -> None:
    """Run a command; an error of MGG's is one line, which begins with the script's name, and its exit code."""
    try:
        main()
    except MggError as error:
        click.echo(f"{Path(sys.argv[0]).stem}: {error}", err=True)
        sys.exit(error.exit_code)
