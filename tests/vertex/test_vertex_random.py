"""Random programs against PyTorch's autograd over dense [types, targets, sources] masks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs.arc_graphs import drawn
from support.models.pyg import torch
from support.vertex.random_programs import programs, random_graph, values

from mgg.vertex import ir
from mgg.vertex.autodiff import gradients
from mgg.vertex.interpret import evaluate
from mgg.vertex.ir import D, E, P, R, S, T

TOLERANCE = 1e-10
#: Axes of a dense value that have more than one entry; all have three before those of its shape.
AXES = {P: (), T: (0,), D: (1,), S: (2,), R: (0, 1), E: (0, 1, 2)}
#: Of tensors with as many axes as the result.
POINTWISE = {
    **{op: getattr(torch, op) for op in ("negative", "tanh", "sigmoid", "relu", "abs", "square", "add", "subtract")},
    **{op: getattr(torch, op) for op in ("multiply", "maximum", "minimum")},
    "elu": torch.nn.functional.elu,
    "exp": lambda x: x.tanh().exp(),
    "log": lambda x: (x**2 + 0.5).log(),
    "sqrt": lambda x: (x**2 + 0.5).sqrt(),
    "reciprocal": lambda x: 1 / (x**2 + 0.5),
    "divide": lambda x, y: x / (y**2 + 0.5),
    "where": lambda condition, x, y: torch.where(condition > 0, x, y),
    "stop": torch.Tensor.detach,
}


class Dense:
    """Values as tensors [types or 1, targets or 1, sources or 1, *shape], so that seeing one from an arc is no work.

    Args:
        graph: no two arcs are alike.
        leaves: tensor of each input, by its name.
    """

    def __init__(self, graph, leaves):
        self.leaves, self.found = leaves, {}
        self.sizes = graph.type_count, graph.vertices, graph.vertices
        arcs = zip(graph.targets.tolist(), graph.types.tolist(), graph.sources.tolist(), strict=True)
        self.arcs = sorted(arcs, key=lambda arc: (arc[0], arc[1], graph.ids[arc[2]]))
        self.mask = torch.zeros(self.sizes, dtype=torch.bool)
        for v, t, u in self.arcs:
            self.mask[t, v, u] = True

    def rows(self, x, space):
        """``x`` as the interpreter has it."""
        x = self.whole(x, space)
        if space is E:
            picked = [x[t, v, u] for v, t, u in self.arcs]
        elif space is R:
            picked = [x[t, v, 0] for v, t in sorted({(v, t) for v, t, _ in self.arcs})]
        else:
            return x.reshape((*(self.sizes[axis] for axis in AXES[space]), *x.shape[3:]))
        return torch.stack(picked) if picked else x.new_zeros((0, *x.shape[3:]))

    def whole(self, x, space):
        sizes = (size if axis in AXES[space] else 1 for axis, size in enumerate(self.sizes))
        return x.expand(*sizes, *x.shape[3:])

    def exists(self, x, space):
        """Where ``x``, which is whole, has a row."""
        there = self.mask if space is E else self.mask.any(2, keepdim=True) if space is R else torch.tensor(True)
        return there.reshape(there.shape + (1,) * (x.dim() - there.dim())).expand(x.shape)

    def reduced(self, x, finer, coarser, none, function):
        """``function`` over the rows that belong to each."""
        x = self.whole(x, finer)
        x = torch.where(self.exists(x, finer), x, none)
        if (finer, coarser) == (S, D):
            return x.transpose(1, 2)
        return function(x, tuple(axis for axis in AXES[finer] if axis not in AXES[coarser]), keepdim=True)

    def total(self, x, finer, coarser):
        return self.reduced(x, finer, coarser, 0.0, torch.sum)

    def largest(self, x, finer, coarser):
        result = self.reduced(x, finer, coarser, -torch.inf, torch.amax)
        return torch.where(result > -torch.inf, result, 0.0)

    def mean(self, x, finer, coarser):
        count = self.total(torch.ones_like(x), finer, coarser).clamp(min=1)
        return self.total(x, finer, coarser) / count

    def of(self, node):
        if node not in self.found:
            self.found[node] = self.compute(node, [self.of(operand) for operand in node.operands])
        return self.found[node]

    def leaf(self, node):
        x = self.leaves[node.attributes["name"]]
        if node.space is E:
            places = torch.tensor(self.arcs, dtype=torch.long).reshape(-1, 3).T
            return x.new_zeros((*self.sizes, *node.shape)).index_put((places[1], places[0], places[2]), x)
        sizes = [size if axis in AXES[node.space] else 1 for axis, size in enumerate(self.sizes)]
        return x.reshape((*sizes, *node.shape))

    def compute(self, node, operands):
        if node.op == "input":
            return self.leaf(node)
        if node.op in POINTWISE:
            aligned = [x.reshape(x.shape + (1,) * (3 + len(node.shape) - x.dim())) for x in operands]
            return POINTWISE[node.op](*aligned)
        return getattr(self, f"_{node.op}")(node, *operands)

    def _leaky_relu(self, node, x):
        return torch.nn.functional.leaky_relu(x, node.attributes["slope"])

    def _power(self, node, x):
        return (x**2 + 0.5) ** node.attributes["exponent"]

    def _cast(self, node, x):
        return x.transpose(1, 2) if (node.operands[0].space, node.space) == (D, S) else x

    def _total(self, node, x):
        return self.total(x, node.operands[0].space, node.space)

    def _maximum_of(self, node, x):
        return self.largest(x, node.operands[0].space, node.space)

    def _minimum_of(self, node, x):
        return -self.largest(-x, node.operands[0].space, node.space)

    def _mean(self, node, x):
        return self.mean(x, node.operands[0].space, node.space)

    def _deviation(self, node, x):
        spaces = node.operands[0].space, node.space
        return (self.mean((x - self.mean(x, *spaces)) ** 2, *spaces) + 0.1).sqrt()

    def _attention(self, node, x, scores):
        finer, scores = node.operands[0].space, self.whole(scores, node.operands[0].space)
        scores = torch.where(self.exists(scores, finer), scores, -1e30)
        share = (scores - self.reduced(scores, finer, node.space, -1e30, torch.logsumexp)).exp()
        return self.total(share.reshape(share.shape + (1,) * (x.dim() - share.dim())) * x, finer, node.space)

    def _matmul(self, node, x, w):
        lead, rest = "abcd"[: x.dim() - 4], "efgh"[: w.dim() - 4]
        return torch.einsum(f"tvu{lead}k,tvuk{rest}->tvu{lead}{rest}", *self.met([x, w]))

    def _gram(self, node, x, y):
        lead, rest = "abcd"[: x.dim() - 4], "efgh"[: len(node.shape) - 1]
        # Where both meet: on every axis that one of them has, and from a target and a source on in arcs.
        axes = {axis for operand in node.operands for axis in AXES[operand.space]}
        common = next(space for space in (P, T, D, S, R, E) if axes <= set(AXES[space]))
        x, y = self.whole(x, common), self.whole(y, common)
        each = torch.einsum(f"tvu{lead}k,tvu{lead}{rest}->tvuk{rest}", x, y)
        return each if common is node.space else self.total(each, common, node.space)

    def _dot(self, node, x, y):
        return (x * y).sum(-1)

    def _sum_axis(self, node, x):
        return x.sum(3 + node.attributes["axis"])

    def _repeat_axis(self, node, x):
        axis = 3 + node.attributes["axis"]
        return x.unsqueeze(axis).repeat_interleave(node.attributes["count"], axis)

    def _reshape(self, node, x):
        return x.reshape(*x.shape[:3], *node.shape)

    def _transpose(self, node, x):
        return x.transpose(3, 4)

    def _concat(self, node, *parts):
        return torch.cat(self.met(parts), -1)

    def _slice(self, node, x):
        return x.narrow(-1, node.attributes["first"], node.shape[-1])

    def _pad(self, node, x):
        first = node.attributes["first"]
        return torch.nn.functional.pad(x, (first, node.shape[-1] - first - x.shape[-1]))

    def _by_type(self, node, x):
        return x.reshape(self.sizes[0], 1, 1, *node.shape)

    def _all_types(self, node, x):
        return self.whole(x, T).reshape(1, 1, 1, *node.shape)

    @staticmethod
    def met(operands):
        sizes = [max(sizes) for sizes in zip(*(x.shape[:3] for x in operands), strict=True)]
        return [x.expand(*sizes, *x.shape[3:]) for x in operands]


def close(found, expected, what):
    expected = expected.detach().numpy()
    assert found.shape == expected.shape, what
    assert np.isfinite(expected).all(), what
    if expected.size:
        assert np.abs(found - expected).max() <= TOLERANCE * max(1, np.abs(expected).max()), what


def check(data):
    seed = data.draw(st.integers(0, 2**16))
    graph = random_graph(seed)
    nodes = data.draw(programs(graph.type_count))
    outputs = values(nodes)
    seeds = [ir.leaf(f"seed {k}", value.space, value.shape) for k, value in enumerate(outputs)]
    inputs = [value for value in ir.walk(outputs) if value.op == "input"]
    arrays = drawn([*outputs, *seeds], graph, seed)
    leaves = {value["name"]: torch.tensor(arrays[value["name"]], requires_grad=True) for value in inputs}
    dense = Dense(graph, leaves)
    expected = [dense.rows(dense.of(node), node.space) for node in nodes]
    for value, array, tensor in zip(outputs, evaluate(outputs, graph, arrays), expected, strict=True):
        close(array, tensor, value)
    loss = sum((x * torch.tensor(arrays[seed["name"]])).sum() for x, seed in zip(expected, seeds, strict=True))
    found = evaluate(gradients(outputs, seeds, inputs), graph, arrays)
    by = [torch.zeros_like(leaf) for leaf in leaves.values()]
    if loss.requires_grad:
        given = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        by = [none if each is None else each for none, each in zip(by, given, strict=True)]
    for value, array, tensor in zip(inputs, found, by, strict=True):
        close(array, tensor, value["name"])


@settings(max_examples=60, derandomize=True)
@given(data=st.data())
def test_chosen_programs_match_autograd(data):
    check(data)


@pytest.mark.slow
@settings(max_examples=300, derandomize=True)
@given(data=st.data())
def test_random_programs_match_autograd(data):
    check(data)
