"""Runs a GPU PE's repeated work as one CUDA graph, which saves the host's time per launch.

The first submission runs step by step: it compiles, allocates what stays, and finds what never changes. The second is
captured from the stream into a graph, which later submissions launch. Work that cannot be captured (it meets other PEs
on the hosts, downloads or waits) runs step by step every time. The capture finds this out before any of the work has
run.

A graph contains addresses. Its temporary arrays come from a separate memory pool, so they never move. Its input and
output have fixed addresses, and are copied from and to page-locked memory inside the graph. Either all PEs launch
graphs of the same work, or none does: all-reduces inside graphs use separate buffers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import cupy
import numpy as np

from mgg.backend.api import Array

if TYPE_CHECKING:
    from mgg.backend.gpu import GpuArrays

_DOUBLE = 8  # bytes of a number
_log = logging.getLogger(__name__)


class NotRecordedError(Exception):
    """A CUDA graph cannot contain this operation: it needs the host, or other PEs' hosts."""


class Recorder:
    """The state of a PE's CUDA graph capture."""

    def __init__(self) -> None:
        self._met: list[str] | None = None  # None: nothing is being captured
        self.sums = 0  # all-reduces in the graph that is being captured
        self.memories: WeakSet[_Memory] = WeakSet()  # the separate pools of repeated works

    @property
    def active(self) -> bool:
        """Return whether a graph is being captured."""
        return self._met is not None

    def refuse(self, what: str) -> None:
        """Raise NotRecordedError while a graph is being captured: a graph cannot contain ``what``."""
        if self._met is not None:
            raise NotRecordedError(what)

    def records_collective(self, what: str) -> bool:
        """Return whether a launch that waits for all PEs is being captured; each launch of the graph reports it."""
        if self._met is None:
            return False
        self._met.append(what)
        return True

    @contextmanager
    def recording(self) -> Iterator[list[str]]:
        """Record the block as a capture; yields the list of its launches that wait for all PEs."""
        self._met, self.sums = [], 0
        try:
            yield self._met
        finally:
            self._met = None


class _Memory:
    """The memory pool of one repeated work, which nothing else may use.

    A graph writes to all memory that it was captured with, even if other arrays were there by now.
    """

    def __init__(self, world: GpuArrays) -> None:
        self._world, self._recorder = world, world.recorder
        self._pool: Any = None

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Allocate the block's arrays from this pool."""
        if self._pool is None:
            # Free the memory that earlier work has cached, so that this pool can use it.
            self._world.give_back()
            self._pool = cupy.cuda.MemoryPool(self._allocate)
            self._recorder.memories.add(self)
        with cupy.cuda.using_allocator(self._pool.malloc):
            yield

    def _allocate(self, size: int) -> Any:
        try:
            return cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)
        except cupy.cuda.runtime.CUDARuntimeError:
            # The pool would free unused blocks to make room, but the graph that is being captured uses them.
            self._recorder.refuse("more memory than there is")
            raise

    @property
    def bytes(self) -> int:
        """Return the bytes of GPU memory that the pool has."""
        return 0 if self._pool is None else int(self._pool.total_bytes())

    def give_back(self) -> None:
        """Free unused blocks; there must be no graph."""
        if self._pool is not None:
            self._world.note_memory()
            self._pool.free_all_blocks()


