"""The port of a PE with a GPU in a network that is emulated: the stream waits, by the GPU's own timer."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from mgg.kernel.compile import build_of

#: Of the kernels, whatever the width of ids.
BUILD = build_of("port", 32)
_WARP = 32


class DevicePort:
    """See ``Port``; messages of several streams share it.

    Args:
        operators: of the PE's GPU.

    Raises:
        MachineError: the kernels cannot be compiled.
    """

    def __init__(self, operators: Any) -> None:
        self._take, self._settle = (operators.kernel(BUILD, name) for name in ("port_take", "port_settle"))
        # Nanoseconds: when the port is free, when the last message arrives, and the last of those that go aside.
        self._state = cupy.zeros(3, np.uint64)

    def take(self, seconds: float, latency: float, aside: bool = False) -> None:
        """In the order of the current stream, which goes on."""
        nanoseconds = (np.uint64(round(each * 1e9)) for each in (seconds, latency))
        self._take((1,), (_WARP,), (self._state, np.int32(1 + aside), *nanoseconds))

    def settle(self, aside: bool = False) -> None:
        """Let the current stream wait for the last message."""
        self._settle((1,), (_WARP,), (self._state, np.int32(1 + aside)))
