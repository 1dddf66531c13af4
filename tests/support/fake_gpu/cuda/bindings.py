"""The driver's call that launches a kernel with attributes: it writes down what it was called with."""

from types import SimpleNamespace


class _Attribute(SimpleNamespace):
    def __init__(self):
        super().__init__(id=None, value=SimpleNamespace())


class _Driver:
    CUlaunchAttribute = _Attribute
    CUlaunchConfig = SimpleNamespace
    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION=6)
    CUresult = SimpleNamespace(CUDA_SUCCESS=SimpleNamespace(name="CUDA_SUCCESS"))

    def __init__(self):
        self.launched, self.refuses = [], False

    def cuLaunchKernelEx(self, *call):  # noqa: N802 - the driver's name
        if self.refuses:
            return (SimpleNamespace(name="CUDA_ERROR_INVALID_VALUE"),)
        self.launched.append(call)
        return (self.CUresult.CUDA_SUCCESS,)


driver = _Driver()
