"""Exit with 0 where the NVIDIA driver has a GPU, else with 3 and one line; asked before anything is installed."""

import ctypes
import sys


def main() -> int:
    """The exit code; needs nothing but Python."""
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return _lack("no NVIDIA driver (libcuda.so.1)")
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return _lack("the NVIDIA driver finds none; see nvidia-smi and CUDA_VISIBLE_DEVICES")
    return 0


def _lack(why: str) -> int:
    print(f"error: no GPU here: {why}; `make test` needs none", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main())
