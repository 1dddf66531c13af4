"""Epochs that are launched as CUDA graphs beside the same ones step by step, as ``python epochs_program.py CASES``.

CASES is JSON: objects with the layout's ``folder``, ``model``, ``technique``, and what else is given below. The first
rank prints a JSON object for each: ``graphs`` that an epoch is, and what differs: ``losses``, ``scores``, ``arrays``.
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
#: Arrays of each size that take what memory is free: more than an epoch has of one size.
BESIDE = 20


def trainer_of(world: World, case: dict[str, Any], repeat: bool) -> Trainer:
    """A trainer, on graphs if ``repeat``."""
    settings = settings_of(case["model"], case.get("settings"))
    part = layout.load(case["folder"], world.rank)
    return Trainer(
        world, part, model=case["model"], technique=case["technique"], options={}, settings=settings, seed=3,
        epochs=EPOCHS, dtype=case.get("dtype", "fp32"), metric=case.get("metric", "auto"), repeat=repeat,
    )  # fmt: skip


def graphs(trainer: Trainer) -> int:
    """CUDA graphs that an epoch is."""
    return int(trainer._submission is not None and trainer._submission._graph is not None)


def flat(groups: dict[str, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """All arrays by name."""
    return {f"{group}/{name}": array for group, arrays in groups.items() for name, array in arrays.items()}


def epoch(world: World, trainer: Trainer, number: int, beside: int) -> tuple[float, Scores]:
    """One epoch, beside so many arrays of every size that are not its own."""
    others = [world.xp.empty((512 * blocks,), np.uint8) for blocks in range(1, 65) for _ in range(beside)]
    for array in others:
        array.fill(number)
    found = trainer.epoch(number)
    assert all((world.download(array) == number).all() for array in others), "an epoch wrote into other arrays"
    return found


def compare(world: World, case: dict[str, Any]) -> dict[str, Any]:
    """What differs between both ways of ``EPOCHS`` epochs (collective)."""
    found, kept, made, moved = [], [], 0, []
    for repeat in (False, True):
        trainer = trainer_of(world, case, repeat)
        before = world.counters.embeddings()
        # A graph that writes where it should not does so at every launch: the last one shows it.
        beside = {EPOCHS: BESIDE} if repeat else {}
        curve = [epoch(world, trainer, number, beside.get(number, 0)) for number in range(1, EPOCHS + 1)]
        moved.append(world.counters.embeddings() - before)
        made = graphs(trainer)
        found.append([(loss, *vars(scores).values()) for loss, scores in curve])
        once = trainer.inference()
        for _ in range(3):
            once()
        assert graphs(trainer) >= made, "a pass is no graph where an epoch is one"
        trainer.keep()
        kept.append(flat(trainer.save()) | {"predicted": trainer.predict(trainer.kept())})
        trainer.close()
    plain, repeated = found
    return {
        "graphs": made,
        "losses": sum(one[0] != other[0] for one, other in zip(plain, repeated, strict=True)),
        "scores": sum(one[1:] != other[1:] for one, other in zip(plain, repeated, strict=True)),
        "arrays": [name for name, array in kept[0].items() if not np.array_equal(array, kept[1][name])],
        "distinct": len({one[0] for one in repeated}),
        "bytes": moved[0] != moved[1],
    }


def diverge(world: World, case: dict[str, Any]) -> dict[str, Any]:
    """Weights that overflow after the third epoch: what is said, and what the fourth changes (collective)."""
    said, changed = [], []
    for repeat in (False, True):
        trainer = trainer_of(world, case, repeat)
        for number in (1, 2, 3):
            trainer.epoch(number)
        name = [name for name, weight in trainer.weights.items() if weight.ndim > 1][-1]
        trainer.weights[name][...] = world.upload(np.full(trainer.weights[name].shape, case["value"], np.float32))
        before = flat(trainer.save())
        try:
            trainer.epoch(4)
            said.append("")
        except InputError as error:
            said.append(str(error))
        after = flat(trainer.save())
        changed += [each for each, array in before.items() if not np.array_equal(array, after[each], equal_nan=True)]
        trainer.close()
    return {"said": said, "changed": changed}


def resume(world: World, case: dict[str, Any]) -> dict[str, Any]:
    """Going on from what was saved after the third epoch, with a new trainer and with the same (collective)."""
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
    """Two trainers take turns, and one predicts while the other has graphs; both end as one alone (collective)."""
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
    """The answer to every case."""
    answers = []
    for case in json.loads(sys.argv[1]):
        answer = KINDS[case["kind"]](world, case)
        # On every PE alike, but for what only one has.
        answers.append(world.gather(answer)[0] | {"pes": len({str(one) for one in world.gather(answer)})})
    return answers


if __name__ == "__main__":
    from mpi4py import MPI

    size = MPI.COMM_WORLD.size
    result = launch("nvshmem", lambda: size, program)[0]
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(result))
