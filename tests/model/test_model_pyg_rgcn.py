"""R-GCN against PyTorch Geometric's RGCNConv, for which the node itself is one more type of arcs, too."""

import pytest
from support import pyg
from support.pyg import Reference, torch
from torch.nn.functional import relu
from torch_geometric.nn import RGCNConv


def rgcn(facts, bases) -> Reference:
    options = {"num_relations": facts.relations + 1, "num_bases": bases or None, "root_weight": False, "bias": False}
    layers = RGCNConv(facts.features or facts.nodes, 16, **options), RGCNConv(16, facts.classes, **options)
    names = {}
    for k, layer in enumerate(layers):
        if bases:
            names |= {f"layer{k}.bases": layer.weight, f"layer{k}.coefficients": layer.comp}
        else:
            names[f"layer{k}.weight"] = layer.weight

    def forward(x, arcs):
        nodes = torch.arange(facts.nodes)
        edge_index = torch.cat([arcs.edge_index, torch.stack([nodes, nodes])], dim=1)
        edge_type = torch.cat([arcs.edge_type, torch.full_like(nodes, facts.relations)])
        return layers[1](relu(layers[0](x, edge_index, edge_type)), edge_index, edge_type)

    return Reference(forward, names)


def check(bases, *more):
    pyg.check("rgcn", {"hidden": 16, "bases": bases}, lambda facts: rgcn(facts, bases), *more)


@pytest.mark.parametrize("pes", pyg.PES)
@pytest.mark.parametrize("graph", pyg.TYPED)
@pytest.mark.parametrize("bases", [0, 3])
def test_rgcn(bases, graph, pes, oracle_layouts):
    check(bases, oracle_layouts(graph, pes), pes)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("graph", pyg.TYPED)
def test_rgcn_on_ranks(graph, oracle_layouts, tmp_path):
    check(3, oracle_layouts(graph, 2), 2, tmp_path)
