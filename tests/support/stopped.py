"""Trainings that are asked to stop, so that there is something to go on from."""

import pytest

from mgg.backend import launch
from mgg.errors import StoppedError
from mgg.train import train
from support import train_program
from support.train_program import Stop

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
