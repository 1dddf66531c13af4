"""Kernels of kernels/lookup and ``gather_rows`` on the host: the same source, compiled by g++ as cuda_on_host.h says.

Arguments are held against the kernel's parameters, one by one: their number, their size and whether they are fractions.
"""

import ctypes
import re
from functools import partial

import numpy as np

from mgg.kernel.cuda import CudaOperators
from mgg.kernel.cuda.schedule import DeviceSchedules
from support.devices.device import submit
from support.devices.on_host import kernels
from support.devices.strict import StrictArray, StrictOperators, unwrap


class LaunchingOperators(StrictOperators):
    """The CPU's operators, and kernels that are launched by name."""

    def __init__(self):
        self.processors = 1  # so that warps of small graphs, too, draw tasks when they have done their first
        self._schedules = DeviceSchedules(None, self.processors)

    def gather_rows(self, source, rows, out):
        """As on a GPU: the build, the names of kernels and their arguments come from the code that launches there."""
        CudaOperators.gather_rows(self, source, rows, out)

    def add_rows(self, source, rows, out):
        """The same."""
        CudaOperators.add_rows(self, source, rows, out)

    _move = CudaOperators._move

    def pack_rows(self, source, rows, ids, draws, bits, out):
        """The same."""
        CudaOperators.pack_rows(self, source, rows, ids, draws, bits, out)

    def unpack_rows(self, packed, bits, out):
        """The same."""
        CudaOperators.unpack_rows(self, packed, bits, out)

    _wire = CudaOperators._wire

    def gnnadvisor(self, groups, indices, weights, b, out, setting):
        """The same."""
        CudaOperators.gnnadvisor(self, groups, indices, weights, b, out, setting)

    def schedule(self, indptr, columns, accumulate=False):
        return self._schedules.of(indptr, columns, accumulate)

    def kernel(self, build, name):
        library = kernels(
            build.path, "".join(f"#define {name} {value}\n" for name, value in sorted(build.defines.items()))
        )
        launch, sizes = getattr(library, f"host_{name}"), (ctypes.c_int * 512)()
        wanted = sizes[: getattr(library, f"host_sizes_{name}")(sizes)]
        launched = partial(_launch, name, launch, wanted)
        threads = re.search(r"kThreads = (\d+);", build.path.read_text(encoding="utf-8"))
        launched.max_threads_per_block = int(threads[1]) if threads else None
        return launched

    def combining(self, split_rows, split_first, partial, c, accumulate):
        assert not accumulate
        rows, first, parts, out = (unwrap(array) for array in (split_rows, split_first, partial, c))

        def add_up(*_):
            for row, begin, end in zip(rows, first[:-1], first[1:], strict=True):
                out[row] = parts[begin:end, : out.shape[1]].sum(axis=0, dtype=np.float64)

        return (lambda *_: submit(add_up)), None, None, None


def _launch(name, launch, wanted, grid, block, given, shared_mem=0):
    assert shared_mem <= 48 << 10  # what cuda_on_host.h has
    assert len(block) == 1 and len(grid) <= 2 and min(grid) > 0
    assert len(given) == len(wanted), f"{name} has {len(wanted)} parameters, not {len(given)}"
    values = []
    for number, (one, size) in enumerate(zip(given, wanted, strict=True)):
        argument, entry = one, size >> 8 if size > 0 else 0
        if isinstance(one, StrictArray):
            assert not entry or one.dtype == f"f{entry}", f"{name}, argument {number}: {one.dtype} behind the pointer"
            # Rows are padded where the kernel is told how far they are from each other.
            if not one.flags.c_contiguous:
                stride, item = given[number + 1], one.itemsize
                steps = one.strides[0], one.strides[-1]
                assert isinstance(stride, np.int32) and steps == (item * stride, item), f"{name}, argument {number}"
            argument = np.uint64(unwrap(one).ctypes.data if one.size else 0)
        kind = -argument.itemsize if argument.dtype.kind == "f" else argument.itemsize
        assert kind == (size & 255 if entry else size), f"{name}, argument {number}: {argument.dtype}"
        values.append(np.full(1, argument))
    pointers = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
    shape = (ctypes.c_uint * 2)(*grid, *[1] * (2 - len(grid)))
    # Numbers are those of now. A graph keeps no array of the device from giving its memory back.
    held = values, [unwrap(one) for one in given if isinstance(one, StrictArray)]
    submit(lambda: launch(pointers, shape, ctypes.c_uint(block[0])) and held)
