"""Training on the simulated backend, or on MPI ranks as ``python train_program.py KIND CALLS OUT``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mgg import layout
from mgg.backend import launch
from mgg.train import Result, loss_and_gradients, train


def layouts(backend: str, folder: str | Path, pes: int) -> Callable[[int], layout.PeLayout]:
    """What PE ``rank`` holds; the simulated backend's PEs share one reading."""
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
    """Loss and every gradient to ``tolerance`` of the expected one's largest entry."""
    assert set(found) == set(expected)
    for name, array in expected.items():
        error = np.abs(found[name] - array).max() / np.abs(array).max()
        assert error <= tolerance, f"{name}: {error:.2g}"


def run(backend: str, folder: str | Path, pes: int, **options: Any) -> list[Result]:
    """The result of a training run on each PE (on this rank under MPI)."""
    parts = layouts(backend, folder, pes)
    return launch(backend, lambda: pes, lambda world: train(world, parts(world.rank), **options))


def result_arrays(result: Result) -> dict[str, np.ndarray]:
    """All of a result that two equal runs share, as arrays."""
    curve = [epoch.model_dump(exclude={"seconds"}) for epoch in result.epochs]
    record = result.record
    return {
        "curve": np.array([list(epoch.values()) for epoch in curve]),
        "final": np.array([record.loss, record.best_epoch, record.test_accuracy, record.bytes_wire]),
        **result.weights,
    }


def main(kind: str, calls: str, out: str) -> None:
    """Rank 0 writes the arrays of each call of ``kind``, under the call's number, to ``out``."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    arrays = {}
    for number, options in enumerate(json.loads(calls)):
        if kind == "gradients":
            found = gradients("mpi", pes=comm.Get_size(), **options)[0]
        else:
            found = result_arrays(run("mpi", pes=comm.Get_size(), **options)[0])
        arrays |= {f"{number}/{name}": array for name, array in found.items()}
    if comm.Get_rank() == 0:
        np.savez(out, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
