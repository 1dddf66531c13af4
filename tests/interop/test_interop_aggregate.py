"""aggregate: products, gradients of any order, memory that is shared, what is refused."""

import copy
import subprocess
import sys

import numpy as np
import pytest
from support.graphs import awkward_graphs, make_layout, matrix, relative_error
from support.models.pyg import torch
from support.programs.interop_program import assert_right, derivatives, on_ranks, whole
from torch_geometric.nn import GCNConv

from mgg import interop
from mgg.aggregate import all_techniques
from mgg.errors import InputError
from mgg.kernel.bf16 import from_bf16, to_bf16

WIDTH = 41
GRAPHS = awkward_graphs()


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    folders = {name: tmp_path_factory.mktemp("graph") for name in GRAPHS}
    return lambda name, pes: make_layout(folders[name], GRAPHS[name], pes)


@pytest.fixture
def alone(layouts):
    """Run a program on one PE of the weighted graph."""
    return lambda program, **options: interop.run(
        layouts("weighted", 1), program, width=WIDTH, backend="simulated", **options
    )[0]


@pytest.mark.parametrize("pes", [1, 2, 4])
@pytest.mark.parametrize("graph", GRAPHS)
def test_product_and_gradients_match_torch(graph, pes, layouts):
    assert_right(interop.run(layouts(graph, pes), derivatives, width=WIDTH, backend="simulated"), GRAPHS[graph])


@pytest.mark.parametrize("technique", all_techniques())
def test_every_technique_gives_the_product(technique, layouts):
    pes = 1 if all_techniques()[technique].single_pe else 2
    program = derivatives
    parts = interop.run(layouts("weighted", pes), program, width=WIDTH, technique=technique, backend="simulated")
    assert_right(parts, GRAPHS["weighted"])


