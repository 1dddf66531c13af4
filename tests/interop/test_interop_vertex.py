"""apply and VertexModule: outputs and gradients against dense tensors, memory that is shared, what is refused."""

import copy

import numpy as np
import pytest
from support.models.pyg import CALLED, torch

from mgg import interop
from mgg import vertex as V
from mgg.errors import InputError
from mgg.model import program as layers
from mgg.model.program import Weight
from mgg.vertex.cpu import host

pytestmark = pytest.mark.usefixtures("interpreted")
TYPES = 5
CLOSE = {torch.float32: 1e-5, torch.float64: 1e-12}


@V.program(loops=True)
def convolution(v, W):
    return v.norm * V.sum(e.weight * e.src.norm * (e.src.x @ W) for e in v.inedges)


@V.program
def attention(v, W, a, b, rate):
    """Of heads: the input has two axes, and so has the output."""
    heads, columns = v.x.shape
    rows = V.flatten(v.x) @ W
    scores = [V.tanh(V.dot(u.x, a) + V.dot(v.x, b)) for u in v.innbs]
    shares = V.dropout(V.softmax(scores), rate)
    return V.reshape(rows, (heads, columns)) + V.sum(s * u.x for s, u in zip(shares, v.innbs, strict=True))


@V.program
def largest(v, a):
    return V.max(a * V.tanh(u.x + v.x) for u in v.innbs)


@V.program
def typed(v, W):
    return V.sum(V.mean(e.src.x for e in v.inedges[t]) @ W[t] for t in v.types)


@V.program
def dropped(v, rate):
    return V.dropout(v.x, rate) + 0 * V.sum(u.x for u in v.innbs)


@V.program
def doubled(v):
    return 2 * v.x


def dense_convolution(a, x, W):
    a = a + torch.eye(len(a), dtype=a.dtype)
    scale = a.sum(1) ** -0.5
    return scale[:, None] * (a @ (scale[:, None] * (x @ W)))


def dense_attention(a, x, W, a_source, a_target):
    scores = torch.tanh((x * a_source).sum(-1)[None] + (x * a_target).sum(-1)[:, None])
    present = (a != 0)[:, :, None]
    shares = torch.where(present, scores, -torch.inf).softmax(1).nan_to_num()
    return (x.flatten(1) @ W).reshape(x.shape) + torch.einsum("vuh,uhc->vhc", shares, x)


def dense_largest(a, x, weight):
    messages = weight * torch.tanh(x[None] + x[:, None])
    messages = torch.where((a != 0)[:, :, None], messages, -torch.inf)
    return torch.where((a != 0).any(1)[:, None], messages.amax(1), 0)


#: Shape of x, shapes of the parameters, and what the program computes.
PROGRAMS = {
    "convolution": (convolution, (6,), {"W": (6, 4)}, dense_convolution),
    "attention": (attention, (2, 3), {"W": (6, 6), "a": (2, 3), "b": (2, 3)}, dense_attention),
    "largest": (largest, (4,), {"a": (4,)}, dense_largest),
}


def drawn(name, nodes, dtype):
    """x of all nodes and the parameters."""
    _, shape, shapes, _ = PROGRAMS[name]
    generator = torch.Generator().manual_seed(4)
    tensors = [torch.randn(each, generator=generator, dtype=dtype) for each in ((nodes, *shape), *shapes.values())]
    return tensors[0], dict(zip(shapes, tensors[1:], strict=True))


def weighed(y, x):
    """A function of the output whose gradient by it differs everywhere."""
    return (y.flatten(1) * torch.cos(x.detach().flatten(1)[:, :1] + torch.arange(y[0].numel()))).sum()


def whole(parts, graph, csr):
    """Rows of all PEs in the order of the nodes; sums over the PEs of what has a name."""
    nodes = torch.cat([part["nodes"] for part in parts])
    assert len(nodes) == csr.rows
    return {
        name: torch.cat([part[name] for part in parts])[nodes.argsort()] if name in ("y", "x") else parts[0][name]
        for name in parts[0]
    }


def assert_close(found, expected):
    limit = CLOSE[expected.dtype] * max(expected.abs().max(), 1e-3)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert (found - expected).abs().max() <= limit


