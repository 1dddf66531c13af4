"""GATv2 against PyTorch Geometric's GATv2Conv; weights of arcs do not count in either."""

from functools import partial

import pytest
from support import pyg
from support.pyg import Reference, Transposed
from torch.nn.functional import elu
from torch_geometric.nn import GATv2Conv

pytestmark = pytest.mark.slow
SETTINGS = {"hidden": 6, "heads": 3, "output_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}


def gatv2(facts, shared=False) -> Reference:
    layers = (
        GATv2Conv(facts.features, 6, heads=3, share_weights=shared),
        GATv2Conv(18, facts.classes, heads=2, concat=False, share_weights=shared),
    )
    names = {}
    for k, layer in enumerate(layers):
        ends = {"source": layer.lin_l} if shared else {"source": layer.lin_l, "target": layer.lin_r}
        for end, linear in ends.items():
            names |= {f"layer{k}.W_{end}": Transposed(linear.weight), f"layer{k}.b_{end}": linear.bias}
        names |= {f"layer{k}.a": layer.att, f"layer{k}.bias": layer.bias}

    def forward(x, arcs):
        return layers[1](elu(layers[0](x, arcs.edge_index)), arcs.edge_index)

    return Reference(forward, names)


@pytest.mark.parametrize("pes", pyg.PES)
@pytest.mark.parametrize("graph", [*pyg.GRAPHS, *pyg.LOOPS, pyg.CORA])
def test_gatv2(graph, pes, oracle_layouts):
    pyg.check("gatv2", SETTINGS, gatv2, oracle_layouts(graph, pes), pes)


def test_shared_weights(oracle_layouts):
    shared = {"shared": True}
    pyg.check("gatv2", SETTINGS | shared, partial(gatv2, **shared), oracle_layouts("weighted", 2), 2)


@pytest.mark.mpi
def test_gatv2_on_ranks(oracle_layouts, tmp_path):
    pyg.check("gatv2", SETTINGS, gatv2, oracle_layouts("weighted", 2), 2, tmp_path)
