"""Work that a PE with a GPU submits again and again, as one CUDA graph: what each launch takes of the host is saved.

The first submission runs as it is written: it compiles, allocates what stays, and finds what never changes. The second
is captured from the stream into a graph, and from then on the graph is launched. Work that cannot be captured (it meets
other PEs on the hosts, downloads, waits) runs as it is written every time; that shows while it is being captured, when
nothing of it has been done yet.

A graph has addresses. Its temporary arrays come from a memory pool that serves nothing else, so that they stay where
they are; what goes in and out lies at fixed places, and comes and goes through page-locked memory, inside the graph.
PEs launch graphs of the same work, or none of them does: where one's sums meet others', a graph has places of its own.
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
    """A graph cannot have this: it needs the host, or other PEs' hosts."""


class Recorder:
    """What a PE's world knows of the graph that is being captured."""

    def __init__(self) -> None:
        self._met: list[str] | None = None  # None: nothing is being captured
        self.sums = 0  # over PEs, in the graph that is being captured
        self.memories: WeakSet[_Memory] = WeakSet()  # that works have for themselves

    @property
    def active(self) -> bool:
        """Whether a graph is being captured."""
        return self._met is not None

    def refuse(self, what: str) -> None:
        """Raise NotRecordedError while a graph is being captured: ``what`` is nothing for a graph."""
        if self._met is not None:
            raise NotRecordedError(what)

    def meets(self, what: str) -> bool:
        """Whether a launch that waits for all PEs is part of a graph: each launch of the graph tells of it."""
        if self._met is None:
            return False
        self._met.append(what)
        return True

    @contextmanager
    def recording(self) -> Iterator[list[str]]:
        """A graph is being captured; gives the launches in it that wait for all PEs."""
        self._met, self.sums = [], 0
        try:
            yield self._met
        finally:
            self._met = None


class _Memory:
    """What a work takes for its arrays; nothing else must have a part in it.

    A graph writes to all that it has been captured with, also where another's arrays lie by now.
    """

    def __init__(self, world: GpuArrays) -> None:
        self._world, self._recorder = world, world.recorder
        self._pool: Any = None

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Arrays that are made inside come from here."""
        if self._pool is None:
            # What earlier passes left is to serve these.
            self._world.give_back()
            self._pool = cupy.cuda.MemoryPool(self._allocate)
            self._recorder.memories.add(self)
        with cupy.cuda.using_allocator(self._pool.malloc):
            yield

    def _allocate(self, size: int) -> Any:
        try:
            return cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)
        except cupy.cuda.runtime.CUDARuntimeError:
            # The pool would free what no array has any more: the graph that is being captured has it.
            self._recorder.refuse("more memory than there is")
            raise

    @property
    def bytes(self) -> int:
        """That the pool has of the GPU."""
        return 0 if self._pool is None else int(self._pool.total_bytes())

    def give_back(self) -> None:
        """Free what no array is in; there must be no graph."""
        if self._pool is not None:
            self._world.note_memory()
            self._pool.free_all_blocks()


class Repeated:
    """See ``mgg.backend.api.Repeated``.

    Args:
        world: of the PE.
        work: what is submitted; it must not depend on the host's numbers that change, and read and write nothing but
            its argument, arrays that stay, and what it makes.
        entries: numbers that it is given.
    """

    def __init__(self, world: GpuArrays, work: Callable[[Array], tuple[Array, Any]], entries: int) -> None:
        self._world, self._memory, self._work = world, _Memory(world), work
        self._host, self._given = _page_locked(entries), cupy.empty(entries, np.float64)
        self._found = np.empty(0)
        self._others: Any = None  # what came with the result, of the last run or of the graph
        self._graph: Any = None
        self._met: list[str] = []
        self._bytes: dict[str, int] = {}  # that the graph moves, by operation
        self._ran = self._refused = False

    def submit(self, numbers: np.ndarray) -> Any:
        """See ``mgg.backend.api.Repeated``."""
        self._host[:] = numbers  # what was submitted before has been waited for
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
                self._world.met(what)
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
        """Submit all of it to the current stream."""
        copied(self._given.data.ptr, self._host.ctypes.data, self._host.nbytes, cupy.cuda.runtime.memcpyHostToDevice)
        found, others = self._work(self._given)
        if found.dtype != np.float64 or not found.flags.c_contiguous:
            raise ValueError(f"the result is {found.dtype} with strides {found.strides}, and not float64 in a row")
        if self._found.size != found.size:
            self._found = _page_locked(found.size)
        copied(self._found.ctypes.data, found.data.ptr, self._found.nbytes, cupy.cuda.runtime.memcpyDeviceToHost)
        self._others = others

    def _capture(self) -> None:
        """Make the graph, or find that a PE has none (collective); nothing is done on the GPU."""
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
        except (RuntimeError, MemoryError) as error:  # CUDA's and its libraries' are RuntimeErrors
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
    """Nobody has foreseen it, and all goes on without: what takes longer now must say why."""
    if line not in _warned:
        _warned.add(line)
        _log.warning("%s", line)


@contextmanager
def _captured(stream: Any) -> Iterator[Callable[[], Any]]:
    """What is submitted to ``stream`` inside is captured; gives what returns the graph afterwards."""
    made: list[Any] = []
    stream.begin_capture()
    try:
        yield lambda: made[0]
    except BaseException:
        try:
            stream.end_capture()  # the stream must leave its capture whatever has become of that
        except RuntimeError as error:
            _log.debug("the capture ended with %s", error)
        raise
    made.append(stream.end_capture())


def _page_locked(entries: int) -> np.ndarray:
    """float64 [entries] in memory that GPUs copy from and to by themselves."""
    memory = cupy.cuda.alloc_pinned_memory(max(entries, 1) * _DOUBLE)
    return np.frombuffer(memory, np.float64, entries)


def copied(target: int, source: int, size: int, kind: int) -> None:
    """Submit a copy to the current stream."""
    if size:
        cupy.cuda.runtime.memcpyAsync(target, source, size, kind, cupy.cuda.get_current_stream().ptr)
