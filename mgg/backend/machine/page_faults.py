"""Counts GPU page faults of unified memory and the bytes that they move, through CUPTI (package cupti-python).

It uses CUPTI's counters of unified memory only. They come from CUDA's driver, so they need neither root nor permission
for hardware counters. They count all GPUs and threads of the process together.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mgg.errors import MachineError

_BUFFER = 8 * 2**20  # bytes, as in NVIDIA's samples
_PROBED = 2**20  # bytes of managed memory for the self-test: enough for whole pages of the host and of the GPU
_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: also flush buffers that are not full


class Faults(NamedTuple):
    """The counts of a ``FaultCounter``.

    Attributes:
        faults: page faults of GPUs; like Nsight Systems, CUPTI counts a group of faults on one page once.
        seconds: sum of the driver's times per page fault; the times may overlap.
        migrated: bytes of the pages that moved from host to GPU, back, and between GPUs.
    """

    faults: int
    seconds: float
    migrated: int


class FaultCounter:
    """Counts from its creation until ``stop``; all GPUs must be idle at both moments. At most one per process.

    Raises:
        MachineError: cupti-python is missing, or CUPTI cannot count here; the message says why.
    """

    def __init__(self) -> None:
        self._cupti = _library()
        kinds = self._cupti.ActivityUnifiedMemoryCounterKind
        self._faults = int(kinds.GPU_PAGE_FAULT)
        self._moves = {int(kinds.BYTES_TRANSFER_HTOD), int(kinds.BYTES_TRANSFER_DTOH), int(kinds.BYTES_TRANSFER_DTOD)}
        self._counted, self._migrated, self._nanoseconds = 0, 0, 0
        self._kind = self._cupti.ActivityKind.UNIFIED_MEMORY_COUNTER
        wanted = [self._faults, *sorted(self._moves)]
        config = self._cupti.ActivityUnifiedMemoryCounterConfig(len(wanted))
        config.scope = int(self._cupti.ActivityUnifiedMemoryCounterScope.PROCESS_ALL_DEVICES)
        config.device_id, config.enable = 0, 1
        for place, kind in enumerate(wanted):
            config[place].kind = kind
        # CUPTI keeps neither callback alive.
        self._callbacks = (lambda: (_BUFFER, 0), self._add)
        try:
            self._cupti.activity_register_callbacks(*self._callbacks)
            self._cupti.activity_configure_unified_memory_counter(config.ptr, len(wanted))
            self._cupti.activity_enable(self._kind)
        except (self._cupti.cuptiError, RuntimeError) as error:
            raise _refused(error) from None

    def _add(self, activities: list[Any]) -> None:
        for each in activities:
            if each.kind != self._kind:
                continue
            if each.counter_kind == self._faults:
                self._counted += each.value
                self._nanoseconds += each.end - each.start
            elif each.counter_kind in self._moves:
                self._migrated += each.value

    def stop(self) -> Faults:
        """Stop counting and return the counts.

        Raises:
            MachineError: CUPTI fails, or has lost records, so that the counts are unknown.
        """
        dropped = ctypes.c_size_t()
        try:
            self._cupti.activity_flush_all(_FORCED)
            self._cupti.activity_disable(self._kind)
            self._cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(dropped))
        except (self._cupti.cuptiError, RuntimeError) as error:
            raise _refused(error) from None
        if dropped.value:
            raise MachineError(f"CUPTI lost {dropped.value} records of page faults: take fewer columns or iterations")
        return Faults(self._counted, self._nanoseconds * 1e-9, self._migrated)


def begin() -> FaultCounter:
    """Start a counter.

    Raises:
        MachineError: see ``FaultCounter``; or CUPTI starts but counts nothing, as in some virtual machines.
    """
    if not _delivers():
        raise MachineError("CUPTI delivered no records of page faults here")
    return FaultCounter()


@cache
def _delivers() -> bool:
    """Return whether CUPTI counts deliberate page faults; runs once per process, in the order of NVIDIA's samples."""
    trial = FaultCounter()
    make_faults()
    return trial.stop().faults > 0


def make_faults() -> None:
    """Cause page faults: the GPU reads managed memory that the host has written."""
    import cupy

    memory = cupy.cuda.malloc_managed(_PROBED)
    values = cupy.ndarray((_PROBED // 4,), np.float32, memory)
    np.ctypeslib.as_array((ctypes.c_float * values.size).from_address(memory.ptr))[:] = 1
    values.sum(0, np.float32)
    cupy.cuda.get_current_stream().synchronize()


def _library() -> Any:
    try:
        from cupti import cupti
    except (ImportError, RuntimeError, OSError) as error:
        raise MachineError(
            f"page faults are counted by cupti-python ({' '.join(str(error).split())}): pip install 'mgg[counters]'"
        ) from None
    return cupti


def _refused(error: Exception) -> MachineError:
    return MachineError(f"CUPTI counts no page faults here: {' '.join(str(error).split())}")
