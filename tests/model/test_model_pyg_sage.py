"""GraphSAGE against PyTorch Geometric's SAGEConv, which knows no weights."""

import pytest
from support import pyg
from support.pyg import Reference, Transposed, torch
from torch.nn.functional import normalize, relu
from torch_geometric.nn import SAGEConv

SETTINGS = {"hidden": 16, "dropout": 0.0}


def sage(facts) -> Reference:
    layers = SAGEConv(facts.features, 16), SAGEConv(16, 16)
    classifier = torch.nn.Linear(16, facts.classes)
    names = {"classifier.weight": Transposed(classifier.weight), "classifier.bias": classifier.bias}
    for k, layer in enumerate(layers):
        names |= {f"layer{k}.self.weight": Transposed(layer.lin_r.weight), f"layer{k}.bias": layer.lin_l.bias}
        names[f"layer{k}.neighbors.weight"] = Transposed(layer.lin_l.weight)

    def forward(x, arcs):
        for layer in layers:
            x = normalize(relu(layer(x, arcs.edge_index)))
        return classifier(x)

    return Reference(forward, names)


@pytest.mark.parametrize("pes", pyg.PES)
@pytest.mark.parametrize("graph", ["directed", "hub", "loops", "cora"])
def test_sage(graph, pes, oracle_layouts):
    pyg.check("sage", SETTINGS, sage, oracle_layouts(graph, pes), pes)


@pytest.mark.slow
@pytest.mark.mpi
def test_sage_on_ranks(oracle_layouts, tmp_path):
    pyg.check("sage", SETTINGS, sage, oracle_layouts("directed", 2), 2, tmp_path)
