"""Tests that need GPUs: without one they are skipped and say why; of too few, PEs share each, under CUDA MPS."""

import os
import shutil
import subprocess

import pytest
from support.devices.gpus import GPUS, architecture, taken

from mgg.kernel import compile as build

MPS = shutil.which("nvidia-cuda-mps-control")


def needed(item):
    """GPUs that a test is for: ``gpu(n)``, or as many as its parameter ``pes``."""
    marks = [mark.args[0] for mark in item.iter_markers("gpu") if mark.args]
    return max([1, *marks, getattr(getattr(item, "callspec", None), "params", {}).get("pes", 1)])


def sharing(item):
    """How PEs may share GPUs: ``never``, ``in turns``, or by default under CUDA ``mps``, where NVSHMEM can do all."""
    return next((mark.kwargs["share"] for mark in item.iter_markers("gpu") if "share" in mark.kwargs), "mps")


def pytest_addoption(parser):
    parser.addoption("--pes", type=int, metavar="N", help="of tests/gpu only the cases for N PEs")


def pytest_collection_modifyitems(config, items):
    # Called with the tests of all folders; without the option, where pytest was not started with this one.
    pes = config.getoption("--pes", None)
    others = [item for item in items if pes and item.get_closest_marker("gpu") and needed(item) != pes]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]
    for item in items:
        if item.get_closest_marker("gpu") is None:
            continue
        number, share = needed(item), sharing(item)
        no_mps = share == "mps" and MPS is None
        if number > GPUS and (not GPUS or share == "never" or no_mps):
            lack = ", and no nvidia-cuda-mps-control to share one" if GPUS and no_mps else ""
            item.add_marker(pytest.mark.skip(reason=f"needs {number} GPUs and CuPy, found {GPUS}{lack}"))


@pytest.fixture(scope="session")
def mps(tmp_path_factory):
    """The variables of a CUDA MPS of these tests' own.

    Its daemon sees all GPUs of the host: the numbers in CUDA_VISIBLE_DEVICES of a client count the daemon's GPUs.
    """
    folder = tmp_path_factory.mktemp("mps")
    variables = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    everything = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    subprocess.run([MPS, "-d"], env=everything | variables, check=True, timeout=60)
    yield variables
    subprocess.run([MPS], env=os.environ | variables, input="quit\n", text=True, check=True, timeout=60)


@pytest.fixture(autouse=True)
def shared_gpus(request, monkeypatch):
    """Where there are fewer GPUs than PEs, these share them."""
    number = needed(request.node)
    if number <= GPUS:
        return
    variables = {"MGG_SHARED_GPUS": "1"}
    if taken(number) < GPUS:  # the others are hidden, so that those seen have as many PEs each
        seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(GPUS)))
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(seen.split(",")[: taken(number)])
    if sharing(request.node) == "mps":
        variables |= request.getfixturevalue("mps")
        variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(100 * taken(number) // number)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session", autouse=True)
def kernels():
    """Every kernel is in the cache before the first test: no time limit of a test counts compilation."""
    if GPUS:
        assert build.main(["--arch", architecture()]) == 0
