"""Launches that do not wait for those before them on a GPU: on a stream of their own, or because the kernels say so."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import cupy as cp
import numpy as np

#: Kernel, grid, block, arguments.
Launch = tuple[Callable[..., None], tuple[int, ...], tuple[int, ...], tuple[Any, ...]]
#: Lower is more urgent, and CUDA takes the most urgent there is.
_URGENT = -5
#: C types of the numbers that kernels are passed.
_KINDS = {"i4": ctypes.c_int32, "i8": ctypes.c_int64, "u8": ctypes.c_uint64, "f4": ctypes.c_float}
#: Least compute capability at which a launch can depend on the blocks of the one before it.
DEPENDENTS = 90


class Packed:
    """A launch whose arguments are packed once: CuPy would do it every time, and longer than a small kernel takes.

    Args:
        launch: numbers are passed as they are now; arrays stay where they are.
        early: it starts as soon as all blocks of the launch before it on its stream have let it (dependents.cuh), which
            CUDA calls programmatic dependent launch; CuPy has none.
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
        """To the current stream; as part of a graph that is captured from it, if one is.

        Raises:
            RuntimeError: CUDA refuses.
        """
        self._config.hStream = cp.cuda.get_current_stream().ptr
        (error,) = self._driver.cuLaunchKernelEx(self._config, self._function, self._addresses.ctypes.data, 0)
        if error != self._driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"cuLaunchKernelEx: {error.name}")


def _passed(argument: Any) -> Any:
    """A kernel's argument as C has it: a number of NumPy's, or an array's address."""
    if isinstance(argument, np.generic):
        return _KINDS[argument.dtype.str[1:]](argument.item())
    return ctypes.c_void_p(argument.data.ptr)


class Fork:
    """What goes on on two streams until both are done.

    Args:
        aside: the branch of a more urgent stream, whose blocks come before those of the other that wait for a place;
            without any, no stream but the current one is used.
        beside: the other branch.
        last: launched when both are over.

    Each is called to go to the current stream.
    """

    def __init__(
        self, aside: Sequence[Callable[[], None]], beside: Sequence[Callable[[], None]],
        last: Sequence[Callable[[], None]],
    ) -> None:  # fmt: skip
        self._aside, self._beside, self._last = aside, beside, last

    def submit(self, urgent: Any) -> None:
        """To the current stream and, ``aside``, the ``urgent`` one; to a graph that is captured from it, if one is."""
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
    """A stream of the current device whose blocks come first."""
    return cp.cuda.Stream(non_blocking=True, priority=_URGENT)


def _submit(launches: Sequence[Callable[[], None]]) -> None:
    for launch in launches:
        launch()
