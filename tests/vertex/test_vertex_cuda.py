"""Generated kernels of vertex programs, run on the host, against the interpreter."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from support import vertex_models
from support.arc_graphs import awkward, drawn
from support.random_programs import programs, random_graph, values
from support.vertex_work import KernelsOnHost, supported, worked_off

from mgg.vertex import device, ir
from mgg.vertex.autodiff import gradients
from mgg.vertex.interpret import evaluate
from mgg.vertex.passes import optimized

SETTINGS = {
    "derandomize": True, "deadline": None, "phases": [Phase.generate], "suppress_health_check": list(HealthCheck),
}  # fmt: skip


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Two pieces of a row and more wherever it has over 32 arcs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "_address", lambda array: array.ctypes.data)
        yield KernelsOnHost(tmp_path_factory.mktemp("kernels"))


def compare(wanted, found, expected, tolerance):
    for value, array, right in zip(wanted, found, expected, strict=True):
        if right.size:
            assert np.abs(array - right).max() <= tolerance * max(1, np.abs(right).max()), value


MODELS = {
    **vertex_models.MODELS, "gat, eight heads of eight": vertex_models.gat(16, 8, 8),
    "gat, odd columns": vertex_models.gat(5, 2, 37), "gated, odd columns": vertex_models.gated(41),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_models(name, kernels):
    graph = awkward()
    outputs, late, seeds = vertex_models.differentiated(MODELS[name])
    wanted = [*outputs, *late]
    leaves = drawn([*wanted, *seeds], graph, 1)
    found = worked_off(wanted, graph, leaves, outputs=len(outputs), seeds=seeds, draws=(3, 5), kernels=kernels)
    compare(wanted, found, evaluate(wanted, graph, leaves, masks=(3, 5)), 5e-5)


def check(data, kernels):
    graph = random_graph(data.draw(st.integers(0, 2**16)))
    outputs = values(data.draw(programs(graph.type_count)))
    seeds = [ir.leaf(f"seed {k}", value.space, value.shape) for k, value in enumerate(outputs)]
    inputs = [value for value in ir.walk(outputs) if value.op == "input"]
    before = [*outputs, *gradients(outputs, seeds, inputs)]
    wanted = optimized(before) if data.draw(st.booleans()) else before
    assume(all(supported(value) for value in ir.walk(wanted)))
    leaves = drawn(before, graph, seed=data.draw(st.integers(0, 2**16)))
    found = worked_off(wanted, graph, leaves, outputs=len(outputs), seeds=seeds, kernels=kernels)
    compare(wanted, found, evaluate(before, graph, leaves), 2e-3)


def test_some_programs(kernels):
    @settings(max_examples=3, **SETTINGS)
    @given(data=st.data())
    def some(data):
        check(data, kernels)

    some()


@pytest.mark.slow
def test_programs(kernels):
    @settings(max_examples=60, **SETTINGS)
    @given(data=st.data())
    def many(data):
        check(data, kernels)

    many()