def passes(graph, program, x, parameters, **options):
    """Output and gradients on one PE."""
    mine = x[graph.node_ids].requires_grad_()
    weights = {name: torch.nn.Parameter(each.clone()) for name, each in parameters.items()}
    more = {"rate": 0.5} if program is attention else {}
    y = interop.apply(graph, program, mine, {**weights, **more}, **options)
    weighed(y, mine).backward()
    graph.sum_gradients(weights.values())
    return {"nodes": graph.node_ids, "y": y.detach(), "x": mine.grad} | {n: w.grad for n, w in weights.items()}


def compared(name, graph, real, pes, on_pes, **options):
    program, _, _, dense = PROGRAMS[name]
    csr = CALLED[graph]()
    x, parameters = drawn(name, csr.rows, real)
    parts = on_pes(lambda part: passes(part, program, x, parameters), pes, graph, **options)
    found = whole(parts, graph, csr)
    adjacency = torch.tensor(csr.to_scipy(np.float64).toarray(), dtype=real)
    x = x.clone().requires_grad_()
    parameters = {key: value.clone().requires_grad_() for key, value in parameters.items()}
    y = dense(adjacency, x, *parameters.values())
    weighed(y, x).backward()
    expected = {"y": y.detach(), "x": x.grad} | {key: value.grad for key, value in parameters.items()}
    return found, expected


COMPILED = [pytest.mark.slow, pytest.mark.sentinel]


@pytest.mark.parametrize(
    ("name", "graph", "dtype", "pes"),
    [
        ("convolution", "weighted", torch.float64, 4), ("convolution", "directed", torch.float32, 2),
        ("attention", "self", torch.float32, 1), ("attention", "hub", torch.float64, 4),
        ("largest", "self", torch.float64, 1), ("largest", "self", torch.float32, 4),
        pytest.param("attention", "self", torch.float32, 2, marks=COMPILED),
        pytest.param("attention", "self", torch.float64, 2, marks=COMPILED),
    ],
)  # fmt: skip
def test_output_and_gradients_match_the_interpreter(name, graph, dtype, pes, on_pes):
    found, expected = compared(name, graph, dtype, pes, on_pes)
    for key, value in expected.items():
        assert_close(found[key], value)


def test_typed_arcs_match_the_interpreter(on_pes):
    csr = CALLED["typed"]()
    x, W = torch.randn(csr.rows, 3, dtype=torch.float64), torch.randn(TYPES, 3, 2, dtype=torch.float64)
    parts = on_pes(lambda graph: passes(graph, typed, x, {"W": W}), 2, "typed")
    found = whole(parts, "typed", csr)
    targets = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    counts = torch.zeros(TYPES, csr.rows, csr.rows, dtype=torch.float64)
    ends = [torch.tensor(each).long() for each in (csr.types, targets, csr.indices)]
    counts.index_put_(tuple(ends), torch.ones(csr.arcs, dtype=torch.float64), accumulate=True)
    means = counts / counts.sum(2, keepdim=True).clamp(min=1)
    x, W = x.requires_grad_(), W.requires_grad_()
    y = torch.einsum("tvu,ui,tio->vo", means, x, W)
    weighed(y, x).backward()
    for key, value in {"y": y.detach(), "x": x.grad, "W": W.grad}.items():
        assert_close(found[key], value)


def test_any_technique_may_fetch_the_rows(on_pes):
    found, expected = compared("attention", "self", torch.float32, 2, on_pes, technique="mgg")
    for key, value in expected.items():
        assert_close(found[key], value)

    def program(graph):
        with pytest.raises(InputError, match="float64: technique mgg brings float32 rows: take technique halo"):
            interop.apply(graph, doubled, torch.ones(graph.rows, 2, dtype=torch.float64), {})

    on_pes(program, 2, technique="mgg")


def test_bf16_rows_are_within_their_tolerance(on_pes):
    found, expected = compared("attention", "self", torch.float32, 2, on_pes, dtype="bf16")
    assert 1e-6 < (found["y"] - expected["y"]).abs().max() < 2**-7 * expected["y"].abs().max()


