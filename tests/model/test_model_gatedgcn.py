"""GatedGCN against a program of PyTorch's that goes arc by arc."""

from functools import partial

import numpy as np
import pytest
from support import pyg
from support.pyg import Reference, Transposed, torch

from mgg.model import build, settings_of
from mgg.model.module import Given, Pass
from mgg.model.program import programs_of
from mgg.vertex.ir import E
from mgg.vertex.run import Work

pytestmark = pytest.mark.slow
#: Columns from which products of arcs are products of matrices, those of what is stored for them alone as well.
LAYERS, COLUMNS = 3, 16
SETTINGS = {"layers": LAYERS, "hidden": COLUMNS}


def gatedgcn(facts, batch=True, residual=True) -> Reference:
    linear = {
        "embedding": torch.nn.Linear(facts.features, COLUMNS),
        "classifier": torch.nn.Linear(COLUMNS, facts.classes),
    }
    names, state, norms = {}, {}, {}
    for name, layer in linear.items():
        names |= {f"{name}.weight": Transposed(layer.weight), f"{name}.bias": layer.bias}
    for k in range(LAYERS):
        names |= {f"layer{k}.{each}": torch.nn.Parameter(torch.empty(COLUMNS, COLUMNS)) for each in "ABCDE"}
        rows = ["b"] + ([] if batch else ["bias"]) + ([] if k else ["w_arc", "b_arc"])
        names |= {f"layer{k}.{each}": torch.nn.Parameter(torch.empty(COLUMNS)) for each in rows}
        for each in [f"layer{k}.norm"] + ([f"layer{k}.arcs"] if k < LAYERS - 1 else []) if batch else []:
            norm = norms[each] = torch.nn.BatchNorm1d(COLUMNS)
            names |= {f"{each}.scale": norm.weight, f"{each}.shift": norm.bias}
            state |= {f"{each}.running_mean": norm.running_mean, f"{each}.running_variance": norm.running_var}
    if facts.relations:
        names["layer0.kinds"] = torch.nn.Parameter(torch.empty(facts.relations, COLUMNS))

    def forward(x, arcs):
        h, (source, target) = linear["embedding"](x), arcs.edge_index
        weight = torch.ones(len(source)) if arcs.edge_weight is None else arcs.edge_weight
        f = weight[:, None] * names["layer0.w_arc"] + names["layer0.b_arc"]
        f = f + names["layer0.kinds"][arcs.edge_type] if facts.relations else f
        for k in range(LAYERS):
            A, B, C, D, E, b = (names[f"layer{k}.{each}"] for each in "ABCDEb")
            z = (h @ D + b)[target] + (h @ E)[source] + f @ C
            gate, zeros = z.sigmoid(), torch.zeros_like(h)
            sums = zeros.index_add(0, target, gate * (h @ B)[source])
            y = h @ A + sums / (zeros.index_add(0, target, gate) + 1e-6)
            y = norms[f"layer{k}.norm"](y) if batch else y + names[f"layer{k}.bias"]
            h = y.relu() + (h if residual else 0)
            if k < LAYERS - 1:
                z = norms[f"layer{k}.arcs"](z) if batch else z
                f = z.relu() + (f if residual else 0)
        return linear["classifier"](h)

    return Reference(forward, names, state)


@pytest.mark.parametrize("pes", pyg.PES)
@pytest.mark.parametrize("graph", [*pyg.GRAPHS, *pyg.LOOPS, "typed", "cora"])
def test_gatedgcn(graph, pes, oracle_layouts):
    pyg.check("gatedgcn", SETTINGS, gatedgcn, oracle_layouts(graph, pes), pes)


def test_without_normalization_and_residual(oracle_layouts):
    make = partial(gatedgcn, batch=False, residual=False)
    pyg.check(
        "gatedgcn", SETTINGS | {"normalization": "none", "residual": False}, make, oracle_layouts("weighted", 2), 2
    )


@pytest.mark.mpi
def test_gatedgcn_on_ranks(oracle_layouts, tmp_path):
    pyg.check("gatedgcn", SETTINGS, gatedgcn, oracle_layouts("weighted", 2), 2, tmp_path)


class Watched(dict):
    """Arrays of arcs in it, their weights apart: the most columns that there are at a time."""

    def __init__(self, found, arcs):
        super().__init__(found)
        self.arcs, self.most = arcs, 0

    def __setitem__(self, value, array):
        super().__setitem__(value, array)
        of_arcs = [(v, x) for v, x in self.items() if v.space is E and v.shape and len(x) == self.arcs]
        held = {id(x if x.base is None else x.base): v.size for v, x in of_arcs}
        self.most = max(self.most, sum(held.values()))


def test_arcs_hold_what_is_predicted(neighborhood, directed, monkeypatch):
    """Layer by layer on the way back: of f, z, their gradients and what these are of no array more."""
    graph, most, run = neighborhood(directed), [], Work.run
    chain = build("gatedgcn", settings_of("gatedgcn", SETTINGS), 6, 3, nodes=12)
    arcs = len(graph.tables(loops=False, typed=True).ends)

    def watched(self, found, part, draws=(0, 0)):
        seen = Watched(found, arcs)
        run(self, seen, part, draws)
        most.append(seen.most)
        found.clear()
        found.update(seen)

    monkeypatch.setattr(Work, "run", watched)
    rng = np.random.default_rng(0)
    weights = {each.name: rng.normal(size=each.shape) for each in chain.parameters}
    state = {name: value.copy() for name, value in chain.state.items()}
    step = Pass(graph, weights, state, training=True)
    x = rng.normal(size=(12, 6))
    gradient = rng.normal(size=(12, 3))
    chain.forward(x, step)
    del most[:]
    chain.backward(gradient, step, False)
    assert not step.arcs
    # The z that comes in, normalized, but for the first layer, is kept by the one before.
    held = [layer.memory(COLUMNS, Given(0, 0, arcs=1)).peak for layer in reversed(programs_of(chain))]
    assert [columns - COLUMNS * (k < LAYERS - 1) for k, columns in enumerate(most)] == held
    assert [columns // COLUMNS for columns in most] == [4, 6, 5]
