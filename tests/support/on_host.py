"""Kernels of one source on the host: compiled by g++ as fake_gpu/cuda_on_host.h says, launched by name."""

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np

from mgg.kernel.compile import source_folder

HERE = Path(__file__).parent / "fake_gpu"


def build(folder, name, before):
    """The library, in ``folder``, of the kernels of NAME.cu; ``before``: C++ text before its source."""
    (source,) = source_folder().glob(f"*/{name}.cu")
    text = f'#include "{HERE / "cuda_on_host.h"}"\n{before}\n#include "{source}"\n'
    # Of variables that are inline each library has its own.
    flags = ["-std=c++17", "-O1", "-fno-gnu-unique", f"-I{HERE / 'on_host'}", f"-I{source_folder() / 'include'}"]
    plain = subprocess.run(
        ["g++", "-E", "-P", "-x", "c++", *flags, "-"], input=text, text=True, check=True, capture_output=True
    ).stdout
    names = re.findall(r'extern "C"\s+void\s+(\w+)\(', plain[plain.index("namespace mgg") :])
    text += "".join(f"HOST_KERNEL({kernel})\n" for kernel in names if not kernel.startswith("host_"))
    path = folder / f"{name}.so"
    command = ["g++", "-x", "c++", *flags, "-shared", "-fPIC", "-o", str(path), "-"]
    subprocess.run(command, input=text, text=True, check=True)
    return ctypes.CDLL(str(path))


def generated(folder, build):
    """The library of a generated file (``mgg.vertex.cuda.device.build_of_text``)."""
    text = build.path.read_text(encoding="utf-8")
    names = re.findall(r'extern "C" __global__ void __launch_bounds__\(\d+, \d+\) (\w+)\(', text)
    macros = "".join(f"#define {key} {value}\n" for key, value in build.defines.items())
    wrappers = "".join(f"HOST_KERNEL({name})\n" for name in names)
    path = Path(folder) / f"{build.path.stem}.so"
    command = ["g++", "-x", "c++", "-std=c++17", "-O0", "-fno-gnu-unique", f"-I{HERE / 'on_host'}"]
    command += [f"-I{source_folder() / 'include'}", "-shared", "-fPIC", "-o", str(path), "-"]
    source = f'#include "{HERE / "cuda_on_host.h"}"\n{macros}{text}{wrappers}'
    subprocess.run(command, input=source, text=True, check=True)
    return ctypes.CDLL(str(path))


def launch(library, name, grid, threads, *arguments):
    """Launch a kernel with arrays and numbers; None is a null pointer.

    Checked are the size of each, and the type of floating-point numbers behind pointers.
    """
    sizes = (ctypes.c_int * 512)()
    wanted = sizes[: getattr(library, f"host_sizes_{name}")(sizes)]
    given = [np.zeros(1, np.uint64) if each is None else _number(each) for each in arguments]
    assert [each.itemsize for each in given] == [size & 255 for size in wanted], name
    for place, (argument, size) in enumerate(zip(arguments, wanted, strict=True)):
        numbers = size >> 8 and argument is not None  # a pointer to floating-point numbers of this size
        assert not numbers or argument.dtype == f"f{size >> 8}", (name, place, argument.dtype)
    pointers = (ctypes.c_void_p * len(given))(*(each.ctypes.data for each in given))
    getattr(library, f"host_{name}")(pointers, (ctypes.c_uint * 2)(*grid), ctypes.c_uint(threads))


def _number(argument):
    return np.array([argument.ctypes.data], np.uint64) if argument.ndim else argument.reshape(1)
