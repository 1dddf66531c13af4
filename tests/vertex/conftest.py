import pytest
from support.devices import plain
from support.vertex.work import KernelsOnHost

from mgg.vertex.cpu import host
from mgg.vertex.cuda import device


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Two pieces of a row and more wherever it has over 32 arcs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "_address", lambda array: array.ctypes.data)
        yield KernelsOnHost(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def interpreted(monkeypatch):
    """Sources of units are run by Python."""
    monkeypatch.setattr(host, "compiled", plain.unit)
