"""A world in which what a PE submits aside happens as late as it may: when the PE waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Operators that multiply.
PRODUCTS = ("spmm_rows", "spmm_columns")


class LateWorld:
    """``world``, of a simulated job, with a second queue that stands still until somebody waits for its work.

    Attributes:
        log: what the PE submitted, in that order: ``barrier``, ``product`` (once for several in a row), ``aside`` for
            each block of work aside, ``wait`` for each wait for one.
    """

    def __init__(self, world: Any) -> None:
        self._world, self._inside = world, False
        self._queue: list[Callable[[], Any]] = []
        self._done = 0
        self.log: list[str] = []
        self.operators = _LateOperators(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    @property
    def pending(self) -> int:
        """Actions that nobody has waited for."""
        return len(self._queue)

    @contextmanager
    def side_stream(self) -> Iterator[_LateWork]:
        self.log.append("aside")
        work = _LateWork(self)
        self._inside = True
        yield work
        self._inside = False
        work.last = self._done + len(self._queue)

    def submit(self, act: Callable[..., Any], *given: Any, **options: Any) -> Any:
        """Do it now, or, inside a block of work aside, later."""
        if not self._inside:
            return act(*given, **options)
        self._queue.append(lambda: act(*given, **options))
        return None

    def catch_up(self, last: int) -> None:
        """Do the first ``last`` actions of the queue, and no more: work aside is done in the order of its blocks."""
        while self._done < last:
            self._queue.pop(0)()
            self._done += 1

    def note_product(self) -> None:
        if not self._inside and self.log[-1:] != ["product"]:
            self.log.append("product")

    def barrier(self) -> None:
        self.log.append("barrier")
        self.submit(self._world.barrier)

    def get_rows(self, *given: Any, **options: Any) -> None:
        self.submit(self._world.get_rows, *given, **options)

    def put_rows(self, *given: Any, **options: Any) -> None:
        self.submit(self._world.put_rows, *given, **options)

    def signal(self, pe: int) -> None:
        self.submit(self._world.signal, pe)

    def broadcast(self, *given: Any) -> None:
        self.submit(self._world.broadcast, *given)


class _LateWork:
    """A block of work aside."""

    last = 0

    def __init__(self, world: LateWorld) -> None:
        self._world = world

    def wait(self) -> None:
        self._world.log.append("wait")
        self._world.catch_up(self.last)


class _LateOperators:
    def __init__(self, world: LateWorld) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._world._world.operators, name)

        def submitted(*given: Any, **options: Any) -> Any:
            if name in PRODUCTS:
                self._world.note_product()
            done = self._world.submit(act, *given, **options)
            return _LateKernel(self._world, done) if name.endswith("_kernel") else done

        return submitted


class _LateKernel:
    """A GPU's launch that multiplies."""

    def __init__(self, world: LateWorld, kernel: Callable[..., None]) -> None:
        self._world, self._kernel = world, kernel

    def __call__(self, *given: Any, **options: Any) -> None:
        self._world.note_product()
        self._world.submit(self._kernel, *given, **options)