class RepeatedGraph:
    """A ``mgg.backend.api.Repeated``.

    Args:
        world: the PE's World.
        work: the work; it must not depend on changing numbers of the host, and must read and write only its argument,
            arrays whose addresses do not change, and arrays that it makes.
        entries: length of its argument.
    """

    def __init__(self, world: GpuArrays, work: Callable[[Array], tuple[Array, Any]], entries: int) -> None:
        self._world, self._memory, self._work = world, _Memory(world), work
        world.give_back()  # else the small array here would keep a large block that earlier work has cached
        self._host, self._given = _page_locked(entries), cupy.empty(entries, np.float64)
        self._found = np.empty(0)
        self._others: Any = None  # second return value of the last run or of the graph
        self._graph: Any = None
        self._met: list[str] = []
        self._bytes: dict[str, int] = {}  # bytes that the graph moves, by operation
        self._ran = self._refused = False

    def submit(self, numbers: np.ndarray) -> Any:
        """See ``mgg.backend.api.Repeated``."""
        self._host[:] = numbers  # safe: the previous submission has been waited for
        if self._graph is None and self._ran and not self._refused:
            self._capture()
        if self._graph is None:
            with self._memory.serving():
                self._run()
            self._ran = True
        else:
            self._graph.launch()
            for operation, count in self._bytes.items():
                self._world.counters.add(operation, count)
            for what in self._met:
                self._world.note_collective(what)
        return self._others

    def result(self) -> np.ndarray:
        """See ``mgg.backend.api.Repeated``."""
        self._world.finish()
        return self._found.copy()

    def release(self) -> None:
        """See ``mgg.backend.api.Repeated``."""
        self._graph = self._others = None
        self._ran = False
        self._memory.give_back()

    def _run(self) -> None:
        """Submit the work step by step to the current stream."""
        copied(self._given.data.ptr, self._host.ctypes.data, self._host.nbytes, cupy.cuda.runtime.memcpyHostToDevice)
        found, others = self._work(self._given)
        if found.dtype != np.float64 or not found.flags.c_contiguous:
            raise ValueError(f"the result is {found.dtype} with strides {found.strides}, and not float64 in a row")
        if self._found.size != found.size:
            self._found = _page_locked(found.size)
        copied(self._found.ctypes.data, found.data.ptr, self._found.nbytes, cupy.cuda.runtime.memcpyDeviceToHost)
        self._others = others

    def _capture(self) -> None:
        """Capture the graph, or find that some PE cannot (collective); the GPU does no work."""
        world, stream = self._world, cupy.cuda.get_current_stream()
        before, graph = dict(world.counters.bytes), None
        try:
            with self._memory.serving(), world.recorder.recording() as met, _captured(stream) as captured:
                self._run()
                world.end_recording()
            graph = captured()
        except NotRecordedError as error:
            _log.debug("no CUDA graph: %s", error)
            self._refused = True
        except (RuntimeError, MemoryError) as error:  # errors of CUDA and its libraries are RuntimeErrors
            _warn_once(f"no CUDA graph, so work is submitted step by step: {' '.join(str(error).split())}")
            self._refused = True
        if not all(world.gather(graph is not None)):
            graph, self._refused = None, True
        if graph is not None:
            counted = world.counters.bytes
            self._graph, self._met = graph, met
            self._bytes = {name: count - before.get(name, 0) for name, count in counted.items()}
        world.counters.bytes = before


_warned: set[str] = set()


def _warn_once(line: str) -> None:
    """Warn once about an unexpected failure: the work continues without a graph, but takes longer."""
    if line not in _warned:
        _warned.add(line)
        _log.warning("%s", line)


@contextmanager
def _captured(stream: Any) -> Iterator[Callable[[], Any]]:
    """Capture the block's work on ``stream``; yields a function that returns the graph afterwards."""
    made: list[Any] = []
    stream.begin_capture()
    try:
        yield lambda: made[0]
    except BaseException:
        try:
            stream.end_capture()  # the stream must leave capture mode even if the capture has failed
        except RuntimeError as error:
            _log.debug("the capture ended with %s", error)
        raise
    made.append(stream.end_capture())


def _page_locked(entries: int) -> np.ndarray:
    """Return float64 [entries] in page-locked memory, which GPUs copy without the host."""
    memory = cupy.cuda.alloc_pinned_memory(max(entries, 1) * _DOUBLE)
    return np.frombuffer(memory, np.float64, entries)


def copied(target: int, source: int, size: int, kind: int) -> None:
    """Submit a copy to the current stream."""
    if size:
        cupy.cuda.runtime.memcpyAsync(target, source, size, kind, cupy.cuda.get_current_stream().ptr)
