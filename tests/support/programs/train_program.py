"""Training on the simulated backend, or on ranks as ``python train_program.py KIND CALLS OUT [BACKEND]``."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mgg import layout
from mgg.aggregate import all_techniques
from mgg.backend import World, launch
from mgg.errors import StoppedError
from mgg.kernel.compile import Build
from mgg.model import build, models, settings_of
from mgg.records import read_run
from mgg.train import Result, loss_and_gradients, train, trainer
from support.models import featureless, needs_types, programmed, small
from support.ranks import mpiexec

#: Settings that make every model small.
SMALL: dict[str, dict[str, Any]] = {model: small(model, 16) for model in models()}
#: Models that fetch rows themselves; gatv2 stands for all vertex programs, which fetch in the same way.
FETCHING = tuple(
    model
    for model in models()
    if (model == "gatv2" or not programmed(model))
    and build(model, settings_of(model), features=4, classes=3, relations=2).fetched
)


def multiplies(model: str) -> bool:
    """Whether it has products with the adjacency, which techniques compute."""
    return build(model, settings_of(model), features=4, classes=3, relations=2).width > 0


def graphs_for(model: str) -> tuple[str, ...]:
    """Names of graphs that ``model`` is tested on."""
    if not needs_types(model):
        return "planted", "directed"
    return ("typed", "featureless") if featureless(model) else ("typed",)


def able(technique: str, pes: int) -> bool:
    """Whether ``technique`` can train on ``pes`` PEs."""
    return pes == 1 or not all_techniques()[technique].single_pe


def layouts(backend: str, folder: str | Path, pes: int) -> Callable[[int], layout.PeLayout]:
    """Returns the layout of PE ``rank``; PEs of the simulated backend share loaded arrays."""
    if backend == "simulated":
        return [layout.load(folder, rank) for rank in range(pes)].__getitem__
    return lambda rank: layout.load(folder, rank)


def gradients(backend: str, folder: str | Path, pes: int, **options: Any) -> list[dict[str, np.ndarray]]:
    """Loss and gradients by name of each PE (of this rank under MPI)."""

    parts = layouts(backend, folder, pes)

    def program(world):
        loss, by_name = loss_and_gradients(world, parts(world.rank), **options)
        return {"loss": np.array(loss), **by_name}

    return launch(backend, lambda: pes, program)


def assert_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float = 1e-5) -> None:
    """Assert that loss and gradients differ by at most ``tolerance`` times the largest entry of the expected array.

    The gradient by a single number (GIN's epsilon) is a sum over all nodes that cancels to a thousandth of its terms:
    its tolerance is relative to the largest entry of all gradients. An array of zeros has an absolute tolerance.
    """
    assert set(found) == set(expected)
    largest = max((np.abs(array).max() for name, array in expected.items() if name != "loss"), default=0)
    for name, array in expected.items():
        scale = largest if array.size == 1 and name != "loss" else np.abs(array).max()
        error = np.abs(found[name] - array).max() / (scale or 1)
        assert error <= tolerance, f"{name}: {error:.2g}"


def run(backend: str, folder: str | Path, pes: int, **options: Any) -> list[Result]:
    """The result of a training run on each PE (on this rank under MPI)."""
    parts = layouts(backend, folder, pes)
    return launch(backend, lambda: pes, lambda world: train(world, parts(world.rank), **options))


def result_arrays(result: Result) -> dict[str, np.ndarray]:
    """The parts of a result that are the same in two equal runs, as arrays."""
    curve = [epoch.model_dump(exclude={"seconds"}, exclude_none=True) for epoch in result.epochs]
    record = result.record
    return {
        "curve": np.array([list(epoch.values()) for epoch in curve]),
        "final": np.array([record.loss, record.best_epoch, record.test_accuracy, record.bytes_wire]),
        **result.weights,
    }


def on_ranks(
    kind: str, ranks: int, out: Path, calls: list[dict[str, Any]], backend: str = "mpi", before: Sequence[str] = ()
) -> list[dict[str, np.ndarray]]:
    """The arrays of each call, all run in order by one job of ranks; ``before`` comes before this program."""
    done = mpiexec(ranks, [*before, __file__, kind, json.dumps(calls, default=str), str(out), backend])
    assert done.returncode == 0, done.stderr
    found = np.load(out)
    split = [(*key.split("/", 1), found[key]) for key in found.files]
    return [{name: array for number, name, array in split if number == str(call)} for call in range(len(calls))]


def tables(out: Path) -> tuple[dict[str, Any], list[dict[str, Any]], bytes]:
    """The parts of a run's folder that must not depend on stopping: all but times, memory, and the command."""
    record, epochs = read_run(out)
    return (
        record.model_dump(exclude={"median", "q1", "q3", "used", "gpu_memory", "run_id", "recorded_at", "config_hash"}),
        [epoch.model_dump(exclude={"seconds"}) for epoch in epochs],
        (out / "weights.safetensors").read_bytes(),
    )


def checkpoint_files(out: Path) -> list[Path]:
    """The checkpoints beside a run's folder, the oldest first."""
    return sorted(out.with_name(f"{out.name}.checkpoint").glob("*"))


class Stop(threading.Event):
    """Is set in the ``epoch``-th epoch: a training reads it twice before its first epoch, and once after each."""

    def __init__(self, epoch: int):
        super().__init__()
        self.reads_left = 2 + epoch

    def is_set(self) -> bool:
        self.reads_left -= 1
        return self.reads_left == 0


def call(world: World, kind: str, folder: str, stop_at: int | None = None, **options: Any) -> dict[str, np.ndarray]:
    """The arrays of a call: ``gradients``, ``kernels`` (names of generated ones), ``train`` (none if stopped)."""
    part = layout.load(folder, world.rank)
    if kind == "gradients":
        loss, by_name = loss_and_gradients(world, part, **options)
        return {"loss": np.array(loss), **by_name}
    if kind == "kernels":
        return kernels(world, part, **options)
    stop = None if stop_at is None else Stop(stop_at)
    out = Path(options.pop("out")) if "out" in options else None
    try:
        return result_arrays(train(world, part, stop=stop, out=out, **options))
    except StoppedError:
        return {}


def kernels(world: World, part: layout.PeLayout, **options: Any) -> dict[str, np.ndarray]:
    """Sources of the generated kernels that a training compiles ahead, and of those that it requests."""
    ahead: list[str] = []
    requested: list[str] = []
    original_kernel, original_compile = world.operators.kernel, trainer.compile_ahead

    def kernel(build: Build, name: str) -> Any:
        requested.append(build.source)
        return original_kernel(build, name)

    world.operators.kernel = kernel
    trainer.compile_ahead = lambda _, builds: ahead.extend(build.source for build in builds)
    try:
        train(world, part, **options)
    finally:
        world.operators.kernel, trainer.compile_ahead = original_kernel, original_compile
    return {"ahead": np.array(sorted({*ahead})), "asked": np.array(sorted({x for x in requested if x.endswith(".cu")}))}


def main(kind: str, calls: str, out: str, backend: str = "mpi") -> None:
    """Rank 0 writes the arrays of each call of ``kind``, under the call's number, to ``out``."""
    from mpi4py import MPI

    def program(world: World) -> dict[str, np.ndarray]:
        return {
            f"{number}/{name}": array
            for number, options in enumerate(json.loads(calls))
            for name, array in call(world, kind, **options).items()
        }

    arrays = launch(backend, MPI.COMM_WORLD.Get_size, program)[0]
    if MPI.COMM_WORLD.Get_rank() == 0:
        np.savez(out, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
