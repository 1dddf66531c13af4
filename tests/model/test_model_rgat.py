"""RGAT against a program of PyTorch's that goes type by type; of one head also against PyTorch Geometric's RGATConv."""

from functools import partial

import pytest
from support import pyg
from support.pyg import Reference, torch
from torch_geometric.nn import RGATConv
from torch_geometric.utils import softmax

pytestmark = pytest.mark.slow
HIDDEN, HEADS, OUTPUT_HEADS, BASES = 5, 3, 2, 2
SETTINGS = {"hidden": HIDDEN, "heads": HEADS, "output_heads": OUTPUT_HEADS}


def parameter(*shape):
    return torch.nn.Parameter(torch.empty(shape))


def rgat(facts, kind="across", bases=0) -> Reference:
    inputs, names = facts.features or HEADS * HIDDEN, {}
    sizes = (inputs, HEADS, HIDDEN), (HEADS * HIDDEN, OUTPUT_HEADS, facts.classes)
    if not facts.features:
        names["embedding.weight"] = parameter(facts.nodes, inputs)
    for k, (rows, heads, columns) in enumerate(sizes):
        names[f"layer{k}.W"] = parameter(bases or facts.relations, rows, heads * columns)
        names |= {f"layer{k}.a": parameter(facts.relations, bases)} if bases else {}
        names[f"layer{k}.W_self"] = parameter(rows, heads * columns)
        names |= {f"layer{k}.{each}": parameter(facts.relations, heads, columns) for each in ("query", "key")}

    def layer(k, x, arcs):
        _, heads, columns = sizes[k]
        W, query, key = (names[f"layer{k}.{each}"] for each in ("W", "query", "key"))
        W = torch.einsum("rb,bio->rio", names[f"layer{k}.a"], W) if bases else W
        projected = torch.einsum("ni,rio->rno", x, W).reshape(facts.relations, len(x), heads, columns)
        (source, target), kinds = arcs.edge_index, arcs.edge_type
        scores = (projected[kinds, target] * query[kinds]).sum(-1) + (projected[kinds, source] * key[kinds]).sum(-1)
        group = target if kind == "across" else target * facts.relations + kinds
        shares = softmax(torch.nn.functional.leaky_relu(scores, 0.2), group)
        sums = (x @ names[f"layer{k}.W_self"]).reshape(-1, heads, columns)
        return sums.index_add(0, target, shares[..., None] * projected[kinds, source])

    def forward(x, arcs):
        x = names["embedding.weight"] if x is None else x
        hidden = layer(0, x, arcs).flatten(1).relu()
        return layer(1, hidden, arcs).mean(1)

    return Reference(forward, names)


@pytest.mark.parametrize("pes", pyg.PES)
@pytest.mark.parametrize(("kind", "bases"), [("across", 0), ("within", 0), ("across", BASES)])
@pytest.mark.parametrize("graph", pyg.TYPED)
def test_rgat(graph, kind, bases, pes, oracle_layouts):
    make, settings = partial(rgat, kind=kind, bases=bases), {"softmax": kind, "bases": bases}
    pyg.check("rgat", SETTINGS | settings, make, oracle_layouts(graph, pes), pes)


@pytest.mark.mpi
def test_rgat_on_ranks(oracle_layouts, tmp_path):
    pyg.check("rgat", SETTINGS, rgat, oracle_layouts("typed", 2), 2, tmp_path)


@pytest.mark.parametrize("kind", ["across", "within"])
def test_the_program_of_pytorchs_is_rgatconv(kind, oracle_layouts):
    """Where all types share q and k, as they do there."""
    torch.manual_seed(3)
    graph = pyg.Graph.open(oracle_layouts("typed", 1).parent / "graph")
    facts, arcs = graph.manifest, pyg.Arcs.of(graph.rows(0, graph.manifest.nodes))
    layer = RGATConv(facts.features, HIDDEN, facts.relations, attention_mechanism=f"{kind}-relation", bias=False)
    x = torch.randn(facts.nodes, facts.features)
    rows = torch.einsum("ni,rio->rno", x, layer.weight)
    (source, target), kinds = arcs.edge_index, arcs.edge_type
    scores = (rows[kinds, target] @ layer.q + rows[kinds, source] @ layer.k)[:, 0]
    group = target if kind == "across" else target * facts.relations + kinds
    shares = softmax(torch.nn.functional.leaky_relu(scores, 0.2), group)
    expected = torch.zeros(facts.nodes, HIDDEN).index_add(0, target, shares[:, None] * rows[kinds, source])
    torch.testing.assert_close(layer(x, arcs.edge_index, arcs.edge_type), expected, rtol=1e-5, atol=1e-5)
