"""The order in which a stand-in's device works: at once, or later, where what it is told is captured into a graph."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

Action = Callable[[], Any]


def submit(action: Action) -> None:
    """Have the device do ``action``: now, or at every launch of the graph that is being captured."""
    if _thread.captured is None:
        action()
    else:
        _thread.captured.append(action)


def capturing() -> bool:
    """Whether what this thread submits goes into a graph."""
    return _thread.captured is not None


def begin_capture() -> None:
    """From here on nothing is done."""
    assert _thread.captured is None
    _thread.captured = []


def end_capture() -> list[Action]:
    """What was submitted meanwhile."""
    assert _thread.captured is not None
    actions, _thread.captured = _thread.captured, None
    return actions


class Block:
    """Memory of a pool, which has it back when nobody has this any more."""

    def __init__(self, pool: Pool, buffer: np.ndarray) -> None:
        self.buffer, self._pool = buffer, pool

    def __del__(self) -> None:
        self._pool.free[self.buffer.size].append(self.buffer)


class Pool:
    """Memory that goes from array to array, as CuPy's: what a graph has freed, the next array of the graph gets."""

    def __init__(self, allocator: Callable[[int], Any] | None = None) -> None:
        self.free: dict[int, list[np.ndarray]] = defaultdict(list)
        self._allocator, self._total = allocator, 0

    def malloc(self, size: int) -> Block:
        """A block; it holds what it held."""
        size = -(-max(size, 1) // 512) * 512
        free = self.free[size]
        if free:
            return Block(self, free.pop())
        self._total += size
        return Block(self, np.empty(size, np.uint8) if self._allocator is None else self._allocator(size).mem.owner)

    def total_bytes(self) -> int:
        """Of all blocks, in use or not."""
        return self._total

    def free_all_blocks(self) -> None:
        """Garbage for whoever still reads what nobody has."""
        for size, buffers in self.free.items():
            for buffer in buffers:
                buffer.fill(0xFF)
            if self is not _thread.pool:  # whoever asks next gets it
                self._total -= size * len(buffers)
                _thread.pool.free[size].extend(buffers)
                buffers.clear()


class _Thread(threading.local):
    def __init__(self) -> None:
        self.captured: list[Action] | None = None
        self.pool = Pool()
        self.allocator = self.pool.malloc


_thread = _Thread()


@contextmanager
def using_allocator(malloc: Callable[[int], Block]) -> Iterator[None]:
    """This thread's arrays come from ``malloc``."""
    before, _thread.allocator = _thread.allocator, malloc
    try:
        yield
    finally:
        _thread.allocator = before


def memory(shape: Any, dtype: Any) -> tuple[np.ndarray, Block]:
    """An uninitialized array, and what keeps its memory from the next one."""
    count = int(np.prod(shape))
    block = _thread.allocator(count * np.dtype(dtype).itemsize)
    return block.buffer.view(np.uint8)[: count * np.dtype(dtype).itemsize].view(dtype).reshape(shape), block
