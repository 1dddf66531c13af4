"""A native thread that ends the process if a native call blocks the interpreter, or if the launcher has ended.

Python threads, watching ones included, run only while they hold the interpreter. This thread is native code that sleeps
and counts; it does not count while the process is stopped.
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

#: Indices of the words in the memory that both threads share.
_BEATS, _CLOSED, _PERIOD, _LOOKS, _TEXT, _LENGTH, _CODE, _RESTS, _OTHER, _OTHER_AT, _GONE_TEXT, _GONE_LENGTH = range(12)
_WORDS = 12
_LONGEST_LINE = 512
_STANDARD_ERROR = 2
_MICROSECONDS = 1_000_000
_READABLE = 1  # POLLIN
_FORWARD = 999_999  # microseconds that a launcher gets to read the line


class Deadman:
    """Ends this process unless ``alive`` is called regularly; ``rest`` pauses the count.

    Args:
        seconds: time without a call of ``alive`` after which the process ends.
        exit_code: exit code of the process.
        line: line for standard error when the time is over.
        period: seconds between two checks.
        other: id of a process whose end also ends this one, until ``close``; None: no such process. Kernels before
            Linux 5.3 cannot watch it.
        gone: line for standard error when ``other`` has ended.
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
        """Set the line for standard error."""
        self._board[_LENGTH] = _put(self._text, line)

    def limit(self, seconds: float) -> None:
        """Set the seconds without a call of ``alive`` after which this process ends."""
        self._board[_LOOKS] = max(1, round(seconds / self._period))

    def alive(self) -> None:
        """Report that the interpreter runs, and restart the count."""
        self._board[_BEATS] += 1
        self._board[_RESTS] = 0

    def rest(self) -> None:
        """Pause the count until ``alive`` is called."""
        self._board[_RESTS] = 1

    def close(self) -> None:
        """Stop for good, without waiting for the thread to end."""
        self._board[_CLOSED] = 1


def _put(buffer: Any, line: str) -> int:
    text = f"{line}\n".encode()[:_LONGEST_LINE]
    ctypes.memmove(buffer, text, len(text))
    return len(text)


def _polled(process: int | None) -> int:
    """Return a pollfd of poll(2) that shows if a process has ended: its descriptor or -1, POLLIN, no events yet."""
    descriptor = -1
    with suppress(OSError, AttributeError):  # AttributeError: this Python was built for older systems
        descriptor = -1 if process is None else os.pidfd_open(process)
    return (descriptor & 0xFFFFFFFF) | (_READABLE << 32)


def _keep(*memory: Any) -> None:
    """Keep memory alive until the process ends: the thread reads it even while the interpreter shuts down."""
    for each in memory:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


_making = threading.Lock()
#: Type checkers do not know the calls that make numba's types.
_types: Any = types
_usleep = _types.ExternalFunction("usleep", _types.int32(_types.uint32))
_write = _types.ExternalFunction("write", _types.intp(_types.int32, _types.intp, _types.intp))
_end = _types.ExternalFunction("_exit", _types.void(_types.int32))
_poll = _types.ExternalFunction("poll", _types.int32(_types.intp, _types.uint64, _types.int32))


def _wait(memory: Any) -> int:
    """The thread's function: sleep, count, and end the process if the limit is over or the other process has ended."""
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
    """Return the thread's function, compiled once per machine."""
    with _making:  # PEs may be threads
        return _compiled()