@pytest.mark.parametrize("options", [{"ngs": 3, "sums": "atomic"}, {"decide": "paper"}, {"decide": "artifact"}])
def test_gcn_layer_over_gnnadvisor_matches_torch(options, alone):
    """GNNAdvisor's listing 1: a GCN layer over its kernel, whose parameters the Decider finds; a directed graph."""
    csr, layer = GRAPHS["weighted"], GCNConv(7, 5, normalize=False)
    x, seeds = (
        torch.tensor(np.random.default_rng(n).standard_normal((csr.rows, n)).astype(np.float32)) for n in (7, 5)
    )

    def program(graph):
        mine, given = interop.use(copy.deepcopy(layer), graph), x.clone().requires_grad_()
        y = mine(given, graph)
        return y.detach(), *torch.autograd.grad((y * seeds).sum(), [given, mine.lin.weight])

    y, by_x, by_weight = (each.double().numpy() for each in alone(program, technique="gnnadvisor", options=options))
    weight, a = layer.lin.weight.detach().double().numpy(), matrix(csr)
    back = a.T @ seeds.double().numpy()
    np.testing.assert_allclose(y, a @ (x.double().numpy() @ weight.T), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(by_x, back @ weight, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(by_weight, back.T @ x.double().numpy(), rtol=1e-4, atol=1e-3)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("shared", ["1", "0"], ids=["shared memory", "windows"])
def test_products_match_on_ranks(shared, layouts, tmp_path):
    folders = [layouts("weighted", 2), layouts("directed", 2)]
    done = on_ranks("mpi", 2, tmp_path, folders, MGG_MPI_SHARED_MEMORY=shared)
    assert done.returncode == 0, done.stderr
    for number, graph in enumerate(("weighted", "directed")):
        parts = [dict(np.load(tmp_path / f"{number}-{rank}.npz")) for rank in range(2)]
        assert {"program", "program by_x"} <= set(parts[0])
        assert_right(parts, GRAPHS[graph])


@pytest.mark.slow
@pytest.mark.mpi
def test_failing_rank_ends_the_others(layouts, tmp_path):
    done = on_ranks("mpi", 2, tmp_path, [layouts("weighted", 2)], fail=True)
    assert done.returncode != 0
    assert "x is on meta" in done.stderr


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
def test_bf16_products_are_within_their_tolerance(given, layouts):
    csr = GRAPHS["directed"]
    x = np.random.default_rng(0).standard_normal((csr.rows, 5)).astype(np.float32)

    def program(graph):
        mine = torch.tensor(x)[graph.node_ids].to(given).requires_grad_()
        y = interop.aggregate(graph, mine)
        (by_x,) = torch.autograd.grad(y.sum(), mine)
        assert (y.dtype, by_x.dtype) == (torch.float32, given)
        return {"nodes": graph.node_ids.numpy(), "y": y.detach().numpy(), "by_x": by_x.float().numpy()}

    found = whole(interop.run(layouts("directed", 2), program, width=WIDTH, dtype="bf16", backend="simulated"))
    assert relative_error(found["y"], matrix(csr), from_bf16(to_bf16(x))) <= 1e-6
    by_x = matrix(csr).T @ np.ones((csr.rows, 5))
    np.testing.assert_allclose(found["by_x"], by_x, rtol=2**-8 if given == torch.bfloat16 else 1e-6)


def test_torch_gradcheck_passes(alone):
    def program(graph):
        x = torch.randn(graph.rows, 2, generator=torch.Generator().manual_seed(0), requires_grad=True)
        # A linear function: steps may be large, so that float32 suffices.
        numbers = {"eps": 1.0, "atol": 1e-3, "rtol": 1e-4, "fast_mode": True}
        assert torch.autograd.gradcheck(lambda x: interop.aggregate(graph, x), x, **numbers)
        assert torch.autograd.gradgradcheck(lambda x: interop.aggregate(graph, x), x, **numbers)

    alone(program)


def test_input_is_symmetric_memory_and_result_is_not_copied(alone, monkeypatch):
    def program(graph):
        x = graph.input(4)
        x.copy_(torch.randn(graph.rows, 4))
        copied, written = [], graph._plans[False]
        monkeypatch.setattr(torch.Tensor, "copy_", lambda *_: copied.append(1))
        assert x.data_ptr() == written.input(4).ctypes.data
        results = []
        monkeypatch.setitem(graph._plans, False, Spy(written, results))
        y = interop.aggregate(graph, x)
        assert y.data_ptr() == results[0].ctypes.data
        assert not copied
        monkeypatch.undo()

    class Spy:
        def __init__(self, plan, results):
            self.plan, self.results, self.input, self.close = plan, results, plan.input, plan.close

        def __call__(self, dim):
            self.results.append(self.plan(dim))
            return self.results[-1]

    alone(program)


@pytest.mark.parametrize("view", [lambda x: x.T.contiguous().T, lambda x: x[:, :1].expand(-1, 6), lambda x: x.flip(0)])
def test_inputs_may_have_any_strides(view, alone):
    def program(graph):
        x = view(torch.randn(graph.rows, 6))
        assert torch.equal(interop.aggregate(graph, x), interop.aggregate(graph, x.contiguous()))

    alone(program)


@pytest.mark.parametrize("view", [lambda x: x[:, 2:6], lambda x: x[:1, 2:6].expand(len(x), -1)])
def test_overlapping_view_of_the_input_is_copied_safely(view, alone):
    """Four columns of eight, or of one row for all rows, where the copy's first row lies over what is read."""

    def program(graph):
        wide = graph.input(8)
        wide.copy_(torch.randn(graph.rows, 8))
        expected = view(wide).clone()
        assert torch.equal(interop.aggregate(graph, view(wide)), interop.aggregate(graph, expected))

    alone(program)


@pytest.mark.parametrize("columns", [4, 7])
def test_overwritten_saved_tensor_is_detected(columns, alone):
    def program(graph):
        weight = torch.randn(4, 3, requires_grad=True)
        y = graph.input(4) @ weight
        interop.aggregate(graph, torch.randn(graph.rows, columns))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()

    alone(program)


def test_node_data_become_tensors(layouts, tmp_path):
    csr = GRAPHS["directed"]
    rng = np.random.default_rng(0)
    data = {
        "features": rng.random((500, 3), np.float32),
        "labels": rng.integers(-1, 4, 500),
        "splits": np.arange(500) % 4,
    }
    folder = make_layout(tmp_path, csr, 3, **data)

    def program(graph):
        masks = {"train": graph.train_mask, "validation": graph.val_mask, "test": graph.test_mask}
        arrays = {"nodes": graph.node_ids, "x": graph.x, "y": graph.y} | masks
        assert graph.y.dtype == torch.int64
        return {name: tensor.numpy() for name, tensor in arrays.items()}

    found = whole(interop.run(folder, program, width=1, backend="simulated"))
    np.testing.assert_array_equal(found["x"], data["features"])
    np.testing.assert_array_equal(found["y"], data["labels"])
    for code, name in enumerate(("train", "validation", "test"), 1):
        np.testing.assert_array_equal(found[name], data["splits"] == code)
    bare = interop.run(layouts("directed", 1), lambda g: (g.x, g.y, g.train_mask), width=1, backend="simulated")
    assert bare == [(None, None, None)]


def test_gradients_are_summed_over_the_pes(layouts):
    def program(graph):
        layer = torch.nn.Linear(3, 2)
        unused = torch.nn.Parameter(torch.ones(2))
        with torch.no_grad():
            layer.weight.fill_(1)
        if graph.world.rank != 1:  # its loss does not depend on the layer
            layer(torch.full((1, 3), graph.world.rank + 1.0)).sum().backward()
        graph.sum_gradients([*layer.parameters(), unused])
        assert not unused.grad.any()
        assert torch.equal(graph.total(torch.tensor([1, graph.world.rank])), torch.tensor([4, 6]))
        assert torch.equal(graph.total(torch.tensor(0.5, requires_grad=True)), torch.tensor(2.0))
        return layer.weight.grad, layer.bias.grad

    for weight, bias in interop.run(layouts("directed", 4), program, width=1, backend="simulated"):
        assert torch.equal(weight, torch.full((2, 3), 1.0 + 3 + 4))
        assert torch.equal(bias, torch.full((2,), 3.0))


def test_totals_of_any_dtype(layouts):
    """Of booleans and small integers they need more than their type holds."""
    negated = torch.complex(torch.zeros(2), torch.tensor([1.0, 2.0])).conj().imag
    assert negated.is_neg()

    def program(graph):
        found = [
            graph.total(torch.tensor([True, False])),
            graph.total(torch.tensor(100, dtype=torch.int8)),
            graph.total(torch.tensor([[200]], dtype=torch.uint8)),
            graph.total(torch.tensor([1.5, 256.0], dtype=torch.bfloat16)),
            graph.total(torch.tensor([0.25], dtype=torch.float64)),
            graph.total(negated),
        ]
        for wrong, message in (
            (3.0, "values is a float: expected a torch.Tensor"),
            (torch.ones(2, dtype=torch.complex64), "values is torch.complex64, .*: expected dense real numbers"),
            (torch.ones(2).to_sparse(), "values is torch.float32, stored as torch.sparse_coo"),
        ):
            with pytest.raises(InputError, match=message):
                graph.total(wrong)
        return found

    expected = [
        torch.tensor([3, 0]), torch.tensor(300), torch.tensor([[600]]),
        torch.tensor([4.5, 768.0], dtype=torch.bfloat16), torch.tensor([0.75], dtype=torch.float64),
        torch.tensor([-3.0, -6.0]),
    ]  # fmt: skip
    for found in interop.run(layouts("directed", 3), program, width=1, backend="simulated"):
        for mine, right in zip(found, expected, strict=True):
            assert mine.dtype == right.dtype and torch.equal(mine, right)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"backend": "cuda"}, "^unknown backend 'cuda'; known: auto, simulated, mpi, nvshmem$"),
        ({"dtype": "fp16"}, "^unknown type of embeddings 'fp16'; known: bf16, fp32$"),
    ],
)
def test_run_refuses_unknown_options(wrong, message, layouts):
    with pytest.raises(InputError, match=message):
        interop.run(layouts("weighted", 2), print, width=1, **{"backend": "simulated"} | wrong)


