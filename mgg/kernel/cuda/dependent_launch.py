"""Launches that overlap with earlier ones on a GPU: on a separate stream, or by programmatic dependent launch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import cupy as cp
import numpy as np

#: Kernel, grid, block, arguments.
Launch = tuple[Callable[..., None], tuple[int, ...], tuple[int, ...], tuple[Any, ...]]
#: Stream priority: lower is more urgent, and CUDA clamps it to the most urgent level available.
_URGENT = -5
#: C types of numeric kernel arguments.
_KINDS = {"i4": ctypes.c_int32, "i8": ctypes.c_int64, "u8": ctypes.c_uint64, "f4": ctypes.c_float}
#: Lowest compute capability at which a launch can depend on the blocks of the previous one.
DEPENDENTS = 90


class PackedLaunch:
    """A launch with arguments packed once; CuPy would pack them each time, which takes longer than a small kernel.

    Args:
        launch: numbers keep their current values; arrays must stay where they are.
        early: start as soon as all blocks of the previous launch on the stream allow it (dependents.cuh). CUDA calls
            this programmatic dependent launch; CuPy does not support it.
    """

    def __init__(self, launch: Launch, *, early: bool = False) -> None:
        from cuda.bindings import driver

        kernel, grid, block, self._arguments = launch
        self._driver, self._function = driver, kernel.kernel.ptr  # type: ignore[attr-defined]
        self._values = [_passed(argument) for argument in self._arguments]
        self._addresses = np.array([ctypes.addressof(value) for value in self._values], np.uint64)
        self._config = driver.CUlaunchConfig()
        self._config.gridDimX, self._config.gridDimY, self._config.gridDimZ = (*grid, 1, 1)[:3]
        self._config.blockDimX, self._config.blockDimY, self._config.blockDimZ = (*block, 1, 1)[:3]
        if early:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            self._config.attrs, self._config.numAttrs = [attribute], 1

    def __call__(self) -> None:
        """Launch on the current stream, or add to the graph that is captured from it.

        Raises:
            RuntimeError: CUDA refuses the launch.
        """
        self._config.hStream = cp.cuda.get_current_stream().ptr
        (error,) = self._driver.cuLaunchKernelEx(self._config, self._function, self._addresses.ctypes.data, 0)
        if error != self._driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"cuLaunchKernelEx: {error.name}")


def _passed(argument: Any) -> Any:
    """Return a kernel argument as a C value: a NumPy number, or the address of an array."""
    if isinstance(argument, np.generic):
        return _KINDS[argument.dtype.str[1:]](argument.item())
    return ctypes.c_void_p(argument.data.ptr)


class Fork:
    """Launches on two streams that run concurrently, and launches that follow both.

    Args:
        aside: launches on a more urgent stream, whose blocks take precedence over waiting blocks of the other branch;
            if empty, only the current stream is used.
        beside: launches of the other branch.
        last: launches after both branches.

    Each callable launches on the current stream.
    """

    def __init__(
        self, aside: Sequence[Callable[[], None]], beside: Sequence[Callable[[], None]],
        last: Sequence[Callable[[], None]],
    ) -> None:  # fmt: skip
        self._aside, self._beside, self._last = aside, beside, last

    def submit(self, urgent: Any) -> None:
        """Launch on the current stream and ``aside`` on ``urgent``, or add to the graph captured from the stream."""
        if self._aside:
            stream = cp.cuda.get_current_stream()
            before, after = (cp.cuda.Event(disable_timing=True) for _ in range(2))
            before.record(stream)
            with urgent:
                urgent.wait_event(before)
                _submit(self._aside)
                after.record(urgent)
        _submit(self._beside)
        if self._aside:
            stream.wait_event(after)
        _submit(self._last)


def urgent_stream() -> Any:
    """Return a stream of the current device whose blocks take precedence."""
    return cp.cuda.Stream(non_blocking=True, priority=_URGENT)


def _submit(launches: Sequence[Callable[[], None]]) -> None:
    for launch in launches:
        launch()
