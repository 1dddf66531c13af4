"""APPNP against PyTorch Geometric's, with products of a technique and arc by arc."""

import pytest
from support import pyg
from support.pyg import Reference, Transposed, torch
from torch.nn.functional import relu
from torch_geometric.nn import APPNP

#: Without dropout on arcs a technique multiplies; this little works arc by arc, and drops none of them.
NEARLY_NONE = 1e-12


def settings(arc_dropout):
    return {"hidden": 16, "steps": 4, "teleport": 0.2, "dropout": 0.0, "arc_dropout": arc_dropout}


def appnp(facts) -> Reference:
    first, second = torch.nn.Linear(facts.features, 16, bias=False), torch.nn.Linear(16, facts.classes, bias=False)
    steps = APPNP(K=4, alpha=0.2)

    def forward(x, arcs):
        return steps(second(relu(first(x))), arcs.edge_index, arcs.edge_weight)

    return Reference(forward, {"layer0.weight": Transposed(first.weight), "layer1.weight": Transposed(second.weight)})


@pytest.mark.parametrize("pes", pyg.PES)
@pytest.mark.parametrize("graph", [*pyg.GRAPHS, pyg.CORA])
@pytest.mark.parametrize("arc_dropout", [0.0, NEARLY_NONE])
def test_appnp(arc_dropout, graph, pes, oracle_layouts):
    pyg.check("appnp", settings(arc_dropout), appnp, oracle_layouts(graph, pes), pes)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("arc_dropout", [0.0, NEARLY_NONE])
def test_appnp_on_ranks(arc_dropout, oracle_layouts, tmp_path):
    pyg.check("appnp", settings(arc_dropout), appnp, oracle_layouts("weighted", 2), 2, tmp_path)
