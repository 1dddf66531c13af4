"""Tests that need GPUs: without them, or with too few, they are skipped and say why."""

import pytest
from support.gpus import GPUS, architecture

from mgg.kernel import compile as build


def pytest_collection_modifyitems(items):
    for item in items:
        needed = max([1, *(mark.args[0] for mark in item.iter_markers("gpu") if mark.args)])
        needed = max(needed, getattr(getattr(item, "callspec", None), "params", {}).get("pes", 1))
        if "gpu" in item.keywords and needed > GPUS:
            item.add_marker(pytest.mark.skip(reason=f"needs {needed} GPUs and CuPy, found {GPUS}"))


@pytest.fixture(scope="session", autouse=True)
def kernels():
    """Every kernel is in the cache before the first test: no time limit of a test counts compilation."""
    if GPUS:
        assert build.main(["--arch", architecture()]) == 0
