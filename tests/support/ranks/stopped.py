"""Trainings that are stopped, so that tests can resume them."""

import pytest

from mgg.backend import launch
from mgg.errors import StoppedError
from mgg.train import train
from support.programs import train_program
from support.programs.train_program import Stop, checkpoint_files, run, tables

BASE = {"technique": "halo", "epochs": 12, "settings": {"hidden": 8}, "seed": 2}
ALWAYS = 1e-9  # seconds between checkpoints: one after each epoch


def stop_at(epoch, folder, pes, done=0, **options):
    """Train until the last PE is asked to stop in ``epoch``; a resumed training continues after epoch ``done``."""
    parts = train_program.layouts("simulated", folder, pes)

    def program(world):
        stop = Stop(epoch - done) if world.rank == pes - 1 else None
        return train(world, parts(world.rank), stop=stop, **options)

    with pytest.raises(StoppedError, match=f"stopped after epoch {epoch} of 12: .*--resume"):
        launch("simulated", lambda: pes, program)


class Runs:
    """Trainings of gcn on the graph ``planted``, into folders below ``folder``, by default into ``run``."""

    def __init__(self, layouts, folder):
        self._layouts, self._folder, self.out = layouts, folder, folder / "run"

    def _options(self, changes):
        return {**BASE, "model": "gcn", **changes, "out": self._folder / changes.get("out", "run")}

    def train(self, pes=1, graph="planted", **changes):
        return run("simulated", self._layouts(graph, pes), pes, **self._options(changes))[0]

    def resume(self, pes=1, **changes):
        return self.train(pes, resume=True, **changes)

    def stop(self, epoch, pes=1, done=0, **changes):
        """As ``stop_at``; returns the paths of the checkpoints."""
        stop_at(epoch, self._layouts("planted", pes), pes, done, **self._options(changes))
        return self.files()

    def files(self):
        return checkpoint_files(self.out)

    def names(self):
        return [path.name for path in self.files()]

    def check(self, pes=1, **changes):
        """Assert that the run equals one that never stopped."""
        self.train(pes, **changes, out="whole")
        assert tables(self.out) == tables(self._folder / "whole")
