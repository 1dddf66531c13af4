"""The port of a GPU PE in an emulated network: the stream waits by the GPU's own timer."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from mgg.kernel.compile import build_of

#: The build of the port's kernels, which do not depend on the width of ids.
BUILD = build_of("port", 32)
_WARP = 32


class DevicePort:
    """A ``Port`` that the messages of several streams share.

    Args:
        operators: the operators of the PE's GPU.

    Raises:
        MachineError: the kernels cannot be compiled.
    """

    def __init__(self, operators: Any) -> None:
        self._take, self._settle = (operators.kernel(BUILD, name) for name in ("port_take", "port_settle"))
        # Times in nanoseconds: the port is free, the last message arrives, the last message submitted aside arrives.
        self._state = cupy.zeros(3, np.uint64)

    def take(self, seconds: float, latency: float, aside: bool = False) -> None:
        """Send a message in the order of the current stream, which does not wait."""
        nanoseconds = (np.uint64(round(each * 1e9)) for each in (seconds, latency))
        self._take((1,), (_WARP,), (self._state, np.int32(1 + aside), *nanoseconds))

    def wait_for_arrivals(self, aside: bool = False) -> None:
        """Make the current stream wait for the last message."""
        self._settle((1,), (_WARP,), (self._state, np.int32(1 + aside)))
