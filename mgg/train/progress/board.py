"""TensorBoard event files of a training, written by tensorboardX (extra ``tensorboard``)."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
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


#: Seconds after which what was written is flushed to the disk, for TensorBoard to show; the first epoch is at once.
FLUSH_EVERY = 120.0
_log = logging.getLogger(__name__)


def check_apart(folder: Path, *taken: Path) -> None:
    """Raise InputError when event files in ``folder`` would come among what else is written.

    Args:
        folder: of the event files.
        taken: folders that hold nothing but what they are for: the run's, the first, and its checkpoints'.
    """
    events = folder.resolve()
    for other in taken:
        whole = other.resolve()
        if whole in (events, *events.parents):
            lies = "is" if events == whole else "lies in"
            raise InputError(
                f"--tensorboard {folder}: {lies} {other}, which holds nothing but this run: choose a folder apart from"
                f" it, such as {taken[0]}.tensorboard"
            )


class Board:
    """Writes scalars of each epoch to an event file; a context.

    A thread writes, so that the training does not wait for a slow disk; it ends with the context. Those of tensorboardX
    end at the first error of the disk, and who writes then waits for ever. Here such an error is a warning, and nothing
    is written any more: the training goes on.

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
        self._folder, self._flushed = folder, -FLUSH_EVERY
        self._file: Any = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="events")
        self._last: Future[None] | None = None
        if folder is None:
            return
        try:
            from tensorboardX import RecordWriter
            from tensorboardX.proto.event_pb2 import SessionLog
        except ImportError as error:
            raise MachineError(f"--tensorboard: {error}; install it with: pip install 'mgg[tensorboard]'") from None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # TensorBoard reads a folder's files by name.
            self._file = RecordWriter(str(folder / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}"))
        except OSError as error:
            raise InputError(f"{folder}: cannot be written: {error.strerror}") from None
        self._add(wall_time=time.time(), file_version="brain.Event:2")
        self._add(wall_time=time.time(), step=done + 1, session_log=SessionLog(status=SessionLog.START))

    def write(self, record: EpochRecord) -> None:
        """Add an epoch."""
        if self._file is not None:
            self._last = self._thread.submit(self._write, record, time.time())

    def _write(self, record: EpochRecord, now: float) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        values = {tag: getattr(record, field) for field, tag in self._tags.items()}
        scalars = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items() if value is not None]
        self._add(step=record.epoch, wall_time=now, summary=Summary(value=scalars))
        if self._file is not None and time.monotonic() - self._flushed >= FLUSH_EVERY:
            with self._going_on():
                self._file.flush()
            self._flushed = time.monotonic()

    def _add(self, **event: Any) -> None:
        """Write an event with these fields, if nothing failed before."""
        if self._file is None:
            return
        from tensorboardX.proto.event_pb2 import Event

        with self._going_on():
            self._file.write(Event(**event).SerializeToString())

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """An OSError in the block is a warning, and the end of the file."""
        try:
            yield
        except OSError as error:
            _log.warning(
                "%s: cannot be written (%s): the training goes on without TensorBoard's events",
                self._folder, error.strerror or error,
            )  # fmt: skip
            file, self._file = self._file, None
            with suppress(OSError):
                file.close()

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        if self._last is not None:
            self._last.result()  # nothing but an error of the disk is to be expected
        if self._file is not None:
            with self._going_on():
                self._file.flush()
                self._file.close()
