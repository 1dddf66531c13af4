"""What launches pass, held against the parameters of kernels in kernels/aggregate; and memory by its address alone."""

import ctypes
import re

import numpy as np

from mgg.kernel.compile import source_folder
from support.devices.strict import StrictArray

_NUMBERS = {"int": (np.int32, ctypes.c_int32), "long long": (np.int64, ctypes.c_int64)}
_ENTRIES = {
    "int": np.int32,
    "int2": np.int32,
    "long long": np.int64,
    "unsigned": np.uint32,
    "unsigned long long": np.uint64,
    "float": np.float32,
    "mgg::Index": np.int32,
}


def source(name):
    """The text of a .cu file, macros on one line."""
    return (source_folder() / "aggregate" / f"{name}.cu").read_text(encoding="utf-8").replace("\\\n", " ")


def parameters(name, kernel):
    """(type, name) of each parameter of ``kernel``, as NAME.cu spells it."""
    declared = re.search(rf"__global__ void __launch_bounds__\(.*?\) {kernel}\((.*?)\)\s*{{", source(name), re.DOTALL)[
        1
    ]
    found = [re.fullmatch(r"(.*?[ *])(\w+)", " ".join(one.split())) for one in declared.split(",")]
    return [(re.sub(r"\bconst\b ?", "", one[1]).strip(), one[2]) for one in found]


def passed(parameters, given):
    """Name -> number or address of each argument of a launch, which must have the parameter's type."""
    assert len(given) == len(parameters)
    values = {}
    for (kind, name), value in zip(parameters, given, strict=True):
        if kind in _NUMBERS:
            assert type(value) is _NUMBERS[kind][0], name
            values[name] = int(value)
        elif isinstance(value, StrictArray):
            entry = np.uint64 if kind.count("*") > 1 else _ENTRIES[kind.rstrip(" *")]
            assert value.dtype == entry, (name, value.dtype)
            values[name] = value.data.ptr
        else:
            assert kind.endswith("*") and type(value) is np.uintp, name
            values[name] = int(value)
    return values


def packed(parameters, addresses):
    """The same of a launch through the driver: ``addresses`` is where those of the arguments are."""
    places = at(addresses, np.uint64, len(parameters)).tolist()
    kinds = [_NUMBERS.get(kind, (None, ctypes.c_uint64))[1] for kind, _ in parameters]
    return {
        name: kind.from_address(place).value for (_, name), kind, place in zip(parameters, kinds, places, strict=True)
    }


def at(address, dtype, count):
    """``count`` entries of memory."""
    size = int(np.dtype(dtype).itemsize * count)
    return np.frombuffer((ctypes.c_char * size).from_address(int(address)), dtype) if size else np.zeros(0, dtype)