def test_frozen_parameters_get_no_gradient(layouts):
    def program(graph):
        layer = torch.nn.Linear(3, 2)
        layer.bias.requires_grad_(False)
        layer(torch.ones(1, 3)).sum().backward()
        graph.sum_gradients(layer.parameters())
        graph.sum_gradients([layer.bias])
        return layer.weight.grad, layer.bias.grad

    for weight, bias in interop.run(layouts("directed", 2), program, width=1, backend="simulated"):
        assert torch.equal(weight, torch.full((2, 3), 2.0))
        assert bias is None


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (lambda n: np.zeros((n, 2), np.float32), r"x is a ndarray: expected a torch\.Tensor"),
        (lambda n: torch.zeros(n + 1, 2), r"x has shape \(401, 2\): PE 0 has 400 rows"),
        (torch.zeros, r"x has shape \(400,\)"),
        (lambda n: torch.zeros(n, WIDTH + 1), rf"x has {WIDTH + 1} columns: .* 1\.\.{WIDTH}"),
        (lambda n: torch.zeros(n, 0), "x has 0 columns"),
        (lambda n: torch.zeros(n, 2, dtype=torch.float64), r"x is torch\.float64: .* takes torch\.float32"),
        (lambda n: torch.zeros(n, 2, dtype=torch.bfloat16), r"x is torch\.bfloat16"),
        (lambda n: torch.zeros(n, 2, device="meta"), "x is on meta: this PE computes on cpu"),
        (lambda n: torch.zeros(n, 2).to_sparse(), r"x is stored as torch\.sparse_coo"),
    ],
)
def test_invalid_aggregations_are_refused(x, message, alone):
    def program(graph):
        with pytest.raises(InputError, match=message) as caught:
            interop.aggregate(graph, x(graph.rows))
        assert "\n" not in str(caught.value)

    alone(program)


