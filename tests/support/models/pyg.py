"""PyTorch Geometric as the oracle of models: the same weights, the same graph, everything compared in float32.

Importing this module first skips a test module if PyTorch or PyTorch Geometric is missing; with ``CI`` set that is an
error. So tests import ``torch`` from here.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if not os.environ.get("CI"):
    for _package in ("torch", "torch_geometric"):
        if importlib.util.find_spec(_package) is None:
            pytest.skip(f"{_package} is not installed: pip install '.[torch]'", allow_module_level=True)

import torch
from torch.nn.functional import cross_entropy

from mgg import interop  # noqa: F401 - programs import it from here, too
from mgg.backend import simulated
from mgg.graph.build import build
from mgg.graph.csr import Csr, from_arcs, row_ids
from mgg.graph.store import Graph, Manifest
from mgg.model import build as build_model
from mgg.model import settings_of
from mgg.model.initialization import initial_weights
from support.graphs import make_layout, random_csr, typed_csr
from support.programs.model_program import on_ranks, training_pass, whole

#: Relative to each array's largest entry.
TOLERANCE = 1e-5
FEATURES, CLASSES = 12, 4
#: Of the weights. With some seeds the gradient by GIN's epsilon, one long sum, is nearly 0 and has few exact digits.
SEED = 5


@dataclass(frozen=True)
class Transposed:
    """A weight that PyTorch stores transposed, such as that of its Linear."""

    tensor: torch.Tensor


@dataclass
class Reference:
    """A model made of PyTorch Geometric's layers.

    Attributes:
        forward: logits [nodes, classes] of ``(x, arcs)``, in training; x is None where the graph has no features.
        weights: our names -> its parameters, of our shapes except for axes of length 1.
        state: our names of running statistics -> its buffers.
    """

    forward: Callable[[Any, Arcs], torch.Tensor]
    weights: Mapping[str, torch.Tensor | Transposed]
    state: Mapping[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Arcs:
    """The arcs of a graph as PyTorch Geometric takes them.

    Attributes:
        edge_index: int64 [2, arcs], sources and targets.
        edge_weight: float32 [arcs] or None.
        edge_type: int64 [arcs] or None.
        csr: the adjacency, row v the in-neighbours of v.
    """

    edge_index: torch.Tensor
    edge_weight: torch.Tensor | None
    edge_type: torch.Tensor | None
    csr: Csr

    @classmethod
    def of(cls, csr: Csr) -> Arcs:
        """The arcs of ``csr``."""
        ends = torch.tensor(np.stack([csr.indices, row_ids(csr)]).astype(np.int64))
        weights = None if csr.weights is None else torch.tensor(csr.weights)
        types = None if csr.types is None else torch.tensor(csr.types.astype(np.int64))
        return cls(ends, weights, types, csr)

    @property
    def adjacency(self) -> torch.Tensor:
        """A as a sparse matrix, for layers that take no weights beside their arcs."""
        weights = torch.ones(self.csr.arcs) if self.edge_weight is None else self.edge_weight
        size = self.csr.rows, self.csr.columns
        return torch.sparse_coo_tensor(self.edge_index.flip(0), weights, size, check_invariants=True).to_sparse_csr()


def _without_loops(csr: Csr, **weights: Any) -> Csr:
    return from_arcs(row_ids(csr), csr.indices, n=csr.columns, drop_loops=True, **weights)


def _positive() -> Csr:
    csr = random_csr(150, 900, seed=3)
    return _without_loops(csr, weights=np.random.default_rng(4).uniform(0.2, 2, csr.arcs).astype(np.float32))


def _hub() -> Csr:
    """Most arcs lead to one node, so that some of 4 PEs have no row; with more arcs GIN is ill-conditioned."""
    return from_arcs(np.array([0] * 8 + [5, 9]), np.array([*range(1, 9), 7, 14]), n=40)


def _typed(types: int = 5) -> Csr:
    return typed_csr(120, 700, types, seed=6)


def _loops() -> Csr:
    """Every third node has a self-loop, and so have some of the random arcs' nodes."""
    csr, nodes = random_csr(60, 200, seed=8), np.arange(0, 60, 3)
    return from_arcs(np.concatenate([row_ids(csr), nodes]), np.concatenate([csr.indices, nodes]), n=60)


#: Without self-loops, which layers treat differently. The random graphs have nodes without arcs.
GRAPHS: dict[str, Callable[[], Csr]] = {
    "directed": lambda: _without_loops(random_csr(200, 500, seed=5)),
    "weighted": _positive,
    "hub": _hub,
}
#: Graphs for tests of layers and programs.
CALLED = GRAPHS | {"self": lambda: random_csr(60, 300, seed=9), "typed": lambda: typed_csr(60, 300, 5, seed=6)}
#: With self-loops.
LOOPS = {"loops": _loops}
#: Typed arcs, some of them self-loops or parallel.
TYPED = {"typed": _typed, "typed, no features": _typed}
#: An even number of types: the second half are inverses of the first.
PAIRED = {"paired": lambda: _typed(6), "paired, no features": lambda: _typed(6)}


