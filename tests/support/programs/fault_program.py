"""``mgg`` with a rank that dies: ``FAULT="RANK EPOCH DELAY" python fault_program.py train ...``.

Rank RANK kills itself by SIGKILL, DELAY seconds after it has begun EPOCH; without ``FAULT`` no rank dies. Rank 0 adds a
line (event, epoch, time) to the file ``FAULT_LOG`` when it starts, begins an epoch and saves a checkpoint;
``attempts.py`` reads that. With ``FAULT_PAUSE`` ranks sleep so many seconds in each epoch. Commands other than
``train`` run as ``mgg`` runs them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from mgg.backend import job_rank
from mgg.cli import main
from mgg.train import Trainer
from mgg.train.run.checkpoint import Checkpoints


def note(event: str, epoch: int) -> None:
    """Write a line, which is complete even if this process dies next."""
    if job_rank() == 0:
        with Path(os.environ["FAULT_LOG"]).open("a") as log:
            log.write(f"{event} {epoch} {time.time()}\n")


def note_epochs(rank: int = -1, epoch: int = 0, delay: float = 0) -> None:
    """Log the start of each epoch, and kill ``rank`` in ``epoch``."""
    original = Trainer.step

    def step(trainer: Trainer, number: int) -> float:
        note("epoch", number)
        time.sleep(float(os.environ.get("FAULT_PAUSE", "0")))
        if number == epoch and job_rank() == rank:
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
            time.sleep(delay / 2)  # so that the timer expires at any time of the epoch, or while the other rank waits
        return original(trainer, number)

    Trainer.step = step  # type: ignore[method-assign]


def note_checkpoints() -> None:
    """Log each checkpoint that is saved."""
    original = Checkpoints.save

    def save(checkpoints, checkpoint):
        note("checkpoint", len(checkpoint.history.epochs))
        original(checkpoints, checkpoint)

    Checkpoints.save = save  # type: ignore[method-assign]


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        note("start", 0)
        note_checkpoints()
        fault = os.environ.get("FAULT", "").split()
        note_epochs(int(fault[0]), int(fault[1]), float(fault[2])) if fault else note_epochs()
    main()
