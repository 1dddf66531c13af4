"""GatedGCN's backward pass holds as many columns of arcs as its plans predict."""

import numpy as np

from mgg.model import build, settings_of
from mgg.model.module import Given, Pass
from mgg.model.program import programs_of
from mgg.vertex.ir import E
from mgg.vertex.run import Work

LAYERS, COLUMNS = 3, 16
SETTINGS = {"layers": LAYERS, "hidden": COLUMNS}


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


def test_gatedgcn_arcs_take_the_predicted_memory(neighborhood, directed, monkeypatch):
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
