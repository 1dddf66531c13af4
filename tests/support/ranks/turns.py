"""PEs as threads that work one at a time: each until it waits for the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from mgg.backend import simulated


class Turns:
    """A context manager in which one thread at a time works.

    Args:
        idle: called before another thread has its turn.
    """

    def __init__(self, idle: Callable[[], Any]):
        self._idle = idle
        self._turn = threading.Lock()
        self._holder: int | None = None
        for waiting, name in ((simulated._Meeting, "wait"), (simulated.SimulatedWorld, "wait_signal")):
            setattr(waiting, name, self._released(getattr(waiting, name)))

    def __enter__(self) -> None:
        self._turn.acquire()
        self._holder = threading.get_ident()

    def __exit__(self, *failure: object) -> None:
        self._holder = None
        try:
            self._idle()
        finally:
            self._turn.release()

    def _released(self, wait: Callable[..., None]) -> Callable[..., None]:
        """``wait``, which releases the turn meanwhile."""

        def waiting(*arguments: Any) -> None:
            if self._holder != threading.get_ident():
                return wait(*arguments)
            self.__exit__()
            try:
                return wait(*arguments)
            finally:
                self.__enter__()

        return waiting
