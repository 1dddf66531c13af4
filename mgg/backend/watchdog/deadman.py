"""A thread outside of Python that ends a process whose interpreter stands still: a native call holds it for ever.
Also one whose launcher has ended, whatever it does.

Python's threads, those that watch others included, run only while they hold the interpreter. This one is native code
that sleeps and counts; while the process is stopped, it does not count either.
"""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import suppress
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types

from mgg.errors import MachineError

#: Words of the memory that both sides share.
_BEATS, _CLOSED, _PERIOD, _LOOKS, _TEXT, _LENGTH, _CODE, _RESTS, _OTHER, _OTHER_AT, _GONE_TEXT, _GONE_LENGTH = range(12)
_WORDS = 12
_LONGEST_LINE = 512
_STANDARD_ERROR = 2
_MICROSECONDS = 1_000_000
_READABLE = 1  # POLLIN
_FORWARD = 999_999  # microseconds that a launcher gets to read the line


class Deadman:
    """Ends this process unless ``alive`` is called again and again, or ``rest`` was called last.

    Args:
        seconds: without a call after which it ends.
        exit_code: with which.
        line: what standard error gets then.
        period: seconds between its looks.
        other: a process with which this one ends, too, until ``close``; None where there is none. On kernels before
            Linux 5.3 it is not watched.
        gone: what standard error gets then.
    """

    def __init__(
        self, seconds: float, exit_code: int, line: str, period: float = 1.0, *, other: int | None = None,
        gone: str = "",
    ) -> None:  # fmt: skip
        self._text, gone_text = (ctypes.create_string_buffer(_LONGEST_LINE) for _ in range(2))
        self._board = np.zeros(_WORDS, np.int64)
        self._period = period
        self._board[_PERIOD] = int(period * _MICROSECONDS)
        self._board[_TEXT], self._board[_GONE_TEXT] = ctypes.addressof(self._text), ctypes.addressof(gone_text)
        self._board[_CODE], self._board[_OTHER] = exit_code, _polled(other)
        self._board[_OTHER_AT] = self._board[_OTHER:].ctypes.data
        self.limit(seconds)
        self.say(line)
        self._board[_GONE_LENGTH] = _put(gone_text, gone)
        _keep(self._board, self._text, gone_text)
        library, thread = ctypes.CDLL(None), ctypes.c_ulong()
        start, board = ctypes.c_void_p(_waiting().address), ctypes.c_void_p(self._board.ctypes.data)
        if library.pthread_create(ctypes.byref(thread), None, start, board):
            raise MachineError("no thread can be started: raise the limit of processes (ulimit -u)")
        library.pthread_detach(thread)

    def say(self, line: str) -> None:
        """What standard error gets from now on."""
        self._board[_LENGTH] = _put(self._text, line)

    def limit(self, seconds: float) -> None:
        """Change the time without a call after which this process ends."""
        self._board[_LOOKS] = max(1, round(seconds / self._period))

    def alive(self) -> None:
        """The interpreter runs; counting begins anew."""
        self._board[_BEATS] += 1
        self._board[_RESTS] = 0

    def rest(self) -> None:
        """Count no more until ``alive`` is called."""
        self._board[_RESTS] = 1

    def close(self) -> None:
        """Stop counting; nobody waits for the thread to notice."""
        self._board[_CLOSED] = 1


def _put(buffer: Any, line: str) -> int:
    text = f"{line}\n".encode()[:_LONGEST_LINE]
    ctypes.memmove(buffer, text, len(text))
    return len(text)


def _polled(process: int | None) -> int:
    """A word of poll(2), which asks whether a process has ended: its descriptor or -1, POLLIN, room for the answer."""
    descriptor = -1
    with suppress(OSError, AttributeError):  # AttributeError: this Python was built for older systems
        descriptor = -1 if process is None else os.pidfd_open(process)
    return (descriptor & 0xFFFFFFFF) | (_READABLE << 32)


def _keep(*memory: Any) -> None:
    """Threads read memory until this process ends: the interpreter must not free it before, when it ends itself."""
    for each in memory:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


_making = threading.Lock()
#: numba's types are made by calls that type checkers do not know.
_types: Any = types
_usleep = _types.ExternalFunction("usleep", _types.int32(_types.uint32))
_write = _types.ExternalFunction("write", _types.intp(_types.int32, _types.intp, _types.intp))
_end = _types.ExternalFunction("_exit", _types.void(_types.int32))
_poll = _types.ExternalFunction("poll", _types.int32(_types.intp, _types.uint64, _types.int32))


def _wait(memory: Any) -> int:
    """What the thread does."""
    board = numba.carray(memory, _WORDS)
    seen, still = board[_BEATS], 0
    while board[_CLOSED] == 0:
        _usleep(np.uint32(board[_PERIOD]))
        if board[_RESTS] == 0 and board[_BEATS] == seen:
            still += 1
        else:
            seen, still = board[_BEATS], 0
        late = still > board[_LOOKS]
        _poll(board[_OTHER_AT], np.uint64(1), np.int32(0))
        gone = board[_OTHER] >> 48 & _READABLE
        if (late or gone) and board[_CLOSED] == 0:
            text, length = (board[_TEXT], board[_LENGTH]) if late else (board[_GONE_TEXT], board[_GONE_LENGTH])
            _write(np.int32(_STANDARD_ERROR), text, length)
            _usleep(np.uint32(_FORWARD))
            _end(np.int32(board[_CODE]))
    return 0


@cache
def _compiled() -> Any:
    return numba.cfunc(_types.intp(_types.CPointer(_types.int64)), cache=True)(_wait)


def _waiting() -> Any:
    """The thread's function, compiled once a machine."""
    with _making:  # PEs may be threads
        return _compiled()
