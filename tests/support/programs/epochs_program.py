"""Epochs launched as CUDA graphs against the same epochs step by step: ``python epochs_program.py CASES``.

CASES is JSON: objects with the layout's ``folder``, ``model``, ``technique`` and further options. The first rank prints
a JSON object for each case: for kind ``compare`` the number of ``graphs`` of an epoch, and how many ``losses``,
``scores`` and ``arrays`` differ.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from mgg import layout
from mgg.backend import World, launch
from mgg.errors import InputError
from mgg.model import settings_of
from mgg.train import Trainer
from mgg.train.targets import Scores

#: Enough for a first epoch, one that is captured, and some that are launched.
EPOCHS = 5
#: Arrays of each size that fill the free memory: more than an epoch has of one size.
BESIDE = 20


def trainer_of(world: World, case: dict[str, Any], repeat: bool) -> Trainer:
    """A trainer, which launches CUDA graphs if ``repeat``."""
    settings = settings_of(case["model"], case.get("settings"))
    part = layout.load(case["folder"], world.rank)
    return Trainer(
        world, part, model=case["model"], technique=case["technique"], options={}, settings=settings, seed=3,
        epochs=EPOCHS, dtype=case.get("dtype", "fp32"), metric=case.get("metric", "auto"), repeat=repeat,
    )  # fmt: skip


def graphs(trainer: Trainer) -> int:
    """The number of CUDA graphs that make up an epoch: 0 or 1."""
    return int(trainer._submission is not None and trainer._submission._graph is not None)


def flat(groups: dict[str, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """All arrays by name."""
    return {f"{group}/{name}": array for group, arrays in groups.items() for name, array in arrays.items()}


def epoch(world: World, trainer: Trainer, number: int, beside: int) -> tuple[float, Scores]:
    """One epoch, while ``beside`` other arrays of every size hold memory that it must not write to."""
    arrays = [world.xp.empty((512 * blocks,), np.uint8) for blocks in range(1, 65) for _ in range(beside)]
    for array in arrays:
        array.fill(number)
    result = trainer.epoch(number)
    assert all((world.download(array) == number).all() for array in arrays), "an epoch wrote into other arrays"
    return result


def compare(world: World, case: dict[str, Any]) -> dict[str, Any]:
    """The differences between ``EPOCHS`` epochs with graphs and without (collective)."""
    curves, saved, graph_count, moved = [], [], 0, []
    for repeat in (False, True):
        trainer = trainer_of(world, case, repeat)
        before = world.counters.embeddings()
        # A graph that writes to wrong memory does so at every launch, so it is enough to look at the last.
        beside = {EPOCHS: BESIDE} if repeat else {}
        curve = [epoch(world, trainer, number, beside.get(number, 0)) for number in range(1, EPOCHS + 1)]
        moved.append(world.counters.embeddings() - before)
        graph_count = graphs(trainer)
        curves.append([(loss, *vars(scores).values()) for loss, scores in curve])
        infer = trainer.inference()
        for _ in range(3):
            infer()
        assert graphs(trainer) >= graph_count, "an epoch is a graph, but inference is none"
        trainer.keep()
        saved.append(flat(trainer.save()) | {"predicted": trainer.predict(trainer.kept())})
        trainer.close()
    plain, repeated = curves
    return {
        "graphs": graph_count,
        "losses": sum(one[0] != other[0] for one, other in zip(plain, repeated, strict=True)),
        "scores": sum(one[1:] != other[1:] for one, other in zip(plain, repeated, strict=True)),
        "arrays": [name for name, array in saved[0].items() if not np.array_equal(array, saved[1][name])],
        "distinct": len({one[0] for one in repeated}),
        "bytes": moved[0] != moved[1],
    }


def diverge(world: World, case: dict[str, Any]) -> dict[str, Any]:
    """Weights that overflow after the third epoch: the errors, and the weights that the fourth changes (collective)."""
    errors, changed = [], []
    for repeat in (False, True):
        trainer = trainer_of(world, case, repeat)
        for number in (1, 2, 3):
            trainer.epoch(number)
        name = [name for name, weight in trainer.weights.items() if weight.ndim > 1][-1]
        trainer.weights[name][...] = world.upload(np.full(trainer.weights[name].shape, case["value"], np.float32))
        before = flat(trainer.save())
        try:
            trainer.epoch(4)
            errors.append("")
        except InputError as error:
            errors.append(str(error))
        after = flat(trainer.save())
        changed += [each for each, array in before.items() if not np.array_equal(array, after[each], equal_nan=True)]
        trainer.close()
    return {"errors": errors, "changed": changed}


def resume(world: World, case: dict[str, Any]) -> dict[str, Any]:
    """Resume from the state saved after the third epoch, with a new trainer and with the same one (collective)."""
    whole, other = (trainer_of(world, case, True) for _ in range(2))
    kept = None
    for number in range(1, EPOCHS + 1):
        whole.epoch(number)
        kept = whole.save() if number == 3 else kept
    expected, found = flat(whole.save()), []
    assert kept is not None
    for trainer in (other, whole):
        trainer.restore(kept)
        for number in (4, 5):
            trainer.epoch(number)
        found.append(flat(trainer.save()))
    for trainer in (whole, other):
        trainer.close()
    return {
        "differ": [name for name, array in expected.items() for each in found if not np.array_equal(array, each[name])]
    }


def side_by_side(world: World, case: dict[str, Any]) -> dict[str, Any]:
    """Two trainers take turns, and one predicts while the other has graphs; both end as a single one (collective)."""
    alone, *both = (trainer_of(world, case, True) for _ in range(3))
    for number in range(1, EPOCHS + 1):
        alone.epoch(number)
    expected = flat(alone.save())
    alone.close()
    for number in range(1, EPOCHS + 1):
        for trainer in both:
            epoch(world, trainer, number, BESIDE if number == EPOCHS else 0)
        if number == 3:
            both[1].keep()
            both[1].predict(both[1].kept())
    found = [flat(trainer.save()) for trainer in both]
    for trainer in both:
        trainer.close()
    return {
        "differ": [name for name, array in expected.items() for each in found if not np.array_equal(array, each[name])]
    }


KINDS = {"compare": compare, "diverge": diverge, "resume": resume, "side_by_side": side_by_side}


def program(world: World) -> list[dict[str, Any]]:
    """The result of every case."""
    results = []
    for case in json.loads(sys.argv[1]):
        gathered = world.gather(KINDS[case["kind"]](world, case))
        results.append(gathered[0] | {"pes": len({str(result) for result in gathered})})  # 1 if all PEs agree
    return results


if __name__ == "__main__":
    from mpi4py import MPI

    size = MPI.COMM_WORLD.size
    results = launch("nvshmem", lambda: size, program)[0]
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(results))