def test_wider_halo_replaces_the_last_one(on_pes):
    """The first program goes back over the halo that the second one asked for."""
    narrow, wide = drawn("largest", 60, torch.float32), (torch.randn(60, 9), {"a": torch.randn(9)})

    def program(graph):
        mine = [(x[graph.node_ids].requires_grad_(), parameters) for x, parameters in (narrow, wide)]
        outputs = [interop.apply(graph, largest, x, parameters) for x, parameters in mine]
        for (x, _), y in zip(mine, outputs, strict=True):
            weighed(y, x).backward()
        return torch.cat([graph.node_ids[:, None], *(x.grad for x, _ in mine)], dim=1)

    several, alone = (torch.cat(on_pes(program, pes, width=1)) for pes in (2, 1))
    assert_close(several[several[:, 0].argsort()], alone[alone[:, 0].argsort()])


def test_tensors_are_not_copied_on_one_pe(on_pes, monkeypatch):
    """On one PE, which has no halo."""
    read, written = [], []

    def spy(unit, tables, outside, *rest):
        results = host.run(unit, tables, outside, *rest)
        read.extend(array.ctypes.data for array in outside)
        written.extend(array.ctypes.data for array in results)
        return results

    def program(graph):
        x, weights = torch.randn(graph.rows, 4).requires_grad_(), torch.randn(4).requires_grad_()
        y = interop.apply(graph, largest, x, {"a": weights})
        assert x.data_ptr() in read and weights.data_ptr() in read and y.data_ptr() in written
        read.clear()
        y.sum().backward()
        assert x.data_ptr() in read

    monkeypatch.setattr(layers, "host", Spied(spy))
    on_pes(program)


class Spied:
    """The module of the executor of CPU ranks, whose ``run`` is another."""

    def __init__(self, run):
        self.run = run


@pytest.mark.parametrize("view", [lambda x: x.T.contiguous().T, lambda x: x[:, :1].expand(-1, 6), lambda x: x.flip(0)])
def test_tensors_may_have_any_strides(view, on_pes):
    def program(graph):
        x, W = view(torch.randn(graph.rows, 6)), torch.randn(4, 6).T
        found = interop.apply(graph, convolution, x, {"W": W})
        assert_close(found, interop.apply(graph, convolution, x.contiguous(), {"W": W.contiguous()}))

    on_pes(program)


def test_result_equal_to_the_input_is_a_copy(on_pes):
    @V.program
    def itself(v):
        return V.reshape(v.x, (3, 2))

    def program(graph):
        x = torch.randn(graph.rows, 6, requires_grad=True)
        y = interop.apply(graph, itself, x, {})
        assert torch.equal(y.flatten(1), x) and y.data_ptr() != x.data_ptr()
        gradient = torch.randn(graph.rows, 3, 2)
        (by_x,) = torch.autograd.grad(y, x, gradient)
        assert torch.equal(by_x, gradient.flatten(1)) and by_x.data_ptr() != gradient.data_ptr()

    on_pes(program)


def test_second_backward_and_overwritten_tensors_are_detected(on_pes):
    def program(graph):
        x, weights = torch.randn(graph.rows, 4, requires_grad=True), torch.randn(4)
        y = weighed(interop.apply(graph, largest, x, {"a": weights}), x)
        first, second = (torch.autograd.grad(y, x, retain_graph=True)[0] for _ in range(2))
        assert torch.equal(first, second)
        (by_x,) = torch.autograd.grad(interop.apply(graph, largest, x, {"a": weights}).sum(), x, create_graph=True)
        with pytest.raises(InputError, match="vertex programs have no gradients of gradients"):
            by_x.square().sum().backward()
        weights.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()

    on_pes(program)


def test_only_requested_gradients_are_computed(on_pes):
    def program(graph):
        x, weights = torch.randn(graph.rows, 4), torch.randn(4, requires_grad=True)
        y = interop.apply(graph, largest, x, {"a": weights})
        y.sum().backward()
        assert x.grad is None and weights.grad is not None
        assert not interop.apply(graph, largest, x, {"a": weights.detach()}).requires_grad
        with torch.no_grad():
            assert not interop.apply(graph, largest, x, {"a": weights}).requires_grad
        # A parameter that the output does not depend on has zeros; an input that is not read none.
        x.requires_grad_()
        (by_x,) = torch.autograd.grad(interop.apply(graph, V.program(lambda v: v.degree), x, {}), x, allow_unused=True,
                                      grad_outputs=torch.ones(graph.rows))  # fmt: skip
        assert by_x is None

    on_pes(program)


