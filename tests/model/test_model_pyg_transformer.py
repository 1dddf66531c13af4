"""The graph transformer against PyTorch Geometric's TransformerConv; weights of arcs do not count in either."""

from functools import partial

import pytest
from support import pyg
from support.pyg import Reference, Transposed, torch
from torch.nn.functional import layer_norm
from torch_geometric.nn import TransformerConv

pytestmark = pytest.mark.slow
SETTINGS = {"layers": 2, "hidden": 6, "heads": 3, "dropout": 0.0}


def transformer(facts, gated=True) -> Reference:
    layers = (
        TransformerConv(facts.features, 6, heads=3, beta=gated),
        TransformerConv(18, facts.classes, heads=3, concat=False, beta=gated),
    )
    norm = torch.nn.LayerNorm(18)
    names = {"layer0.norm.scale": norm.weight, "layer0.norm.shift": norm.bias}
    for k, layer in enumerate(layers):
        parts = {"query": layer.lin_query, "key": layer.lin_key, "value": layer.lin_value, "self": layer.lin_skip}
        for name, linear in parts.items():
            names[f"layer{k}.W_{name}"] = Transposed(linear.weight)
            names |= {} if name == "key" else {f"layer{k}.b_{name}": linear.bias}  # that of keys changes nothing
        names |= {f"layer{k}.w_gate": layer.lin_beta.weight} if gated else {}

    def forward(x, arcs):
        hidden = layer_norm(layers[0](x, arcs.edge_index), (18,), norm.weight, norm.bias)
        return layers[1](hidden.relu(), arcs.edge_index)

    return Reference(forward, names)


@pytest.mark.parametrize("pes", pyg.PES)
@pytest.mark.parametrize("graph", [*pyg.GRAPHS, *pyg.LOOPS, pyg.CORA])
def test_transformer(graph, pes, oracle_layouts):
    pyg.check("transformer", SETTINGS, transformer, oracle_layouts(graph, pes), pes)


def test_without_gates(oracle_layouts):
    plain = {"gated": False}
    pyg.check("transformer", SETTINGS | plain, partial(transformer, **plain), oracle_layouts("weighted", 2), 2)


@pytest.mark.mpi
def test_transformer_on_ranks(oracle_layouts, tmp_path):
    pyg.check("transformer", SETTINGS, transformer, oracle_layouts("weighted", 2), 2, tmp_path)
