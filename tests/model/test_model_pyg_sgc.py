"""SGC against PyTorch Geometric's SGConv."""

import pytest
from support import pyg
from support.pyg import Reference, Transposed
from torch_geometric.nn import SGConv


def sgc(facts) -> Reference:
    layer = SGConv(facts.features, facts.classes, K=3)
    names = {"classifier.weight": Transposed(layer.lin.weight), "classifier.bias": layer.lin.bias}
    return Reference(lambda x, arcs: layer(x, arcs.edge_index, arcs.edge_weight), names)


@pytest.mark.parametrize("pes", pyg.PES)
@pytest.mark.parametrize("graph", [*pyg.GRAPHS, pyg.CORA])
def test_sgc(graph, pes, oracle_layouts):
    pyg.check("sgc", {"hops": 3}, sgc, oracle_layouts(graph, pes), pes)


@pytest.mark.slow
@pytest.mark.mpi
def test_sgc_on_ranks(oracle_layouts, tmp_path):
    pyg.check("sgc", {"hops": 3}, sgc, oracle_layouts("weighted", 2), 2, tmp_path)
