"""Trainings that are asked to stop, so that there is something to go on from."""

import pytest

from mgg.backend import launch
from mgg.errors import StoppedError
from mgg.train import train
from support.programs import train_program
from support.programs.train_program import Stop, checkpoint_files, run, tables

BASE = {"technique": "halo", "epochs": 12, "settings": {"hidden": 8}, "seed": 2}
ALWAYS = 1e-9  # seconds between checkpoints: one after each epoch


def stop_at(epoch, folder, pes, done=0, **options):
    """Run until one PE, the last, is asked to stop in ``epoch``; a resumed one goes on after ``done``."""
    parts = train_program.layouts("simulated", folder, pes)

    def program(world):
        stop = Stop(epoch - done) if world.rank == pes - 1 else None
        return train(world, parts(world.rank), stop=stop, **options)

    with pytest.raises(StoppedError, match=f"stopped after epoch {epoch} of 12: .*--resume"):
        launch("simulated", lambda: pes, program)


class Runs:
    """Trainings of gcn over ``layouts`` of the graph planted, into folders below ``here``: of ``run`` unless told."""

    def __init__(self, layouts, here):
        self._layouts, self._here, self.out = layouts, here, here / "run"

    def _given(self, changes):
        return {**BASE, "model": "gcn", **changes, "out": self._here / changes.get("out", "run")}

    def train(self, pes=1, graph="planted", **changes):
        return run("simulated", self._layouts(graph, pes), pes, **self._given(changes))[0]

    def resume(self, pes=1, **changes):
        return self.train(pes, resume=True, **changes)

    def stop(self, epoch, pes=1, done=0, **changes):
        """As ``stop_at``; the paths of the checkpoints."""
        stop_at(epoch, self._layouts("planted", pes), pes, done, **self._given(changes))
        return self.files()

    def files(self):
        return checkpoint_files(self.out)

    def names(self):
        return [path.name for path in self.files()]

    def check(self, pes=1, **changes):
        """The run is one that never stopped."""
        self.train(pes, **changes, out="whole")
        assert tables(self.out) == tables(self._here / "whole")