class TestModule:
    """VertexModule."""

    def test_module_parameters_start_alike_on_every_pe(self, on_pes):
        """They begin alike on every PE, and are those of PyTorch's own modules otherwise."""

        def program(graph):
            own, plain_tensor = torch.nn.Parameter(torch.ones(2, 3)), torch.full((2, 3), 2.0)
            given = {"W": Weight((6, 6)), "a": own, "b": plain_tensor, "rate": 0.0}
            module = interop.VertexModule(graph, attention, given, seed=3)
            assert list(module.state_dict()) == ["W", "a", "b", "passes"]
            assert module.a is own and module.b.data_ptr() == plain_tensor.data_ptr() and module.b.requires_grad
            limit = (6 / 12) ** 0.5
            assert module.W.abs().max() <= limit and module.W.std() > limit / 3
            assert "attention, rate=0.0" in repr(module)
            x = torch.randn(graph.rows, 2, 3)
            twin = copy.deepcopy(module)
            with torch.no_grad():
                twin.W.zero_()
            assert twin.graph is graph and module.W.any()
            twin.load_state_dict(module.state_dict())
            assert torch.equal(twin(x), module(x))
            assert twin.double()(x.double()).dtype == torch.float64
            y = module(x)
            y.square().sum().backward()
            assert all(parameter.grad.any() for parameter in module.parameters())
            return module.W.detach().clone(), interop.VertexModule(graph, attention, given, seed=4).W

        (first, other), (second, _) = on_pes(program, 2)
        assert torch.equal(first, second) and not torch.equal(first, other)

    def test_module_trains_with_the_same_curve_on_two_pes(self, on_pes):
        """The same curve on one PE and on two, float64."""
        target = torch.randn(60, 4, dtype=torch.float64)
        x = torch.randn(60, 6, dtype=torch.float64)

        def program(graph):
            module = interop.VertexModule(graph, convolution, {"W": Weight((6, 4))}).double()
            optimizer, curve = torch.optim.Adam(module.parameters(), lr=0.1), []
            for _ in range(4):
                optimizer.zero_grad()
                loss = (module(x[graph.node_ids]) - target[graph.node_ids]).square().sum()
                loss.backward()
                graph.sum_gradients(module.parameters())
                optimizer.step()
                curve.append(graph.total(loss))
            return torch.stack(curve)

        [alone], [first, second] = on_pes(program, 1), on_pes(program, 2)
        assert torch.equal(first, second) and (alone.diff() < 0).all()
        assert (first - alone).abs().max() <= 1e-12 * alone.max()

    def test_module_dropout_depends_on_node_and_pass(self, on_pes):
        """Masks go by node and pass, on any number of PEs; evaluation drops nothing, and has gradients."""
        rate = 0.4

        def program(graph):
            module = interop.VertexModule(graph, dropped, {"rate": rate}, seed=5)
            x = torch.randn(graph.rows, 50).requires_grad_()
            found = []
            for number in range(2):
                if number == 1:  # a run that goes on has the masks that it would have had
                    state, module = module.state_dict(), interop.VertexModule(graph, dropped, {"rate": rate}, seed=5)
                    module.load_state_dict(state)
                y = module(x)
                (by_x,) = torch.autograd.grad(y.sum(), x)
                assert torch.allclose(y, by_x * x)
                kept = by_x != 0
                assert torch.allclose(by_x[kept], torch.tensor(1 / (1 - rate)))
                found.append(kept)
            other = interop.VertexModule(graph, dropped, {"rate": rate}, seed=6)
            assert (other(x) != 0).ne(found[0]).any()
            y = module.eval()(x)
            assert torch.equal(y, x) and torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.ones_like(x))
            assert int(module.passes) == 2
            return graph.node_ids, *found

        several, alone = on_pes(program, 2), on_pes(program, 1)
        for number in (1, 2):
            masks = torch.cat([part[number] for part in several])[torch.cat([part[0] for part in several]).argsort()]
            assert torch.equal(masks, alone[0][number][alone[0][0].argsort()])
        assert not torch.equal(alone[0][1], alone[0][2])
        assert abs(alone[0][1].float().mean() - (1 - rate)) < 0.02

    @pytest.mark.parametrize(
        ("program", "parameters", "message"),
        [
            (len, {}, r"<built-in function len> is no vertex program: decorate it with @V.program"),
            (largest, {"a": Weight((4,), decay=0.1)}, r"parameter a: decay is the optimizer's in PyTorch"),
            (largest, {"a": torch.ones(4).long()}, r"parameter a is torch\.int64: a parameter is of real numbers"),
            (largest, {"a": (4,)}, r"parameter a is a tuple: give a torch\.Tensor, a number, a string or None"),
            (largest, {"a": torch.ones(4, requires_grad=True) * 2}, r"parameter a is computed .*: give those to"),
            (
                V.program(lambda v, training: v.x * training),
                {"training": Weight((4,))},
                r"training: .* has that attrib",
            ),
        ],
    )
    def test_module_refuses_invalid_programs(self, program, parameters, message, on_pes):
        def on_one(graph):
            with pytest.raises(InputError, match=message) as caught:
                interop.VertexModule(graph, program, parameters)
            assert "\n" not in str(caught.value)

        on_pes(on_one)


