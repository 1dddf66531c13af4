"""The side stream of a GPU PE, to which ``World.aside`` submits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import cupy

from mgg.kernel.cuda.dependent_launch import urgent_stream


class EventWork:
    """Work on the side stream up to an event."""

    def __init__(self) -> None:
        self._event = cupy.cuda.Event(disable_timing=True)

    def done_here(self) -> None:
        """Record that the current stream has been given all of the work."""
        self._event.record(cupy.cuda.get_current_stream())

    def wait(self) -> None:
        """Make the current stream wait for the work."""
        cupy.cuda.get_current_stream().wait_event(self._event)


class SideStream:
    """A second stream, made at its first use on the device that is current then.

    It has a high priority, so that transfers start before waiting arithmetic.
    """

    @cached_property
    def _stream(self) -> Any:
        return urgent_stream()

    @contextmanager
    def aside(self) -> Iterator[EventWork]:
        """Submit the block to the side stream, after the current stream's work so far."""
        before, work = EventWork(), EventWork()
        before.done_here()
        with self._stream:
            before.wait()
            yield work
            work.done_here()
