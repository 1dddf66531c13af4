"""tools/gpus.py: make test-gpu fails with one line where there is no GPU, before it installs anything."""

import ctypes
import importlib.util
import os
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


def driver(init: int | None, count: int):
    """As much of libcuda as the tool calls; None: there is none."""

    def device_count(pointer):
        pointer._obj.value = count
        return 0

    def load(name):
        if init is None:
            raise OSError(name)
        return SimpleNamespace(cuInit=lambda flags: init, cuDeviceGetCount=device_count)

    return load


@pytest.mark.parametrize(
    ("init", "count", "message"),
    [(0, 2, ""), (0, 0, "the NVIDIA driver finds none"), (100, 2, "the NVIDIA"), (None, 0, "no NVIDIA driver")],
)
def test_gpu_installation_asks_the_driver(tool, monkeypatch, capsys, init, count, message):
    monkeypatch.setattr(ctypes, "CDLL", driver(init, count))
    assert tool.main() == (3 if message else 0)
    said = capsys.readouterr().err
    assert said.count("\n") == bool(message) and said.startswith(f"error: no GPU here: {message}" if message else "")


@pytest.mark.parametrize("code", [0, 3])
def test_gpu_packages_need_a_gpu(tmp_path, code):
    """Make's Python is a stand-in that writes down what it is to run; of an installation it makes no more than that."""
    folder, python, ran = tmp_path / "venv", tmp_path / "python", tmp_path / "ran"
    python.write_text(f'#!/bin/sh\necho "$*" >> {ran}\ncase $1 in tools/gpus.py) exit {code} ;; esac\nexit 1\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["make", "-C", str(ROOT), "test-gpu", f"VENV={folder}", f"PYTHON={python}"],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=os.environ | {"CI": ""},
    )  # fmt: skip
    installs = [f"tools/venv.py {folder} dev gpu"]
    assert ran.read_text().splitlines() == ["tools/gpus.py", *(installs if code == 0 else [])]
    assert done.returncode and not folder.exists()
