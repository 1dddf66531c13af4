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


class Dependent:
    """A kernel that starts as soon as all blocks of the launch before it on its stream have let it (dependents.cuh).

    CUDA calls it programmatic dependent launch. CuPy has none; its kernels are launched by the driver's own call.
    """

    def __init__(self, kernel: Any) -> None:
        self._function = kernel.kernel.ptr

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        """Launch it on the current stream; as part of a graph that is captured from it, if one is.

        Raises:
            RuntimeError: CUDA refuses.
        """
        from cuda.bindings import driver

        early = driver.CUlaunchAttribute()
        early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        early.value.programmaticStreamSerializationAllowed = 1
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = (*grid, 1, 1)[:3]
        config.blockDimX, config.blockDimY, config.blockDimZ = (*block, 1, 1)[:3]
        config.hStream = cp.cuda.get_current_stream().ptr
        config.attrs, config.numAttrs = [early], 1
        values, kinds = zip(*map(_passed, arguments), strict=True) if arguments else ((), ())
        (error,) = driver.cuLaunchKernelEx(config, self._function, (values, kinds), 0)
        if error != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"cuLaunchKernelEx: {error.name}")


def _passed(argument: Any) -> tuple[Any, Any]:
    """Value and C type of a kernel's argument: a number of NumPy's, or an array's address."""
    if isinstance(argument, np.generic):
        return argument.item(), _KINDS[argument.dtype.str[1:]]
    return argument.data.ptr, ctypes.c_void_p


class Fork:
    """What goes on on two streams until both are done.

    Args:
        aside: the branch of a more urgent stream, whose blocks come before those of the other that wait for a place;
            without any, no stream but the current one is used.
        beside: the other branch.
        last: launched when both are over.
    """

    def __init__(self, aside: Sequence[Launch], beside: Sequence[Launch], last: Sequence[Launch]) -> None:
        self._aside, self._beside, self._last = aside, beside, last

    def submit(self, urgent: Any) -> None:
        """To the current stream and, ``aside``, the ``urgent`` one; to a graph that is captured from it, if one is."""
        stream = cp.cuda.get_current_stream()
        if self._aside:
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


def _submit(launches: Sequence[Launch]) -> None:
    for kernel, grid, block, arguments in launches:
        kernel(grid, block, arguments)
