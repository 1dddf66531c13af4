"""PNA against PyTorch Geometric's PNAConv of one tower; weights of arcs do not count in either."""

import pytest
from support import pyg
from support.pyg import Reference, Transposed, torch
from torch_geometric.nn import PNAConv
from torch_geometric.utils import degree

pytestmark = pytest.mark.slow
LAYERS, COLUMNS = 2, 6
SETTINGS = {"layers": LAYERS, "hidden": COLUMNS, "dropout": 0.0}
AGGREGATORS, SCALERS = ["mean", "max", "min", "std"], ["identity", "amplification", "attenuation"]


def pna(facts) -> Reference:
    embedding, classifier = torch.nn.Linear(facts.features, COLUMNS), torch.nn.Linear(COLUMNS, facts.classes)
    layers = [PNAConv(COLUMNS, COLUMNS, AGGREGATORS, SCALERS, torch.tensor([0, 1])) for _ in range(LAYERS)]
    norms, parts, names, state = [torch.nn.BatchNorm1d(COLUMNS) for _ in layers], [], {}, {}
    for k, (layer, norm) in enumerate(zip(layers, norms, strict=True)):
        # Ours has the matrix before the aggregation in two parts, and none behind that after it: one does for both.
        target, source = (torch.nn.Parameter(torch.empty(COLUMNS, COLUMNS)) for _ in range(2))
        before, after = layer.pre_nns[0][0], layer.post_nns[0][0]
        del before.weight
        parts.append((before, target, source))
        torch.nn.init.eye_(layer.lin.weight), torch.nn.init.zeros_(layer.lin.bias), torch.nn.init.zeros_(after.bias)
        names |= {f"layer{k}.W_target": Transposed(target), f"layer{k}.W_source": Transposed(source)}
        names |= {f"layer{k}.b_message": before.bias, f"layer{k}.W": Transposed(after.weight)}
        names |= {f"layer{k}.norm.scale": norm.weight, f"layer{k}.norm.shift": norm.bias}
        state |= {f"layer{k}.norm.running_mean": norm.running_mean}
        state |= {f"layer{k}.norm.running_variance": norm.running_var}
    for name, linear in (("embedding", embedding), ("classifier", classifier)):
        names |= {f"{name}.weight": Transposed(linear.weight), f"{name}.bias": linear.bias}

    def forward(x, arcs):
        x, degrees = embedding(x), degree(arcs.edge_index[1], len(x))
        for layer, norm, (before, target, source) in zip(layers, norms, parts, strict=True):
            before.weight = torch.cat([target, source], 1)
            layer.aggr_module.avg_deg_log.fill_(float((degrees + 1).log().mean()))
            x = x + norm(layer(x, arcs.edge_index)).relu()
        return classifier(x)

    return Reference(forward, names, state)


@pytest.mark.parametrize("pes", pyg.PES)
#: Where nodes have several neighbors, mostly: a deviation that is nearly 0 has a gradient that float32 knows few digits
#: of, and that jumps where the variance is 1e-5. In float64 every graph is compared (test_model_programs.py).
@pytest.mark.parametrize("graph", ["weighted", "hub", "loops"])
def test_pna(graph, pes, oracle_layouts):
    pyg.check("pna", SETTINGS, pna, oracle_layouts(graph, pes), pes)


@pytest.mark.mpi
def test_pna_on_ranks(oracle_layouts, tmp_path):
    pyg.check("pna", SETTINGS, pna, oracle_layouts("weighted", 2), 2, tmp_path)
