"""GCN and GIN against PyTorch Geometric: outputs, loss and all gradients from the same weights."""

from dataclasses import replace
from functools import partial

import pytest
from support import pyg
from support.pyg import Reference, Transposed, torch
from torch.nn.functional import relu
from torch_geometric.nn import GCNConv, GINConv


def gcn(facts) -> Reference:
    layers = GCNConv(facts.features, 16), GCNConv(16, facts.classes)
    names = {f"layer{k}.weight": Transposed(layer.lin.weight) for k, layer in enumerate(layers)}
    names |= {f"layer{k}.bias": layer.bias for k, layer in enumerate(layers)}

    def forward(x, arcs):
        hidden = relu(layers[0](x, arcs.edge_index, arcs.edge_weight))
        return layers[1](hidden, arcs.edge_index, arcs.edge_weight)

    return Reference(forward, names)


NORMS = {"batch": torch.nn.BatchNorm1d, "layer": torch.nn.LayerNorm}


def gin(facts, normalization="batch", residual=False) -> Reference:
    names, state, layers, norm_of = {}, {}, [], NORMS[normalization]
    for k in range(2):
        first, second = (
            torch.nn.Linear(16 if k else facts.features, 16, bias=False),
            torch.nn.Linear(16, 16, bias=False),
        )
        norms = {f"layer{k}.mlp0.norm": norm_of(16), f"layer{k}.norm": norm_of(16)}
        inner, outer = norms.values()
        mlp = torch.nn.Sequential(first, inner, torch.nn.ReLU(), second, outer, torch.nn.ReLU())
        layers.append(GINConv(mlp, train_eps=True))
        names |= {f"layer{k}.mlp0.weight": Transposed(first.weight), f"layer{k}.mlp1.weight": Transposed(second.weight)}
        names[f"layer{k}.epsilon"] = layers[-1].eps
        for name, norm in norms.items():
            names |= {f"{name}.scale": norm.weight, f"{name}.shift": norm.bias}
            if normalization == "batch":
                state |= {f"{name}.running_mean": norm.running_mean, f"{name}.running_variance": norm.running_var}
    classifier = torch.nn.Linear(16, facts.classes)
    names |= {"classifier.weight": Transposed(classifier.weight), "classifier.bias": classifier.bias}

    def forward(x, arcs):
        for k, layer in enumerate(layers):
            y = layer(x, arcs.adjacency)
            x = x + y if residual and k else y
        return classifier(x)

    return Reference(forward, names, state)


MODELS = {"gcn": (gcn, {"hidden": 16}), "gin": (gin, {"hidden": 16, "layers": 2})}


def check(model, *more):
    make, settings = MODELS[model]
    pyg.check(model, settings | {"dropout": 0.0}, make, *more)


@pytest.mark.parametrize("pes", pyg.PES)
@pytest.mark.parametrize("graph", [*pyg.GRAPHS, pyg.CORA])
@pytest.mark.parametrize("model", MODELS)
def test_model(model, graph, pes, oracle_layouts):
    check(model, oracle_layouts(graph, pes), pes)


def gcn_of_all_loops(facts) -> Reference:
    """GCN with I on top of the loops that the graph has, as published; GCNConv leaves a loop that it is given alone."""
    reference = gcn(facts)

    def forward(x, arcs):
        loops = (arcs.edge_index[0] == arcs.edge_index[1]).float()
        assert 0 < loops.sum() < facts.nodes
        return reference.forward(x, replace(arcs, edge_weight=1 + loops))

    return replace(reference, forward=forward)


@pytest.mark.parametrize("pes", (1, 2))
def test_self_loops_that_are_kept(pes, oracle_layouts):
    pyg.check("gcn", {"hidden": 16, "dropout": 0.0}, gcn_of_all_loops, oracle_layouts("loops", pes), pes)


@pytest.mark.parametrize("pes", pyg.PES)
@pytest.mark.parametrize("normalization", NORMS)
def test_gin_with_residual_layers(normalization, pes, oracle_layouts):
    settings = {"normalization": normalization, "residual": True}
    make = partial(gin, **settings)
    pyg.check("gin", {**MODELS["gin"][1], "dropout": 0.0, **settings}, make, oracle_layouts("weighted", pes), pes)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("model", MODELS)
def test_model_on_ranks(model, oracle_layouts, tmp_path):
    check(model, oracle_layouts("weighted", 2), 2, tmp_path)
