"""Watches the ranks of a host, and ends the job, naming the rank, if one stands still or makes no progress."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mgg.backend.watchdog.deadman import Deadman
from mgg.backend.watchdog.rank_status import Arrivals
from mgg.backend.watchdog.stalls import LAST_WORD, Stalls, no_further, seized, ticks_of, unmoved
from mgg.errors import PeError

#: Seconds in which a stalled PE that is not stopped can report it itself before other PEs do.
OWN_WORD = 3.0
_GPU_WORD = 0.5  # extra seconds in which a working PE can find itself that its GPU does not finish


class Watch:
    """A thread that writes this PE's processor time, and finds PEs of this host that neither work nor wait.

    Args:
        arrivals: the status of the host's ranks.
        rank: this PE, whose thread makes the watch.
        seconds: seconds that a PE may stand still.
        end: prints a line and ends the job.

    Attributes:
        work: seconds that this PE may work without progress; None: no limit.
    """

    def __init__(self, arrivals: Arrivals, rank: int, seconds: float, end: Callable[[str], None]):
        self.seconds, self._end = seconds, end
        self._arrivals, self._rank, self._watched = arrivals, rank, threading.get_native_id()
        self.work: float | None = None
        self._stalls, self._progress = Stalls(), Stalls()
        self._period = min(1.0, seconds / 10)
        # Made here, not in the new thread: the watched thread could block Python before that thread runs.
        self._deadman = Deadman(
            seconds + LAST_WORD, PeError.exit_code, self._last_word(arrivals.places().get(rank, "")), self._period
        )
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def at(self, place: str) -> None:
        """Set this PE's place in the message that the native thread prints."""
        self._deadman.say(self._last_word(place))

    def others(self) -> list[int]:
        """Return the other PEs of this host that stand still and have not reported it themselves."""
        return [pe for pe in self._stalls.longer_than(self.seconds + OWN_WORD) if pe != self._rank]

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._thread.join()
        self._arrivals.work(0)

    def _run(self) -> None:
        period, mine = self._period, [self._rank]
        while not self._closed.wait(period):
            self._deadman.alive()
            self._arrivals.work(max(1, ticks_of(self._watched)))
            signs = self._arrivals.signs()
            self._stalls.look({pe: sign for pe, sign in signs.items() if sign[3] >= 0 and sign[4] > 0}, period)
            self._progress.look({self._rank: signs[self._rank][:4]}, period)
            # The PE's own thread is blocked or working, and cannot report it.
            work = self.work
            if self._rank in self._stalls.longer_than(self.seconds):
                self._end(unmoved(mine, self._arrivals.places(), self.seconds))
            elif work is not None and self._progress.longer_than(work + _GPU_WORD):
                self._end(no_further(mine, self._arrivals.places(), work))
        self._deadman.close()

    def _last_word(self, place: str) -> str:
        return f"mgg: {seized([self._rank], {self._rank: place}, self.seconds)}"
