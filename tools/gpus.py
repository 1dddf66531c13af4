"""Exit with 0 if the NVIDIA driver has a GPU, else with 3 and one line. It runs before anything is installed."""

import ctypes
import sys


def main() -> int:
    """Returns the exit code; needs only Python."""
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return _fail("no NVIDIA driver (libcuda.so.1)")
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return _fail("the NVIDIA driver finds none; see nvidia-smi and CUDA_VISIBLE_DEVICES")
    return 0


def _fail(why: str) -> int:
    print(f"error: no GPU here: {why}; `make test` needs none", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main())
