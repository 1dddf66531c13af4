"""Launches on two streams, in graphs, and by the driver; on the stand-ins for CuPy and CUDA's bindings."""

import ctypes
from types import SimpleNamespace

import cupy as cp
import numpy as np
from cuda.bindings import driver

from mgg.kernel.cuda.dependent_launch import Fork, PackedLaunch, urgent_stream
from support.devices import device


def main():
    launches: list = []

    def kernel(name):
        def launched():
            stream = cp.cuda.get_current_stream()
            branch = "urgent" if stream is urgent else "stream"
            submitted.append(name)
            device.submit(lambda: launches.append((name, branch)))

        return launched

    def turn(fork):
        launches.clear(), submitted.clear()
        fork.submit(urgent)
        return [name for name, *_ in launches], len(submitted)

    urgent, submitted = urgent_stream(), []
    assert urgent.priority < 0
    fork = Fork([kernel("pull")], [kernel("sum")], [kernel("late"), kernel("combine")])
    order = ["pull", "sum", "late", "combine"]
    with cp.cuda.Stream(non_blocking=True):
        for _ in range(2):
            assert turn(fork) == (order, 4)
            assert launches == [(name, "urgent" if name == "pull" else "stream") for name in order]
        # In a graph of somebody else its launches are part of that.
        stream = cp.cuda.get_current_stream()
        stream.begin_capture()
        assert turn(fork) == ([], 4)
        graph = stream.end_capture()
        graph.launch()
        assert [name for name, *_ in launches] == order
        # Without a branch aside there is nothing to put together.
        plain = Fork([], [kernel("sum")], [])
        assert turn(plain) == (["sum"], 1)
        # Packed ones are launched by the driver, which reads what they are passed from memory.
        numbers, compiled = cp.zeros(4, np.int32), SimpleNamespace(kernel=SimpleNamespace(ptr=77))
        passed = (numbers[1:], np.int32(-5), np.uintp(2**40), np.float32(0.5))
        kinds = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint64, ctypes.c_float)
        for early in (False, True):
            launch = PackedLaunch((compiled, (9,), (64, 2), passed), early=early)
            for _ in range(2):
                driver.launched.clear(), launch()
                [(config, function, address, extra)] = driver.launched
                assert (function, extra, config.hStream) == (77, 0, stream.ptr)
                places = (ctypes.c_void_p * 4).from_address(address)
                values = [kind.from_address(place).value for kind, place in zip(kinds, places, strict=True)]
                assert values == [numbers.data.ptr + 4, -5, 2**40, 0.5]
                assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (9, 1, 1)
                assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (64, 2, 1)
                attributes = getattr(config, "attrs", [])
                assert [each.value.programmaticStreamSerializationAllowed for each in attributes] == [1] * early
        driver.refuses = True
        try:
            launch()
        except RuntimeError as error:
            assert str(error) == "cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE"
        else:
            raise AssertionError
