"""tools/gpus.py: make test-gpu fails with one line where there is no GPU, before it installs anything."""

import ctypes
import importlib.util
import subprocess
from types import SimpleNamespace

import pytest
from support.workflow import ROOT


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("gpus_tool", ROOT / "tools" / "gpus.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def driver(init: int, count: int):
    """As much of libcuda as the tool calls."""

    def device_count(pointer):
        pointer._obj.value = count
        return 0

    return lambda name: SimpleNamespace(cuInit=lambda flags: init, cuDeviceGetCount=device_count)


@pytest.mark.parametrize(("init", "count", "code"), [(0, 2, 0), (0, 0, 3), (100, 2, 3)])
def test_the_driver_is_asked(tool, monkeypatch, capsys, init, count, code):
    monkeypatch.setattr(ctypes, "CDLL", driver(init, count))
    assert tool.main() == code
    assert capsys.readouterr().err.count("\n") == (code == 3)


def test_no_driver_is_one_line(tool, monkeypatch, capsys):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert tool.main() == 3
    assert capsys.readouterr().err.startswith("error: no GPU here: no NVIDIA driver")


def test_nothing_is_installed_without_a_gpu(tmp_path):
    folder = tmp_path / "venv"
    done = subprocess.run(
        ["make", "-C", str(ROOT), "test-gpu", f"VENV={folder}", "PYTHON=false"],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode and not folder.exists() and "Installing" not in done.stdout
