"""use: layers of PyTorch Geometric give their own results and gradients through MGG, as products or programs."""

import copy

import numpy as np
import pytest
from support.graphs import random_csr
from support.models.pyg import CALLED, Arcs, torch
from torch.nn import Linear, ReLU, Sequential, Tanh
from torch_geometric.nn import (
    FastRGCNConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    PNAConv,
    ResGatedGraphConv,
    RGCNConv,
    SAGEConv,
    TransformerConv,
)
from torch_geometric.nn.aggr import VarAggregation

from mgg import interop
from mgg.errors import InputError
from mgg.graph.csr import from_arcs, row_ids

pytestmark = pytest.mark.usefixtures("interpreted")
INPUTS, TYPES = 6, 5
AGGREGATORS = ["mean", "min", "max", "std", "var", "sum"]
SCALERS = ["identity", "amplification", "attenuation", "linear", "inverse_linear"]
DEGREES = torch.tensor([3, 10, 20, 30, 20, 5])  # of a training set of its own


def loops():
    """Some nodes have a self-loop, whose weight is not 1."""
    csr, every = random_csr(60, 300, seed=8), np.arange(0, 60, 3)
    ends = np.concatenate([row_ids(csr), every]), np.concatenate([csr.indices, every])
    return from_arcs(*ends, n=60, weights=np.random.default_rng(0).uniform(0.5, 2, len(ends[0])).astype(np.float32))


ALL_GRAPHS = CALLED | {"loops": loops}
LAYERS = {
    "gcn": lambda: GCNConv(INPUTS, 4),
    "gcn improved": lambda: GCNConv(INPUTS, 4, improved=True),
    "gcn without loops": lambda: GCNConv(INPUTS, 4, add_self_loops=False),
    "gcn not normalized": lambda: GCNConv(INPUTS, 4, normalize=False, bias=False),
    "sage": lambda: SAGEConv(INPUTS, 4),
    "sage sum": lambda: SAGEConv(INPUTS, 4, aggr="sum", project=True, root_weight=False),
    "gin": lambda: GINConv(Sequential(Linear(INPUTS, 5), ReLU(), Linear(5, 4)), train_eps=True),
    "gatv2": lambda: GATv2Conv(INPUTS, 4, heads=2, residual=True),
    "gatv2 mean": lambda: GATv2Conv(
        INPUTS, 4, heads=3, concat=False, add_self_loops=False, share_weights=True, bias=False, negative_slope=0.1
    ),
    "transformer": lambda: TransformerConv(INPUTS, 4, heads=2),
    "transformer beta": lambda: TransformerConv(INPUTS, 4, heads=2, concat=False, beta=True, bias=False),
    "transformer alone": lambda: TransformerConv(INPUTS, 4, root_weight=False),
    "gated": lambda: ResGatedGraphConv(INPUTS, 5),
    "gated alone": lambda: ResGatedGraphConv(INPUTS, 5, root_weight=False, bias=False),
    "pna": lambda: PNAConv(INPUTS, 4, AGGREGATORS[:4], SCALERS[:3], DEGREES),
    "pna towers": lambda: PNAConv(INPUTS, 8, AGGREGATORS, SCALERS, DEGREES, towers=2, train_norm=True, post_layers=2),
    "pna divided": lambda: PNAConv(INPUTS, 8, ["max"], ["identity"], DEGREES, towers=2, divide_input=True),
    "rgcn": lambda: RGCNConv(INPUTS, 4, TYPES),
    "rgcn bases": lambda: RGCNConv(INPUTS, 4, TYPES + 1, num_bases=3, aggr="add"),
    "rgcn blocks": lambda: RGCNConv(INPUTS, 4, TYPES, num_blocks=2, aggr="max", root_weight=False, bias=False),
}
#: PyTorch Geometric's R-GCN adds to float32 zeros, whatever its weights are.
CLOSE = {torch.float32: 1e-5, torch.float64: 1e-11}


