"""Kernels on the host: compiled by g++ as fake_gpu/cuda_on_host.h says, once a source, and launched by name."""

import ctypes
import fcntl
import hashlib
import os
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from mgg.kernel.compile import source_folder

HERE = Path(__file__).parents[1] / "fake_gpu"
_HEADER = HERE / "cuda_on_host.h"
_FOLDER = Path(tempfile.gettempdir()) / f"fake-kernels-{os.getuid()}"


def compiled(source, *flags, whole=lambda source: source):
    """The library of C++ text, made once; ranks and threads that want the same at the same time wait for the first.

    What is compiled is ``whole(source)``, which depends on ``source`` alone.
    """
    _FOLDER.mkdir(exist_ok=True)
    # No fused multiply-add and no shortcuts: results are those of the operations as they are written. Of variables that
    # are inline each library has its own.
    command = ["g++", "-x", "c++", "-std=c++17", "-O1", "-ffp-contract=off", "-fno-gnu-unique"]
    command += ["-shared", "-fPIC", *flags]
    key = hashlib.sha256("\0".join([*command, source]).encode()).hexdigest()[:24]
    library = _FOLDER / f"{key}.so"
    if library.exists():
        return library
    with library.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            made = library.with_suffix(".part")
            subprocess.run([*command, "-o", str(made), "-"], input=whole(source), text=True, check=True)
            made.replace(library)
    return library


@cache
def kernels(path, before):
    """The library of the kernels of a .cu file, with a way to launch each; ``before``: C++ text before its source."""
    folders = [HERE / "on_host", source_folder() / "include"]
    includes = [f"-I{folder}" for folder in folders]
    files = [_HEADER, path, *sorted(each for folder in folders for each in folder.rglob("*.cuh"))]
    contents = "".join(f"// {line}\n" for each in files for line in each.read_text(encoding="utf-8").splitlines())
    text = f'#include "{_HEADER}"\n{before}\n#include "{path}"\n'

    def whole(source):
        plain = subprocess.run(
            ["g++", "-E", "-P", "-x", "c++", "-std=c++17", *includes, "-"],
            input=text, text=True, check=True, capture_output=True,
        ).stdout  # fmt: skip
        names = re.findall(r'extern "C"\s+void\s+(\w+)\(', plain[plain.index("namespace mgg") :])
        return source + "".join(f"HOST_KERNEL({name})\n" for name in names if not name.startswith("host_"))

    return ctypes.CDLL(str(compiled(contents + text, *includes, whole=whole)))


def build(name, before=""):
    """The same of NAME.cu."""
    (source,) = source_folder().glob(f"*/{name}.cu")
    return kernels(source, before)


def generated(folder, build):
    """The library of a generated file (``mgg.vertex.cuda.device.build_of_text``)."""
    text = build.path.read_text(encoding="utf-8")
    names = re.findall(r'extern "C" __global__ void __launch_bounds__\(\d+, \d+\) (\w+)\(', text)
    macros = "".join(f"#define {key} {value}\n" for key, value in build.defines.items())
    wrappers = "".join(f"HOST_KERNEL({name})\n" for name in names)
    path = Path(folder) / f"{build.path.stem}.so"
    command = ["g++", "-x", "c++", "-std=c++17", "-O0", "-fno-gnu-unique", f"-I{HERE / 'on_host'}"]
    command += [f"-I{source_folder() / 'include'}", "-shared", "-fPIC", "-o", str(path), "-"]
    source = f'#include "{_HEADER}"\n{macros}{text}{wrappers}'
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
