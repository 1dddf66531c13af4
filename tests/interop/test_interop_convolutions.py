"""use: layers of PyTorch Geometric give their own results, and gradients, when they aggregate through MGG."""

import copy

import numpy as np
import pytest
from support.graphs import random_csr
from support.pyg import GRAPHS, Arcs, torch
from torch.nn import Linear, ReLU, Sequential
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

from mgg import interop
from mgg.errors import InputError
from mgg.graph.csr import from_arcs, row_ids

INPUTS = 6


def loops():
    """Some nodes have a self-loop, whose weight is not 1."""
    csr = random_csr(60, 300, seed=8)
    rows = np.concatenate([row_ids(csr), np.arange(0, 60, 3)])
    columns = np.concatenate([csr.indices, np.arange(0, 60, 3)])
    return from_arcs(
        rows, columns, n=60, weights=np.random.default_rng(0).uniform(0.5, 2, len(rows)).astype(np.float32)
    )


ALL_GRAPHS = GRAPHS | {"loops": loops, "self": lambda: random_csr(80, 400, seed=9)}
LAYERS = {
    "gcn": lambda: GCNConv(INPUTS, 4),
    "gcn improved": lambda: GCNConv(INPUTS, 4, improved=True),
    "gcn without loops": lambda: GCNConv(INPUTS, 4, add_self_loops=False),
    "gcn not normalized": lambda: GCNConv(INPUTS, 4, normalize=False, bias=False),
    "sage": lambda: SAGEConv(INPUTS, 4),
    "sage sum": lambda: SAGEConv(INPUTS, 4, aggr="sum", project=True, root_weight=False),
    "gin": lambda: GINConv(Sequential(Linear(INPUTS, 5), ReLU(), Linear(5, 4)), train_eps=True),
}
UNWEIGHTED = [name for name, make in ALL_GRAPHS.items() if make().weights is None]


@pytest.fixture
def alone(layouts):
    """Run a program on one PE of a graph."""
    return lambda program, graph="directed": interop.run(layouts(graph, 1), program, width=8, backend="simulated")[0]


def made(name):
    torch.manual_seed(1)
    return LAYERS[name]()


def results(layer, x, *arcs):
    """Output, gradient by x and by each parameter, of a fixed function of the output."""
    x = x.clone().requires_grad_()
    y = layer(x, *arcs)
    (y * torch.cos(x.detach()[:, :1] + torch.arange(y.shape[1]))).sum().backward()
    return y.detach(), x.grad, [parameter.grad for parameter in layer.parameters()]


def assert_close(found, expected):
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("pes", [1, 2, 4])
@pytest.mark.parametrize(
    ("name", "graph"),
    [(name, graph) for name in LAYERS for graph in (ALL_GRAPHS if "gcn" in name else UNWEIGHTED)],
)
def test_layer(name, graph, pes, layouts):
    arcs = Arcs.of(ALL_GRAPHS[graph]())
    x = torch.randn(arcs.csr.rows, INPUTS, generator=torch.Generator().manual_seed(2))
    weights = () if arcs.edge_weight is None else (arcs.edge_weight,)
    expected, by_x, by_weights = results(made(name), x, arcs.edge_index, *weights)
    layer = made(name)

    def program(graph):
        mine = interop.use(copy.deepcopy(layer), graph)
        assert list(mine.state_dict()) == list(layer.state_dict())
        y, gradient, _ = results(mine, x[graph.node_ids], graph)
        graph.sum_gradients(mine.parameters())
        return y, gradient, [parameter.grad for parameter in mine.parameters()]

    found = interop.run(layouts(graph, pes), program, width=8, backend="simulated")
    assert_close(torch.cat([part[0] for part in found]), expected)
    assert_close(torch.cat([part[1] for part in found]), by_x)
    for part in found:
        for mine, whole in zip(part[2], by_weights, strict=True):
            assert_close(mine, whole)


@pytest.mark.parametrize("graph", ["directed", "weighted"])
def test_arcs_in_any_order_stand_for_the_graph(graph, alone):
    arcs = Arcs.of(ALL_GRAPHS[graph]())
    order = torch.randperm(arcs.csr.arcs)
    given = [arcs.edge_index[:, order]] + ([] if arcs.edge_weight is None else [arcs.edge_weight[order]])

    def program(graph):
        x = torch.randn(graph.rows, INPUTS)
        layer = made("gcn")
        expected = layer(x, *given)
        assert interop.use(layer, graph) is layer
        for _ in range(2):
            assert_close(layer(x, *given), expected)
        assert_close(layer(x, graph, edge_weight=None), expected)
        given[0][0, 0] = (given[0][0, 0] + 1) % graph.rows
        with pytest.raises(InputError, match="edge_index and edge_weight are not the arcs of test"):
            layer(x, *given)

    alone(program, graph)


def test_a_whole_model_is_switched_and_switched_back(alone):
    arcs = Arcs.of(ALL_GRAPHS["directed"]())

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([made("gcn"), SAGEConv(4, 3)])

        def forward(self, x, edge_index):
            return self.layers[1](self.layers[0](x, edge_index).relu(), edge_index)

    def program(graph):
        x, net = torch.randn(graph.rows, INPUTS), Net()
        expected = net(x, arcs.edge_index)
        assert_close(interop.use(net, graph)(x, graph), expected)
        twin = copy.deepcopy(net)
        with torch.no_grad():
            twin.layers[1].lin_l.weight.zero_()
            twin.layers[1].lin_r.weight.zero_()
            twin.layers[1].lin_l.bias.fill_(7)
        assert (twin(x, graph) == 7).all()
        assert_close(net(x, graph), expected)
        assert torch.equal(interop.use(net, None)(x, arcs.edge_index), expected)

    alone(program)


@pytest.mark.parametrize(
    ("layer", "graph", "message"),
    [
        (lambda: torch.nn.Linear(2, 2), "directed", "Linear contains no convolution"),
        (
            lambda: GATConv(2, 2),
            "directed",
            "GATConv: cannot aggregate through MGG; GCNConv, SAGEConv, GINConv, GATv2Conv, .* can, and a layer of",
        ),
        (lambda: SAGEConv(2, 2, aggr="max"), "directed", "SAGEConv: aggr must be mean or sum, found max"),
        (lambda: GCNConv(2, 2, aggr="mean"), "directed", "GCNConv: aggr must be sum, found mean"),
        (lambda: GCNConv(2, 2, flow="target_to_source"), "directed", "GCNConv: flow must be source_to_target"),
        (lambda: SAGEConv(2, 2), "weighted", "SAGEConv: has no edge weights, and test has some"),
    ],
)
def test_what_cannot_be_switched(layer, graph, message, alone):
    def program(graph):
        both = torch.nn.ModuleList([made("gcn"), layer()]) if "no convolution" not in message else layer()
        with pytest.raises(InputError, match=message):
            interop.use(both, graph)
        assert not any("propagate" in vars(module) for module in both.modules())

    alone(program, graph)


def test_what_a_switched_layer_refuses(layouts):
    arcs = Arcs.of(ALL_GRAPHS["directed"]())

    def program(graph):
        layer, x = interop.use(made("gcn"), graph), torch.randn(graph.rows, INPUTS)
        for given, message in (
            ((arcs.edge_index,), "edge_index is a tensor: on several PEs give the graph"),
            ((None,), "edge_index is a NoneType: expected the graph that the layer uses"),
            ((graph, torch.ones(3)), "edge weights, types and sizes are the graph's"),
        ):
            with pytest.raises(InputError, match=message):
                layer(x, *given)

    interop.run(layouts("directed", 2), program, width=8, backend="simulated")
