"""As much of CuPy as the backend nvshmem calls, on strict arrays."""

from support.strict import StrictArray, empty, unwrap

from . import cuda

__all__ = ["asarray", "asnumpy", "cuda", "empty", "get_default_memory_pool"]


def asarray(array):
    return array if isinstance(array, StrictArray) else StrictArray(array.copy())


def asnumpy(array):
    return unwrap(array).copy()


class _Pool:
    def free_all_blocks(self):
        pass


def get_default_memory_pool():
    return _Pool()
