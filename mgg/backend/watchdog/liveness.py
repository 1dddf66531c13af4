"""Finds ranks of other hosts that do not answer messages; shared memory shows only ranks of this host.

A rank that waits too long asks the others. Ranks that wait as well receive the question and answer. A rank that is
stopped or working does not answer.
"""

from __future__ import annotations

import time

import numpy as np

from mgg.backend.mpi_start import MPI

_TAG = 9
_ASK, _ANSWER = 1, 2
#: Seconds of a wait before the first check for questions, and between two checks.
_FIRST, _BETWEEN = 0.5, 0.1


class RollCall:
    """This rank's part in questions and answers between hosts.

    Args:
        comm: the job's communicator.
        others: ranks of other hosts.
    """

    def __init__(self, comm: MPI.Intracomm, others: list[int]) -> None:
        self._comm, self._others = comm, others
        self._looked = 0.0
        self._asked: float | None = None
        self._answered: set[int] = set()
        self._sends: list[MPI.Request] = []

    def wait(self, waited: float, limit: float) -> None:
        """Answer other ranks, and ask them once the wait lasts ``limit`` seconds; every wait calls this repeatedly."""
        now = time.monotonic()
        if not self._others or waited < _FIRST or now - self._looked < _BETWEEN:
            return
        self._looked = now
        self._listen()
        if waited < limit:
            self._asked = None  # a new wait has begun
        elif self._asked is None:
            self._asked, self._answered = now, set()
            for pe in self._others:
                self._send(pe, _ASK)

    def missing(self) -> list[int]:
        """Return the ranks of other hosts that were asked and have not answered."""
        self._listen()
        return [] if self._asked is None else [pe for pe in self._others if pe not in self._answered]

    def _listen(self) -> None:
        status, word = MPI.Status(), np.empty(1, np.int8)
        while self._comm.Iprobe(MPI.ANY_SOURCE, _TAG, status):
            source = status.Get_source()
            self._comm.Recv(word, source, _TAG)
            self._answered.add(source)  # a rank that asks is waiting as well
            if word[0] == _ASK:
                self._send(source, _ANSWER)
        self._sends = [each for each in self._sends if not each.Test()]

    def _send(self, pe: int, what: int) -> None:
        self._sends.append(self._comm.Isend(np.array([what], np.int8), pe, _TAG))
