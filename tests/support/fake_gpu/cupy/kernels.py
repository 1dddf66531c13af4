"""Elementwise kernels, compiled for the host: the same source, one index after the other; and NumPy's array functions.

What CuPy refuses is refused here: host arrays, other types than the kernel names, outputs of another shape.
"""

import ctypes
from dataclasses import dataclass

import numpy as np

from support.devices.device import capturing, submit
from support.devices.on_host import compiled
from support.devices.strict import empty, made, unwrap

_PREAMBLE = """
#include <cmath>
#include <cstring>
#define __device__
#define __forceinline__ inline
using namespace std;
inline float __uint_as_float(unsigned bits) {
    float found;
    memcpy(&found, &bits, sizeof found);
    return found;
}
inline unsigned __float_as_uint(float number) {
    unsigned found;
    memcpy(&found, &number, sizeof found);
    return found;
}
"""
_C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned",
    "uint64": "unsigned long long",
}


@dataclass(frozen=True)
class _Parameter:
    raw: bool
    type: str
    name: str

    @classmethod
    def parse(cls, text):
        *words, kind, name = text.split()
        assert words in ([], ["raw"]) and name != "i"
        return cls(words == ["raw"], kind, name)


class ElementwiseKernel:
    def __init__(self, in_params, out_params, operation, name, preamble=""):
        self.inputs, self.outputs = (
            [_Parameter.parse(part) for part in text.split(",") if part.strip()] for text in (in_params, out_params)
        )
        self.operation, self.name, self.preamble = operation, name, preamble
        self._compiled = {}

    def __call__(self, *args, size=None):
        parameters = [*self.inputs, *self.outputs]
        assert len(args) == len(parameters), f"{self.name}: the outputs must be given"
        looped = [
            unwrap(arg)
            for arg, parameter in zip(args, parameters, strict=True)
            if not parameter.raw and not np.isscalar(arg)
        ]
        # CuPy must be told the number of indices where every array is raw, and refuses it elsewhere.
        assert (size is None) == bool(looped), f"{self.name}: size"
        shape = np.broadcast_shapes(*(array.shape for array in looped)) if looped else (size,)
        types, kept = {}, []
        for arg, parameter in zip(args, parameters, strict=True):
            kept.append(self._prepared(arg, parameter, shape, types))
        if int(np.prod(shape)):
            # Numbers are those of now, arrays are read and written when the device comes to it; the scalars' copies and
            # the outputs among ``kept`` are what it takes.
            scalars = [one if np.isscalar(arg) else None for arg, one in zip(args, kept, strict=True)]
            arrays = [arg if one is None else None for arg, one in zip(map(_plain, args), scalars, strict=True)]
            submit(lambda: self._launch(parameters, arrays, scalars, shape, types))

    def _launch(self, parameters, arrays, scalars, shape, types):
        """``arrays`` and ``scalars`` have an entry a parameter, None where it is the other."""
        kept = [
            self._laid_out(array, parameter, shape) if scalar is None else scalar
            for array, scalar, parameter in zip(arrays, scalars, parameters, strict=True)
        ]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in kept]
        self._function(tuple(sorted(types.items())))(ctypes.c_longlong(int(np.prod(shape))), *pointers)
        for array, written in zip(arrays, kept, strict=True):  # rows of an output may be padded
            if array is not None and array is not written and not array.flags.c_contiguous:
                array[...] = written

    def _laid_out(self, array, parameter, shape):
        if parameter in self.outputs and array.flags.c_contiguous:
            return array
        return np.ascontiguousarray(array if parameter.raw else np.broadcast_to(array, shape))

    def _prepared(self, arg, parameter, shape, types):
        """The memory of an argument, an entry an index unless it is raw or a scalar."""
        if np.isscalar(arg):
            assert parameter not in self.outputs and not parameter.raw
            # CuPy takes the types of letters from arrays alone.
            kind = types[parameter.type] if len(parameter.type) == 1 else parameter.type
            return np.full(max(1, int(np.prod(shape))), arg, kind)
        array = unwrap(arg)
        wanted = types.setdefault(parameter.type, str(array.dtype)) if len(parameter.type) == 1 else parameter.type
        if array.dtype != np.dtype(wanted):
            raise TypeError(f"Type is mismatched. {parameter.name} {array.dtype} {wanted}")
        # The kernels here take the address of the first entry and go on from there.
        assert array.flags.c_contiguous or not parameter.raw, f"{self.name}: {parameter.name} is raw and not contiguous"
        if parameter in self.outputs and not parameter.raw and array.shape != shape:
            raise ValueError("Out shape is mismatched")
        return self._laid_out(array, parameter, shape)

    def _function(self, types):
        if types not in self._compiled:
            self._compiled[types] = getattr(ctypes.CDLL(str(compiled(self._source(dict(types))))), self.name)
        return self._compiled[types]

    def _source(self, types):
        arguments, names = [], []
        for parameter in [*self.inputs, *self.outputs]:
            kind = _C_TYPES[types.get(parameter.type, parameter.type)]
            kind = kind if parameter in self.outputs else f"const {kind}"
            place = parameter.name if parameter.raw else f"_raw_{parameter.name}"
            arguments.append(f"{kind}* {place}")
            if not parameter.raw:
                names.append(f"{kind}& {parameter.name} = {place}[i];")
        loop = "\n".join([*names, f"{self.operation};"])
        head = f'extern "C" void {self.name}(long long _size, {", ".join(arguments)})'
        loop = f"for (long long i = 0; i < _size; ++i) {{\n{loop}\n}}"
        return f"{_PREAMBLE}{self.preamble}\n{head} {{\n{loop}\n}}\n"


def _plain(arg):
    return arg if np.isscalar(arg) else unwrap(arg)


def dot(a, b, out=None):
    left, right = unwrap(a), unwrap(b)
    if out is None:
        return made((len(left), right.shape[1]), np.result_type(left, right), lambda: left @ right)
    assert unwrap(out).flags.c_contiguous
    out[...] = dot(a, b)
    return out


def concatenate(arrays, axis=0):
    # Of more arrays CuPy uploads the addresses, from memory that is soon used for something else.
    assert len(arrays) <= 8 or not capturing(), "the addresses are gone when the graph is launched"
    plain = [unwrap(array) for array in arrays]
    like = np.concatenate(plain, axis=axis)
    return made(like.shape, like.dtype, lambda: np.concatenate(plain, axis=axis))


def full(shape, value, dtype):
    out = empty(shape, dtype)
    out.fill(value)
    return out


def arange(stop, dtype=np.int64):
    return made((stop,), dtype, lambda: np.arange(stop, dtype=dtype))


def searchsorted(a, v, side="left"):
    data, wanted = unwrap(a), unwrap(v)
    return made(wanted.shape, np.int64, lambda: np.searchsorted(data, wanted, side))


def argmax(array, axis):
    data = unwrap(array)
    return made((len(data),), np.int64, lambda: np.argmax(data, axis=axis))


def unique(array, return_inverse):
    # How many there are the host has to know.
    assert return_inverse and not capturing(), "the host waits for what is captured"
    found, place = np.unique(unwrap(array), return_inverse=True)
    return made(found.shape, found.dtype, lambda: found), made(place.shape, np.int64, lambda: place)


def ascontiguousarray(array):
    data = unwrap(array)
    return array if data.flags.c_contiguous else made(data.shape, data.dtype, lambda: data)
