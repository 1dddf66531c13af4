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
from mgg.records import EpochRecord

#: Field of an epoch -> name in TensorBoard, which groups by the part before the slash.
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


#: Seconds between flushes to the disk, for TensorBoard to show; the first epoch is flushed at once.
FLUSH_EVERY = 120.0
_log = logging.getLogger(__name__)


def check_apart(folder: Path, *taken: Path) -> None:
    """Raise InputError if ``folder`` for event files lies in a folder that the run itself writes.

    Args:
        folder: folder of the event files.
        taken: the run's own folders: first the run's, then that of its checkpoints.
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
    """Context manager that writes scalars of each epoch to an event file.

    A thread writes, so that the training does not wait for a slow disk; it ends with the context. tensorboardX's own
    writer threads end at the first disk error, after which the caller waits forever. Here a disk error only logs a
    warning and stops the writing; the training continues.

    Args:
        folder: folder for the file, or None to write nothing. Earlier files stay, and TensorBoard joins them and the
            new one to one curve.
        metric: name of the metric in the accuracy fields.
        done: epochs to keep of earlier event files; TensorBoard drops later ones.

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
        """Write an event with these fields, unless a write failed before."""
        if self._file is None:
            return
        from tensorboardX.proto.event_pb2 import Event

        with self._going_on():
            self._file.write(Event(**event).SerializeToString())

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Turn an OSError in the block into a warning, and close the file."""
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
            self._last.result()  # raises anything other than a disk error
        if self._file is not None:
            with self._going_on():
                self._file.flush()
                self._file.close()
