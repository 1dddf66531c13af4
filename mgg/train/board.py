"""TensorBoard event files of a training, written by tensorboardX (extra ``tensorboard``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mgg.errors import InputError, MachineError
from mgg.record import EpochRecord

#: Field of an epoch -> name in TensorBoard, which groups by what is before the slash.
TAGS = {
    "loss": "loss/train",
    "validation_loss": "loss/validation",
    "train_accuracy": "{metric}/train",
    "validation_accuracy": "{metric}/validation",
    "test_accuracy": "{metric}/test",
    "seconds": "seconds/epoch",
    "aggregate": "seconds/aggregate",
    "dense": "seconds/dense",
    "communication": "seconds/communication",
    "other": "seconds/other",
}


class Board:
    """Writes scalars of each epoch to an event file; a context.

    Args:
        folder: gets the file; earlier ones stay, and TensorBoard shows what it keeps of them as one curve with it.
            None: nothing is written.
        metric: what the accuracies are.
        done: epochs that earlier event files have; TensorBoard forgets what they have beyond.

    Raises:
        MachineError: tensorboardX is not installed.
        InputError: ``folder`` cannot be written.
    """

    def __init__(self, folder: Path | None, metric: str, done: int) -> None:
        self._tags = {field: tag.format(metric=metric) for field, tag in TAGS.items()}
        self._writer: Any = None
        if folder is None:
            return
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise MachineError(f"--tensorboard: {error}; install it with: pip install 'mgg[tensorboard]'") from None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._writer = SummaryWriter(str(folder), purge_step=done + 1)
        except OSError as error:
            raise InputError(f"{folder}: cannot be written: {error.strerror}") from None

    def write(self, record: EpochRecord) -> None:
        """Add an epoch."""
        for field, tag in self._tags.items() if self._writer is not None else ():
            value = getattr(record, field)
            if value is not None:
                self._writer.add_scalar(tag, value, record.epoch)

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
