"""Limits a PE's waits for its GPU and for NVSHMEM, and names the PE that delays a stream or a blocking call.

Two threads watch: a Python thread, and a native one (``Deadman``) for calls that block the interpreter.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cupy

from mgg.backend.api import name_pes
from mgg.backend.gpu.graphs import Recorder
from mgg.backend.mpi import abort
from mgg.backend.watchdog import LAST_WORD, LONGEST_LOOK, Deadman, RankStatus, awake, poll
from mgg.errors import PeError

_AHEAD = 16  # barriers and signals that the host may submit ahead of the GPU, well below a launch queue's length
_GRACE = 5.0  # seconds that the host has to raise its PeError before the watching thread ends the job


@dataclass(frozen=True)
class _Mark:
    """A point of a stream after work that waits for other PEs; ``number`` is its rendezvous if it waits for all PEs."""

    event: Any
    what: str
    number: int | None

    @property
    def awaited(self) -> str:
        return self.what if self.number is None else f"the others at {self.what}"


class StreamWatch:
    """Checks that streams pass their marks, and that the host returns from calls that may block.

    Args:
        device: the PE's GPU.
        rank: the PE.
        rank_status: the status of the host's ranks.
        timeout: seconds that a stream may wait at one mark, or the host in one call.
        recorder: the recorder of the PE's CUDA graphs, which must not contain watched work.
    """

    def __init__(self, device: int, rank: int, rank_status: RankStatus, timeout: float, recorder: Recorder):
        self._device, self._rank, self._rank_status, self._timeout = device, rank, rank_status, timeout
        self._recorder = recorder
        self._marks: deque[_Mark] = deque()
        self._call: tuple[str, float, float] | None = None  # the host's blocking call: what, start, limit
        self._moved = awake()
        self._lock = threading.Lock()
        self._deadman = Deadman(timeout, PeError.exit_code, "", min(1.0, timeout / 10))
        self._deadman.rest()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def mark(self, what: str, number: int | None = None) -> Any:
        """Mark this point of the current stream with an event; waits if the stream is far behind."""
        self._recorder.refuse(what)
        event = cupy.cuda.Event(disable_timing=True)
        event.record(cupy.cuda.get_current_stream())
        with self._lock:
            if not self._marks:
                self._moved = awake()
            self._marks.append(_Mark(event, what, number))
            oldest = self._marks[0] if len(self._marks) > _AHEAD else None
        if oldest is not None:
            self.wait(oldest.event)
        return event

    @contextmanager
    def blocked(self, what: str, least: float = 0.0) -> Iterator[None]:
        """End the job if the host stays in the block too long, even if the block holds the interpreter.

        Args:
            what: what the block waits for, in words, for the message.
            least: minimum limit in seconds, for blocks that may take longer than other waits.
        """
        self._recorder.refuse(what)
        limit = max(self._timeout, least)
        self._call = (what, awake(), limit)
        # The native thread acts later than the Python thread, which knows more and ends all PEs.
        self._deadman.limit(limit + LAST_WORD)
        self._deadman.say(f"mgg: {self._waited(what, limit)}: a native call does not return")
        self._deadman.alive()
        try:
            yield
        finally:
            self._deadman.rest()
            self._call = None

    def wait(self, event: Any) -> None:
        """Wait until the stream has passed ``event``; raises PeError after the time limit."""

        def look(waited: float) -> None:
            if min(waited, self._standstill()) > self._timeout:
                raise PeError(self._blame())

        poll(lambda: event.done, look)
        self._standstill()

    def limit(self, seconds: float) -> None:
        """Change the time limit."""
        self._timeout = seconds

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._thread.join()
        self._deadman.close()

    def _standstill(self) -> float:
        """Drop the marks that the stream has passed; return the awake seconds since it passed the last one."""
        with self._lock:
            while self._marks and self._marks[0].event.done:
                self._marks.popleft()
                self._moved = awake()
            return awake() - self._moved

    def _blame(self) -> str:
        with self._lock:  # the host thread and the watching thread both drop marks
            mark = self._marks[0] if self._marks else None
        if mark is None:
            mine = name_pes([self._rank], self._rank_status.places())
            return f"{mine}: its GPU did not finish within {self._timeout:g} s"
        late = [] if mark.number is None else self._rank_status.away(mark.number)
        if late:
            return f"{name_pes(late, self._rank_status.places())} did not reach {mark.what} within {self._timeout:g} s"
        return self._waited(mark.awaited, self._timeout)

    def _waited(self, what: str, seconds: float) -> str:
        return f"PE {self._rank}: waited {seconds:g} s for {what}"

    def _stuck(self) -> str | None:
        """Return the message that the host cannot raise itself because it is blocked; None if it is not."""
        call = self._call
        if self._standstill() > self._timeout + _GRACE and self._marks:
            return self._blame()
        if call is not None:
            what, since, limit = call
            if awake() - since > limit + _GRACE:
                return self._waited(what, limit)
        return None

    def _run(self) -> None:
        cupy.cuda.Device(self._device).use()
        while not self._closed.wait(min(LONGEST_LOOK / 2, self._timeout / 10)):
            try:
                stuck = self._stuck()
            except cupy.cuda.runtime.CUDARuntimeError:
                return  # a kernel failed: the host gets the same error from its next call
            if stuck is not None:
                # Not sys.stderr, which is redirected while NVSHMEM starts. One write, as other ranks may print, too.
                print(f"mgg: {stuck}\n", end="", file=sys.__stderr__, flush=True)
                abort(PeError.exit_code)
