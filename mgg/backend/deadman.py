"""A thread outside of Python that ends a process whose interpreter stands still: a native call holds it for ever.

Python's threads, those that watch others included, run only while they hold the interpreter. This one is native code
that sleeps and counts; while the process is stopped, it does not count either.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types

from mgg.errors import MachineError

#: Words of the memory that both sides share.
_BEATS, _CLOSED, _PERIOD, _LOOKS, _TEXT, _LENGTH, _CODE, _DONE, _RESTS = range(9)
_WORDS = 9
_LONGEST_LINE = 512
_STANDARD_ERROR = 2
_MICROSECONDS = 1_000_000
_FORWARD = 999_999  # microseconds that a launcher gets to read the line


class Deadman:
    """Ends this process unless ``alive`` is called again and again, or ``rest`` was called last.

    Args:
        seconds: without a call after which it ends.
        exit_code: with which.
        line: what standard error gets then.
        period: seconds between its looks.
    """

    def __init__(self, seconds: float, exit_code: int, line: str, period: float = 1.0) -> None:
        self._text = ctypes.create_string_buffer(_LONGEST_LINE)
        self._board = np.zeros(_WORDS, np.int64)
        self._period = period
        self._board[_PERIOD:_DONE] = int(period * _MICROSECONDS), 0, ctypes.addressof(self._text), 0, exit_code
        self.limit(seconds)
        self.say(line)
        _keep(self._board, self._text)
        library, thread = ctypes.CDLL(None), ctypes.c_ulong()
        start, board = ctypes.c_void_p(_waiting().address), ctypes.c_void_p(self._board.ctypes.data)
        if library.pthread_create(ctypes.byref(thread), None, start, board):
            raise MachineError("no thread can be started: raise the limit of processes (ulimit -u)")
        library.pthread_detach(thread)

    def say(self, line: str) -> None:
        """What standard error gets from now on."""
        text = f"{line}\n".encode()[:_LONGEST_LINE]
        ctypes.memmove(self._text, text, len(text))
        self._board[_LENGTH] = len(text)

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


_making = threading.Lock()
_kept: list[tuple[np.ndarray, Any]] = []


def _keep(board: np.ndarray, text: Any) -> None:
    """Threads read memory until they are done, whoever has closed them."""
    with _making:
        _kept[:] = [each for each in _kept if not each[0][_DONE]]
        _kept.append((board, text))


#: numba's types are made by calls that type checkers do not know.
_types: Any = types
_usleep = _types.ExternalFunction("usleep", _types.int32(_types.uint32))
_write = _types.ExternalFunction("write", _types.intp(_types.int32, _types.intp, _types.intp))
_end = _types.ExternalFunction("_exit", _types.void(_types.int32))


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
        if still > board[_LOOKS] and board[_CLOSED] == 0:
            _write(np.int32(_STANDARD_ERROR), board[_TEXT], board[_LENGTH])
            _usleep(np.uint32(_FORWARD))
            _end(np.int32(board[_CODE]))
    board[_DONE] = 1
    return 0


@cache
def _compiled() -> Any:
    return numba.cfunc(_types.intp(_types.CPointer(_types.int64)), cache=True)(_wait)


def _waiting() -> Any:
    """The thread's function, compiled once a machine."""
    with _making:  # PEs may be threads
        return _compiled()
