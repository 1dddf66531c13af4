"""One training pass of a model: logits, loss and every gradient; on ranks as ``python model_program.py ...``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from mgg import layout
from mgg.backend import World, launch
from mgg.model import Pass, build, settings_of
from mgg.model.features import on_device, prepare_features
from mgg.model.neighborhood import Neighborhood
from mgg.train.targets.metrics import targets_of
from support.ranks import mpiexec


def training_pass(
    world: World, folder: Path, model: str, settings: dict[str, Any], weights: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The results of a pass by name.

    ``nodes``, ``logits`` and ``x`` (the gradient by the features, if there are any) have this PE's rows. ``loss``, the
    gradients under the names of their weights and ``state NAME`` of running statistics are sums over the PEs.
    """
    part = layout.load(folder, world.rank)
    facts, chosen = part.manifest, settings_of(model, settings)
    targets = targets_of(world, part, "accuracy", chosen)
    targets.place(world)
    chain = build(model, chosen, facts.features, facts.classes, facts.nodes, facts.relations)
    graph = Neighborhood.prepare(world, part, "halo", {}, chain.width, chain.fetched)
    run = Pass(graph, {name: value.copy() for name, value in weights.items()}, dict(chain.state), training=True)
    x = None
    if part.features is not None:
        features = prepare_features(np.asarray(part.features), as_sparse=False, row_normalize=False)
        x = on_device(world, features, part.source_ids)
    logits = chain.forward(x, run)
    found = {"nodes": part.source_ids, "logits": logits.copy()}
    loss, gradient = targets.loss_and_gradient(run.arrays, logits)
    by_x = chain.backward(gradient, run, inputs=x is not None)
    if by_x is not None:
        found["x"] = by_x
    for name, part_of_sum in {"loss": loss, **{name: run.gradients[name] for name in weights}}.items():
        found[name] = world.all_reduce(np.asarray(part_of_sum, np.float64).reshape(np.shape(part_of_sum) or 1))
    graph.close()
    return found | {f"state {name}": value for name, value in run.state.items()}


def whole(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The results of all PEs as one, with the rows in the order of the nodes."""
    nodes = np.concatenate([part["nodes"] for part in parts])
    found = {name: value for name, value in parts[-1].items() if name != "nodes"}
    for name in {"logits", "x"} & set(found):
        rows = np.concatenate([part[name] for part in parts])
        found[name] = np.empty_like(rows)
        found[name][nodes] = rows
    return found


def on_ranks(
    ranks: int, out: Path, cases: list[tuple[str, str, dict[str, Any]]], weights: list[dict[str, np.ndarray]]
) -> list[list[dict[str, np.ndarray]]]:
    """The pass of each MPI rank, by case (layout, model, settings); files go into the folder ``out``."""
    for number, values in enumerate(weights):
        np.savez(out / f"weights{number}.npz", **values)
    done = mpiexec(ranks, [__file__, json.dumps(cases), str(out)])
    assert done.returncode == 0, done.stderr
    return [[dict(np.load(out / f"{k}-{rank}.npz")) for rank in range(ranks)] for k in range(len(cases))]


def _main(cases: str, out: str) -> None:
    given = json.loads(cases)

    def program(world: World) -> None:
        for number, (folder, model, settings) in enumerate(given):
            weights = dict(np.load(Path(out) / f"weights{number}.npz"))
            found = training_pass(world, Path(folder), model, settings, weights)
            np.savez(Path(out) / f"{number}-{world.rank}.npz", **found)

    launch("mpi", lambda: layout.read_manifest(Path(given[0][0])).pes, program)


if __name__ == "__main__":
    _main(*sys.argv[1:])
