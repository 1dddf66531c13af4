"""Graphs and PEs on which programs of PyTorch's run."""

import pytest
from support.devices import plain
from support.graphs import make_layout

from mgg.vertex.cpu import host


@pytest.fixture
def interpreted(request, monkeypatch):
    """Loops over arcs are run by Python, for nothing has to be compiled then, but where the compiler is tested."""
    if request.node.get_closest_marker("sentinel") is None:
        monkeypatch.setattr(host, "compiled", plain.unit)


@pytest.fixture(scope="module")
def layouts(request, tmp_path_factory):
    """``layouts(name, pes)``: a layout of one of the module's ``ALL_GRAPHS``, or of ``CALLED``."""
    graphs = getattr(request.module, "ALL_GRAPHS", None) or request.module.CALLED
    folders = {name: tmp_path_factory.mktemp("graph") for name in graphs}
    return lambda name, pes: make_layout(folders[name], graphs[name](), pes)


@pytest.fixture
def on_pes(layouts):
    """Run a program on PEs of a graph."""

    from mgg import interop  # which needs PyTorch

    def run(program, pes=1, graph="self", width=8, **options):
        return interop.run(layouts(graph, pes), program, width=width, backend="simulated", **options)

    return run