@pytest.mark.parametrize(
    ("x", "parameters", "message"),
    [
        (lambda n: np.ones((n, 4)), {}, r"x is a ndarray: expected a torch\.Tensor"),
        (lambda n: torch.ones(n + 1, 4), {}, r"x has shape \(\d+, 4\): PE 0 has \d+ rows, \[rows, columns\]"),
        (torch.ones, {}, r"x has shape \(\d+,\): PE 0"),
        (lambda n: torch.ones(n, 0), {}, r"x has shape \(\d+, 0\): PE 0"),
        (lambda n: torch.ones(n, 4).half(), {}, r"x is torch.float16: .* take torch.float32 or torch.float64"),
        (lambda n: torch.ones(n, 4).long(), {}, r"x is torch.int64: "),
        (lambda n: torch.ones(n, 4).to_sparse(), {}, r"x is stored as torch.sparse_coo: make it dense"),
        (lambda n: torch.ones(n, 4, device="meta"), {}, r"x is on meta: this PE computes on cpu"),
        (lambda n: torch.ones(n, 4), {"a": torch.ones(4, device="meta")}, r"a is on meta: this PE computes on cpu"),
        (lambda n: torch.ones(n, 4), {"a": torch.ones(4).double()}, r"parameter a is torch.float64 and x is torch.flo"),
        (lambda n: torch.ones(n, 4), {"a": np.ones(4)}, r"parameter a is a ndarray: give a torch\.Tensor, a number, a"),
        (lambda n: torch.ones(n, 4), {"a": torch.ones(3)}, r"test_interop_vertex.py, line \d+.*shapes .* do not fit"),
        (lambda n: torch.ones(n, 4), {"b": torch.ones(4)}, r"parameter a is not given|there is no parameter b"),
    ],
)  # fmt: skip
def test_invalid_calls_of_a_program_are_refused(x, parameters, message, on_pes):
    def program(graph):
        with pytest.raises(InputError, match=message) as caught:
            interop.apply(graph, largest, x(graph.rows), {"a": torch.ones(4)} | parameters)
        assert "\n" not in str(caught.value)

    on_pes(program)


def test_float64_with_bf16_rows_and_closed_graph_are_refused(on_pes):
    def program(graph):
        with pytest.raises(InputError, match=r"over a graph with bf16 embeddings take torch\.float32$"):
            interop.apply(graph, doubled, torch.ones(graph.rows, 2).double(), {})
        return graph

    [graph] = on_pes(program, dtype="bf16")
    with pytest.raises(InputError, match="this graph is closed"):
        interop.apply(graph, doubled, torch.ones(graph.rows, 2), {})