def test_closed_graph_and_wrong_width_are_refused(alone):
    def program(graph):
        with pytest.raises(InputError, match=rf"{WIDTH + 1} columns: this graph was opened for 1\.\.{WIDTH}"):
            graph.input(WIDTH + 1)
        return graph

    graph = alone(program)
    with pytest.raises(InputError, match="this graph is closed"):
        interop.aggregate(graph, torch.zeros(graph.rows, 1))
    assert copy.deepcopy(graph) is graph


def test_run_keeps_the_thread_count_of_torch(alone):
    before = torch.get_num_threads()
    assert alone(lambda graph: torch.get_num_threads()) == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("width", [0, -1, 2**17, 3.0, None])
def test_zero_width_is_refused(width, layouts):
    with pytest.raises(InputError, match=rf"width is {width}: expected the most columns .*, 1\.\.65536"):
        interop.run(layouts("weighted", 2), print, width=width, backend="simulated")


@pytest.mark.parametrize("options", [{"stale": 1}, {"boundary": 0.5}, {"wire": "int8"}])
def test_epoch_option_is_refused(options, layouts):
    with pytest.raises(InputError, match=rf"option {next(iter(options))}: needs the epoch, which"):
        interop.run(layouts("weighted", 2), print, width=4, options=options, backend="simulated")


@pytest.mark.slow
def test_pyg_is_imported_only_for_its_layers():
    program = (
        "import sys; sys.modules['torch_geometric'] = None\n"
        "from mgg import interop; interop.aggregate, interop.run, interop.shards\n"
        "assert not hasattr(interop, 'other')\n"
        "try: interop.use\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("mgg.interop.use needs PyTorch Geometric (")
    assert done.stdout.endswith("): pip install 'mgg[torch]'\n")