def _node_data(nodes: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(nodes)
    splits = rng.integers(0, 4, nodes)
    splits[:3] = 1, 2, 3
    labels = rng.integers(0, CLASSES, nodes)
    labels[:3] = CLASSES - 1
    splits[~np.isin(labels, labels[splits == 1])] = 0  # every scored class occurs in training
    return {
        "features": rng.standard_normal((nodes, FEATURES)).astype(np.float32),
        "labels": labels.astype(np.int32),
        "splits": splits.astype(np.uint8),
    }


def layouts_below(new_folder: Callable[[str], Path]) -> Callable[[str, int], Path]:
    """``layouts(name, pes)``: the folder of a layout of a graph above, or of ``cora``, made once."""
    folders: dict[str, Path] = {}

    @cache
    def layout(name: str, pes: int) -> Path:
        if name == "cora" and "MGG_DATA_DIR" not in os.environ:
            pytest.skip("MGG_DATA_DIR is not set: no real data here")
        if name not in folders:
            folders[name] = new_folder("graph")
            if name == "cora":
                build("cora", folders[name] / "graph")
        if name == "cora":
            return make_layout(folders[name], None, pes, scheme="edge_balanced")
        csr = (GRAPHS | LOOPS | TYPED | PAIRED)[name]()
        data = _node_data(csr.rows)
        if "no features" in name:
            del data["features"]
        return make_layout(folders[name], csr, pes, scheme="edge_balanced", **data)

    return layout


def weights_of(model: str, settings: dict[str, Any], facts: Manifest) -> dict[str, np.ndarray]:
    """float32 weights: initial ones plus noise, since some are zeros or other special values."""
    sizes = facts.features, facts.classes, facts.nodes, facts.relations
    parameters = build_model(model, settings_of(model, settings), *sizes).parameters
    rng = np.random.default_rng(SEED)
    initial = initial_weights(parameters, SEED)
    return {name: (value + rng.normal(0, 0.1, value.shape)).astype(np.float32) for name, value in initial.items()}


def expected_pass(
    make: Callable[[Manifest], Reference], graph: Graph, weights: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The expected result of ``training_pass``, by PyTorch Geometric in float32."""
    nodes, reference = graph.manifest.nodes, make(graph.manifest)
    assert set(reference.weights) == set(weights)
    parameters = {n: (p.tensor if isinstance(p, Transposed) else p) for n, p in reference.weights.items()}
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(_turned(reference, name, torch.tensor(weights[name])).reshape(parameter.shape))
    features = graph.features(0, nodes)
    x = None if features is None else torch.tensor(features).requires_grad_()
    chosen = torch.tensor(graph.splits(0, nodes) == 1)
    logits = reference.forward(x, Arcs.of(graph.rows(0, nodes)))
    loss = cross_entropy(logits[chosen], torch.tensor(graph.labels(0, nodes)).long()[chosen])
    inputs = parameters if x is None else {"x": x, **parameters}
    gradients = dict(zip(inputs, torch.autograd.grad(loss, list(inputs.values())), strict=True))
    found = {"logits": logits.detach(), "loss": loss.detach().reshape(1), **gradients}
    for name, value in weights.items():
        found[name] = _turned(reference, name, gradients[name]).reshape(value.shape)
    found |= {f"state {name}": value for name, value in reference.state.items()}
    return {name: value.numpy() for name, value in found.items()}


def _turned(reference: Reference, name: str, value: torch.Tensor) -> torch.Tensor:
    return value.T if isinstance(reference.weights[name], Transposed) else value


def check(model: str, settings: dict[str, Any], make: Callable[[Manifest], Reference], folder: Path, pes: int) -> None:
    """Compare outputs, loss, running statistics and all gradients of ``model`` with PyTorch Geometric's.

    Args:
        model: its name.
        settings: of the model; without dropout.
        make: the reference for a graph of these features, classes, nodes and relations.
        folder: a layout for ``pes`` PEs; the graph lies beside it.
        pes: number of PEs, threads.
    """
    graph = Graph.open(folder.parent / "graph")
    weights = weights_of(model, settings, graph.manifest)
    parts = simulated.run(pes, lambda world: training_pass(world, folder, model, settings, weights))
    _compare(whole(parts), expected_pass(make, graph, weights))


def check_on_ranks(cases: list[tuple[str, dict[str, Any], Any, Path]], ranks: int, out: Path) -> None:
    """``check`` for several (model, settings, make, folder) on MPI ranks, which write into the folder ``out``."""
    graphs = [Graph.open(folder.parent / "graph") for *_, folder in cases]
    weights = [weights_of(*case[:2], graph.manifest) for case, graph in zip(cases, graphs, strict=True)]
    passes = [(str(folder), model, settings) for model, settings, _, folder in cases]
    found = on_ranks(ranks, out, passes, weights)
    for (_, _, make, _), graph, values, parts in zip(cases, graphs, weights, found, strict=True):
        _compare(whole(parts), expected_pass(make, graph, values))


def _compare(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].shape == array.shape, name
        assert array.any(), f"{name}: all zeros, so that the comparison shows nothing"
        error = np.abs(found[name] - array).max() / np.abs(array).max()
        assert error <= TOLERANCE, f"{name}: {error:.2g}"
