"""GAT against PyTorch Geometric's GATConv; weights of arcs do not count in either."""

import pytest
from support import pyg
from support.pyg import Reference, Transposed
from torch.nn.functional import elu
from torch_geometric.nn import GATConv

SETTINGS = {"hidden": 6, "heads": 3, "output_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}


def gat(facts) -> Reference:
    layers = GATConv(facts.features, 6, heads=3), GATConv(18, facts.classes, heads=2, concat=False)
    names = {}
    for k, layer in enumerate(layers):
        names |= {f"layer{k}.weight": Transposed(layer.lin.weight), f"layer{k}.bias": layer.bias}
        names |= {f"layer{k}.target": layer.att_dst, f"layer{k}.source": layer.att_src}

    def forward(x, arcs):
        return layers[1](elu(layers[0](x, arcs.edge_index)), arcs.edge_index)

    return Reference(forward, names)


@pytest.mark.parametrize("pes", pyg.PES)
@pytest.mark.parametrize("graph", [*pyg.GRAPHS, *pyg.LOOPS, pyg.CORA])
def test_gat(graph, pes, oracle_layouts):
    pyg.check("gat", SETTINGS, gat, oracle_layouts(graph, pes), pes)


@pytest.mark.slow
@pytest.mark.mpi
def test_gat_on_ranks(oracle_layouts, tmp_path):
    pyg.check("gat", SETTINGS, gat, oracle_layouts("weighted", 2), 2, tmp_path)
