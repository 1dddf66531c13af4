"""Models against PyTorch Geometric, or their formulas: outputs, loss and all gradients from the same weights."""

from functools import partial

import pytest
from support.models import pyg, references
from support.models.pyg import torch
from torch.nn.functional import leaky_relu
from torch_geometric.nn import RGATConv
from torch_geometric.utils import softmax

PLAIN = {"dropout": 0.0}
GIN = PLAIN | {"hidden": 16, "layers": 2}
HEADS = PLAIN | {"hidden": 6, "heads": 3, "output_heads": 2, "attention_dropout": 0.0}
APPNP = PLAIN | {"hidden": 16, "steps": 4, "teleport": 0.2}
TRANSFORMER = PLAIN | {"layers": 2, "hidden": 6, "heads": 3}
RGAT = {"hidden": 5, "heads": 3, "output_heads": 2}
GATED = {"layers": 3, "hidden": 16}
COMPGCN = PLAIN | {"hidden": 6, "layers": 3, "bases": 0, "normalization": "none"}
#: Graphs and PEs. The first three have no loops: layers differ in what they do with them.
USUAL = (("directed", 1), ("weighted", 4), ("hub", 4))
ALL = (*USUAL, ("loops", 4))
#: By case: options of the reference, those among our settings that go by the same name, other settings, graphs.
CASES = {
    "gcn": ({}, {}, PLAIN | {"hidden": 16}, (("cora", 4), *USUAL)),
    "gin": ({}, {}, GIN, USUAL),
    "gin, residual": ({}, {"normalization": "batch", "residual": True}, GIN, [("weighted", 4)]),
    "gin, layer norms": ({}, {"normalization": "layer", "residual": True}, GIN, [("weighted", 4)]),
    "sage": ({}, {}, PLAIN | {"hidden": 16}, [("hub", 4), ("loops", 4), ("directed", 1)]),
    "sgc": ({}, {}, {"hops": 3}, USUAL),
    # With products of a technique, and arc by arc, where this little drops none of them.
    "appnp": ({}, {}, APPNP | {"arc_dropout": 0.0}, USUAL),
    "appnp, by arcs": ({}, {}, APPNP | {"arc_dropout": 1e-12}, USUAL),
    # Weights of arcs do not count in these four.
    "gat": ({}, {}, HEADS, ALL),
    "gatv2": ({}, {}, HEADS, ALL),
    "gatv2, shared": ({}, {"shared": True}, HEADS, [("weighted", 2)]),
    "transformer": ({}, {}, TRANSFORMER, ALL),
    "transformer, no gates": ({}, {"gated": False}, TRANSFORMER, [("weighted", 2)]),
    # Where nodes have several neighbors, mostly: a deviation that is nearly 0 has a gradient that float32 knows few
    # digits of, and that jumps where the variance is 1e-5. test_model_programs.py compares others in float64.
    "pna": ({}, {}, PLAIN | {"layers": 2, "hidden": 6}, [("loops", 1), ("hub", 4), ("weighted", 4)]),
    "rgcn": ({}, {"bases": 0}, {"hidden": 16}, [("typed", 1), ("typed, no features", 4)]),
    "rgcn, bases": ({}, {"bases": 3}, {"hidden": 16}, [("typed", 4), ("typed, no features", 1)]),
    "rgat": ({}, {}, RGAT, [("typed, no features", 4), ("typed", 1)]),
    "rgat, within": ({"kind": "within"}, {}, RGAT | {"softmax": "within"}, [("typed", 4)]),
    "rgat, bases": ({}, {"bases": 2}, RGAT, [("typed", 4)]),
    "gatedgcn": ({}, {}, GATED, [("hub", 4), ("loops", 4), ("typed", 1), ("weighted", 4)]),
    "gatedgcn, plain": (
        {"batch": False}, {"residual": False}, GATED | {"normalization": "none"}, [("weighted", 2)],
    ),
    "compgcn": ({}, {"composition": "corr", "bases": 2}, COMPGCN, [("paired, no features", 4)]),
    "compgcn, mult": ({}, {"composition": "mult", "normalization": "batch"}, COMPGCN, [("paired", 1)]),
    "compgcn, sub": ({}, {"composition": "sub", "inverses": False}, COMPGCN, [("typed", 4)]),
}  # fmt: skip


def case(name):
    """Model, settings and what makes the reference."""
    model, (own, both, settings, _) = name.split(",")[0], CASES[name]
    return model, settings | both, partial(getattr(references, model), **own, **both)


@pytest.mark.parametrize(
    ("name", "graph", "pes"),
    [
        pytest.param(name, graph, pes, marks=[pytest.mark.slow] if graph == "cora" else [])
        for name, (*_, graphs) in CASES.items()
        for graph, pes in graphs
    ],
)
def test_models_match_pyg(name, graph, pes, oracle_layouts):
    pyg.check(*case(name), oracle_layouts(graph, pes), pes)


@pytest.mark.parametrize("pes", (1, 2))
def test_kept_self_loops_match_pyg(pes, oracle_layouts):
    pyg.check(*case("gcn")[:2], references.gcn_of_all_loops, oracle_layouts("loops", pes), pes)


@pytest.mark.slow
@pytest.mark.mpi
def test_models_match_pyg_on_ranks(oracle_layouts, tmp_path):
    """Compiled, as users have them; each model on the last of its graphs."""
    chosen = {name: graphs[-1][0] for name, (*_, graphs) in CASES.items() if name in ("appnp, by arcs", "rgcn, bases")
              or "," not in name}  # fmt: skip
    pyg.check_on_ranks([(*case(name), oracle_layouts(graph, 2)) for name, graph in chosen.items()], 2, tmp_path)


@pytest.mark.parametrize("kind", ["across", "within"])
def test_rgat_program_matches_rgatconv(kind, oracle_layouts):
    """Where all types share q and k, as they do there."""
    torch.manual_seed(3)
    graph = pyg.Graph.open(oracle_layouts("typed", 1).parent / "graph")
    facts, arcs = graph.manifest, pyg.Arcs.of(graph.rows(0, graph.manifest.nodes))
    layer = RGATConv(facts.features, 5, facts.relations, attention_mechanism=f"{kind}-relation", bias=False)
    x = torch.randn(facts.nodes, facts.features)
    rows = torch.einsum("ni,rio->rno", x, layer.weight)
    (source, target), kinds = arcs.edge_index, arcs.edge_type
    scores = (rows[kinds, target] @ layer.q + rows[kinds, source] @ layer.k)[:, 0]
    group = target if kind == "across" else target * facts.relations + kinds
    shares = softmax(leaky_relu(scores, 0.2), group)
    expected = torch.zeros(facts.nodes, 5).index_add(0, target, shares[:, None] * rows[kinds, source])
    torch.testing.assert_close(layer(x, arcs.edge_index, arcs.edge_type), expected, rtol=1e-5, atol=1e-5)
