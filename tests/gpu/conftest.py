"""Tests that need GPUs: skipped without one, with the reason. If there are too few, PEs share GPUs under CUDA MPS."""

import os
import shutil
import subprocess

import pytest
from support.devices.gpus import GPUS, architecture, taken
from support.graphs.train_graphs import layouts_below

from mgg.kernel import compile as build

MPS = shutil.which("nvidia-cuda-mps-control")


def gpus_of(item):
    """The number of GPUs that a test asks for: n of ``gpu(n)``, or its parameter ``pes``."""
    marks = [mark.args[0] for mark in item.iter_markers("gpu") if mark.args]
    return max([1, *marks, getattr(getattr(item, "callspec", None), "params", {}).get("pes", 1)])


def sharing(item):
    """How PEs may share GPUs: ``never``, ``in turns``, or by default under CUDA ``mps``."""
    return next((mark.kwargs["share"] for mark in item.iter_markers("gpu") if "share" in mark.kwargs), "mps")


def pytest_addoption(parser):
    parser.addoption("--pes", type=int, metavar="N", help="run only the cases of tests/gpu for N PEs")


def pytest_collection_modifyitems(config, items):
    # Called with the tests of all folders; the option is missing if pytest was not started with this folder.
    pes = config.getoption("--pes", None)
    deselected = [item for item in items if pes and item.get_closest_marker("gpu") and gpus_of(item) != pes]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in deselected]
    for item in items:
        if item.get_closest_marker("gpu") is None:
            continue
        number, share = gpus_of(item), sharing(item)
        no_mps = share == "mps" and MPS is None
        if number > GPUS and (not GPUS or share == "never" or no_mps):
            missing = ", and no nvidia-cuda-mps-control to share one" if GPUS and no_mps else ""
            item.add_marker(pytest.mark.skip(reason=f"needs {number} GPUs and CuPy, found {GPUS}{missing}"))


@pytest.fixture(scope="session")
def mps(tmp_path_factory):
    """The variables of a CUDA MPS daemon for these tests alone.

    It sees all GPUs of the host, because CUDA_VISIBLE_DEVICES of a client numbers the daemon's GPUs.
    """
    folder = tmp_path_factory.mktemp("mps")
    variables = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    subprocess.run([MPS, "-d"], env=environment | variables, check=True, timeout=60)
    yield variables
    subprocess.run([MPS], env=os.environ | variables, input="quit\n", text=True, check=True, timeout=60)


@pytest.fixture(autouse=True)
def shared_gpus(request, monkeypatch):
    """Lets PEs share GPUs if there are more PEs than GPUs."""
    number = gpus_of(request.node)
    if number <= GPUS:
        return
    variables = {"MGG_SHARED_GPUS": "1"}
    if taken(number) < GPUS:  # hide some, so that each visible GPU has the same number of PEs
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(GPUS)))
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(visible.split(",")[: taken(number)])
    if sharing(request.node) == "mps":
        variables |= request.getfixturevalue("mps")
        variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(100 * taken(number) // number)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def layouts(tmp_path_factory):
    """``layouts(name, pes)``: the folder of a layout."""
    return layouts_below(tmp_path_factory.mktemp)


@pytest.fixture(scope="session", autouse=True)
def kernels():
    """Compiles all kernels before the first test, so that no time limit of a test includes compilation."""
    if GPUS:
        assert build.main(["--arch", architecture()]) == 0
