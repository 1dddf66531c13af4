"""Launches on two streams of a GPU that come together again, as one CUDA graph once they are submitted again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy as cp

#: Kernel, grid, block, arguments.
Launch = tuple[Any, tuple[int, ...], tuple[int, ...], tuple[Any, ...]]
#: Lower is more urgent, and CUDA takes the most urgent there is.
_URGENT = -5


class Fork:
    """What goes on on two streams until both are done.

    Args:
        aside: the branch of a more urgent stream, whose blocks come before those of the other that wait for a place;
            without any, no stream but the current one is used.
        beside: the other branch.
        last: launched when both are over.
    """

    def __init__(self, aside: Sequence[Launch], beside: Sequence[Launch], last: Sequence[Launch]) -> None:
        self._aside, self._beside, self._last = aside, beside, last
        self._graph: Any = None
        self._ran = False

    def submit(self, streams: Streams) -> None:
        """To the current stream; as part of a graph that is captured from it, if one is."""
        current = cp.cuda.get_current_stream()
        if not self._aside or current.is_capturing():
            self._launch(current, streams.urgent)
        elif self._graph is not None:
            self._graph.launch(current)
        elif not self._ran:  # kernels are loaded at their first launch, which a graph is not to see
            self._ran = True
            self._launch(current, streams.urgent)
        else:
            # Submitted step by step, the GPU would wait for the host between the steps.
            with streams.captured:
                streams.captured.begin_capture()
                self._launch(streams.captured, streams.urgent)
                self._graph = streams.captured.end_capture()
            self._graph.launch(current)

    def _launch(self, stream: Any, urgent: Any) -> None:
        if self._aside:
            before, after = (cp.cuda.Event(disable_timing=True) for _ in range(2))
            before.record(stream)
            with urgent:
                urgent.wait_event(before)
                _submit(self._aside)
                after.record(urgent)
        _submit(self._beside)
        if self._aside:
            stream.wait_event(after)
        _submit(self._last)


class Streams:
    """The streams of one GPU that forks use, made on the device that is current."""

    def __init__(self) -> None:
        self.urgent = cp.cuda.Stream(non_blocking=True, priority=_URGENT)
        self.captured = cp.cuda.Stream(non_blocking=True)


def _submit(launches: Sequence[Launch]) -> None:
    for kernel, grid, block, arguments in launches:
        kernel(grid, block, arguments)