def made(name, dtype=torch.float32, **changed):
    """The layer with weights away from the special values, such as zeros, that some of them begin with."""
    torch.manual_seed(1)
    layer = LAYERS[name]().to(dtype)
    vars(layer).update(changed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return layer


def graph_of(name):
    return "typed" if "rgcn" in name else "loops" if name.startswith("gcn") else "self"


def given(name, arcs):
    """What PyTorch Geometric's layer takes beside x."""
    more = arcs.edge_type if "rgcn" in name else arcs.edge_weight
    return (arcs.edge_index,) if more is None else (arcs.edge_index, more)


def results(layer, x, *arcs):
    """Output, gradient by x and by each parameter, of a fixed function of the output."""
    x = x.clone().requires_grad_()
    y = layer(x, *arcs)
    (y * torch.cos(x.detach()[:, :1] + torch.arange(y.shape[1]))).sum().backward()
    return y.detach(), x.grad, [parameter.grad for parameter in layer.parameters()]


def assert_close(found, expected, scale=None):
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert (found - expected).abs().max() <= CLOSE[expected.dtype] * (expected.abs().max() if scale is None else scale)


def check(name, graph, dtype, pes, on_pes):
    arcs = Arcs.of(ALL_GRAPHS[graph]())
    x = torch.randn(arcs.csr.rows, INPUTS, generator=torch.Generator().manual_seed(2), dtype=dtype)
    expected, by_x, by_weights = results(made(name, dtype), x, *given(name, arcs))
    layer = made(name, dtype)

    def program(graph):
        mine = interop.use(copy.deepcopy(layer), graph)
        assert list(mine.state_dict()) == list(layer.state_dict())
        y, gradient, _ = results(mine, x[graph.node_ids], graph)
        graph.sum_gradients(mine.parameters())
        return y, gradient, [parameter.grad for parameter in mine.parameters()]

    found = on_pes(program, pes, graph)
    assert_close(torch.cat([part[0] for part in found]), expected)
    assert_close(torch.cat([part[1] for part in found]), by_x)
    # That of a bias under a softmax, which it does not change, is a sum of what cancels: no scale of its own.
    scale = max(each.abs().max() for each in by_weights if each is not None)
    for part in found:
        for mine, whole in zip(part[2], by_weights, strict=True):
            assert_close(mine, torch.zeros_like(mine) if whole is None else whole, scale)


# Of the graph "hub" some PEs have no rows. Types of arcs are left aside: two nodes may have several between them.
@pytest.mark.parametrize(
    ("name", "graph", "dtype", "pes"),
    [(name, graph_of(name), torch.float32, 2) for name in LAYERS]
    + [(name, "hub", torch.float32, 4) for name in ("gcn", "sage", "gatv2", "transformer", "gated", "pna")]
    + [("gcn", "weighted", torch.float32, 1), ("gin", "self", torch.float32, 1)]
    + [(name, "typed", torch.float32, 1) for name in ("gatv2 mean", "pna")]
    + [(name, graph_of(name), torch.float64, 2) for name in ("gatv2", "pna", "rgcn")],
)
def test_switched_layer_matches_pyg(name, graph, dtype, pes, on_pes):
    check(name, graph, dtype, pes, on_pes)


@pytest.mark.parametrize("name", ["gcn", "gatv2", "rgcn"])
def test_edge_index_in_any_order_is_recognized(name, on_pes):
    arcs = Arcs.of(ALL_GRAPHS[graph_of(name)]())
    order = torch.randperm(arcs.csr.arcs)
    edge_index, *more = (each[..., order] for each in given(name, arcs))

    def program(graph):
        x, layer = torch.randn(graph.rows, INPUTS), made(name)
        expected = layer(x, edge_index, *more)
        assert interop.use(layer, graph) is layer
        for _ in range(2):
            assert_close(layer(x, edge_index, *more), expected)
        assert_close(layer(x, graph), expected)
        changed = [each.clone() for each in (edge_index, *more)]
        changed[-1][..., 0] = (changed[-1][..., 0] + 1) % TYPES
        what = "edge_type" if name == "rgcn" else "edge_weight"
        with pytest.raises(InputError, match=f"edge_index and {what} are not the arcs of test, each of them once"):
            layer(x, *changed)
        assert_close(interop.use(layer, None)(x, edge_index, *more), expected)

    on_pes(program, 1, graph_of(name))


def test_copied_model_of_several_layers_matches_pyg(on_pes):
    arcs = Arcs.of(CALLED["self"]())

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            mlp = Sequential(Linear(5, 4), ReLU())
            self.layers = torch.nn.ModuleList([made("gated"), GINConv(mlp), GCNConv(4, 3), GATv2Conv(3, 2)])

        def forward(self, x, edge_index):
            for layer in self.layers:
                x = layer(x, edge_index)
            return x

    def program(graph):
        x, net = torch.randn(graph.rows, INPUTS), Net()
        expected = net(x, arcs.edge_index)
        twin = copy.deepcopy(interop.use(net, graph))
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.zero_()
        assert not twin(x, graph).any()
        assert_close(net(x, graph), expected)

    on_pes(program)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gatv2 mean", "transformer alone"])
def test_dropout_depends_on_seed_pass_and_layer(name, on_pes):
    """Masks go by seed, pass and layer, on any number of PEs; evaluation drops nothing."""
    arcs = Arcs.of(CALLED["self"]())
    x, layers = torch.randn(arcs.csr.rows, INPUTS), [made(name, dropout=0.5), made(name, dropout=0.5), made(name)]

    def program(graph):
        *pair, plain_layer = copy.deepcopy(layers)
        pair = torch.nn.ModuleList(pair)
        interop.use(pair, graph, seed=3)
        mine = x[graph.node_ids]
        found = [pair[0](mine, graph), pair[0](mine, graph), pair[1](mine, graph)]
        interop.use(pair, graph, seed=4)
        found.append(pair[0](mine, graph))
        interop.use(pair, graph, seed=3)
        found += [pair[0](mine, graph), interop.use(plain_layer, graph)(mine, graph), pair.eval()[0](mine, graph)]
        return graph.node_ids, [each.detach() for each in found]

    [(_, alone)] = on_pes(program)
    several = [torch.cat(rows) for rows in zip(*(part[1] for part in on_pes(program, 2)), strict=True)]
    for found, expected in zip(several, alone, strict=True):
        assert_close(found, expected)
    first, *others, again, whole, evaluated = alone
    assert torch.equal(first, again) and torch.equal(whole, evaluated)
    for other in (*others, whole):
        assert (first - other).abs().max() > 0.01
    # What is dropped is made up for: the mean over many masks is what evaluation gives.

    def many(graph):
        layer = interop.use(layers[0], graph)
        with torch.no_grad():
            return sum(layer(x[graph.node_ids], graph) for _ in range(100)) / 100

    [mean] = on_pes(many)
    assert (mean - whole).abs().max() < 0.3 * whole.abs().max()


@pytest.mark.parametrize(
    ("layer", "graph", "message"),
    [
        (lambda: Linear(2, 2), "self", "Linear contains no convolution"),
        (lambda: GATConv(2, 2), "self", "GATConv: cannot aggregate .*; GCNConv, SAGEConv, GINConv, GATv2Conv, .* can,"),
        (lambda: SAGEConv(2, 2, aggr="max"), "self", "SAGEConv: aggr must be mean or sum, found max"),
        (lambda: GCNConv(2, 2, aggr="mean"), "self", "GCNConv: aggr must be sum, found mean"),
        (lambda: GCNConv(2, 2, flow="target_to_source"), "self", "GCNConv: flow must be source_to_target"),
        (lambda: SAGEConv(2, 2), "weighted", "SAGEConv: has no edge weights, and test has some"),
        (lambda: GATv2Conv((6, 6), 4), "self", r"GATv2Conv: in_channels must be one number, found \(6, 6\)"),
        (lambda: GATv2Conv(-1, 4), "self", "GATv2Conv: in_channels is -1 and the layer has no weights yet"),
        (lambda: GATv2Conv(6, 4, edge_dim=3), "self", "GATv2Conv: edge_dim must be None, found 3"),
        (lambda: GATv2Conv(6, 4, flow="target_to_source"), "self", "GATv2Conv: flow must be source_to_target"),
        (lambda: GATv2Conv(6, 4), "weighted", "GATv2Conv: has no edge weights, and test has some"),
        (lambda: GATv2Conv(6, 4), "typed", "GATv2Conv: add_self_loops must be False: the arcs of test have types"),
        (lambda: TransformerConv(6, 4, edge_dim=3), "self", "TransformerConv: edge_dim must be None, found 3"),
        (lambda: ResGatedGraphConv(6, 4, act=Tanh()), "self", r"ResGatedGraphConv: act must be .*\(\), found Tanh"),
        (lambda: PNAConv(6, 4, ["mean", "median"], ["identity"], DEGREES), "self", "PNAConv: aggregators must .*Med"),
        (
            lambda: PNAConv(6, 4, [VarAggregation(semi_grad=True)], ["identity"], DEGREES), "self",
            r"PNAConv: aggregators must be of sum, mean, max, min, std, var, found VarAggregation\(\)",
        ),
        (lambda: PNAConv(6, 4, ["mean"], ["cubic"], DEGREES), "self", "PNAConv: scalers must be of .*, found 'cubic'"),
        (lambda: PNAConv(6, 4, ["mean"], ["linear"], DEGREES, pre_layers=2), "self", "PNAConv: pre_layers must be 1,"),
        (lambda: RGCNConv(6, 4, TYPES), "self", r"RGCNConv: the arcs of test have no types \(edge_type\)"),
        (lambda: RGCNConv(6, 4, 2), "typed", "RGCNConv: num_relations is 2, and the arcs of test are of 5 types"),
        (lambda: RGCNConv(6, 4, TYPES, aggr="min"), "typed", "RGCNConv: aggr must be mean, add or max, found min"),
        (lambda: FastRGCNConv(6, 4, TYPES), "typed", "FastRGCNConv: cannot aggregate through MGG"),
    ],
)  # fmt: skip
def test_unsupported_layers_are_refused_and_nothing_changes(layer, graph, message, on_pes):
    """Nothing is changed then, not even the other layers of the module."""

    def program(graph):
        other = TransformerConv(2, 2) if graph.layout.manifest.weighted is False else GCNConv(2, 2)
        both = layer() if isinstance(layer(), Linear) else torch.nn.ModuleList([other, layer()])
        with pytest.raises(InputError, match=message) as caught:
            interop.use(both, graph)
        assert "\n" not in str(caught.value)
        assert not any({"forward", "propagate"} & vars(module).keys() for module in both.modules())

    on_pes(program, 1, graph)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("gatv2", {"edge_attr": torch.ones(3, 2)}, "edge weights, types and sizes are the graph's: give none with it"),
        ("gatv2", {"return_attention_weights": True}, "GATv2Conv: return_attention_weights must be None"),
        ("gatv2", {"x": None}, "GATv2Conv: x is a NoneType: expected a torch.Tensor"),
        ("gatv2", {"x": torch.ones(3, INPUTS)}, r"x has shape \(3, 6\): PE [01] has 30 rows"),
        (
            "gatv2",
            {"x": torch.ones(30, INPUTS).double()},
            r"parameter W_target is torch\.float32 and x is torch\.float64",
        ),
        ("gatv2", {"edge_index": torch.zeros(2, 3).long()}, "edge_index is a tensor: on several PEs give the graph"),
        ("gcn", {"edge_index": torch.zeros(2, 3).long()}, "edge_index is a tensor: on several PEs give the graph"),
        ("gcn", {"edge_index": None}, "edge_index is a NoneType: expected the graph that the layer uses"),
        ("gcn", {"edge_weight": torch.ones(3)}, "edge weights, types and sizes are the graph's"),
    ],
)
def test_switched_layer_refuses_unsupported_arguments(name, arguments, message, on_pes):
    def program(graph):
        layer = interop.use(made(name), graph)
        with pytest.raises(InputError, match=message):
            layer(**{"x": torch.randn(graph.rows, INPUTS), "edge_index": graph} | arguments)

    on_pes(program, 2)
