"""What the benchmarks share: results, steps that are timed, and processes that are measured."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from step_models import SETTINGS

from mgg.errors import MggError
from mgg.layout import PeLayout
from mgg.model import Sizes, settings_of

if TYPE_CHECKING:
    import torch

#: What a measured process does; argv: Python to prepare, Python to time, and the ``paths`` that both use.
MEASURED = """
import json, resource, sys, time
from pathlib import Path
paths = [Path(text) for text in sys.argv[3:]]
def used():
    mine = resource.getrusage(resource.RUSAGE_SELF)
    return mine.ru_utime + mine.ru_stime
exec(sys.argv[1])
started, before = time.perf_counter(), used()
try:
    exec(sys.argv[2])
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
seconds, processor = time.perf_counter() - started, used() - before
status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
print(json.dumps({"seconds": seconds, "processor_seconds": processor, "peak_bytes": peak}))
"""


class Results:
    """A file of JSON lines, one a measurement, and what is printed meanwhile; of PE 0 alone."""

    def __init__(self, path: Path, rank: int = 0, mode: str = "w") -> None:
        self.failed, self.started, self.path = 0, time.perf_counter(), path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open(mode, encoding="utf-8") if rank == 0 else None

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


def measured(prepare: str, timed: str, *paths: Path, limit: int = 0) -> dict[str, float]:
    """Seconds, processor seconds and peak bytes of ``timed`` in a process that has run ``prepare``.

    Raises ChildProcessError with what it said last where it fails, as it may with ``limit`` bytes of memory (0: any).
    """

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    command = [sys.executable, "-c", MEASURED, prepare, timed, *map(str, paths)]
    run = subprocess.run(command, check=False, capture_output=True, text=True, preexec_fn=limited if limit else None)
    if run.returncode:
        raise ChildProcessError((run.stderr.strip() or f"ended with {run.returncode}").splitlines()[-1])
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


def run(name: str, main: Callable[[], None]) -> None:
    """Run a command; an error of MGG's is one line and its exit code."""
    try:
        main()
    except MggError as error:
        click.echo(f"{name}: {error}", err=True)
        sys.exit(error.exit_code)


def twin_step(
    part: PeLayout, arcs: Any, model: str, weights: dict[str, np.ndarray], device: str
) -> Callable[[], torch.Tensor]:
    """A step of PyTorch Geometric's model of a whole graph, ``arcs`` of any kind that it takes; returns the loss."""
    import torch
    from torch.nn import functional

    from mgg.interop.twins import twin_of

    x = torch.as_tensor(np.array(part.features), device=device)
    label = torch.as_tensor(np.where(part.splits == 1, part.labels, -100).astype(np.int64), device=device)
    sizes = Sizes(x.shape[1], part.manifest.classes)
    net = twin_of(model, settings_of(model, SETTINGS[model]), sizes, weights, device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x, arcs), label)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
