"""Layers of the models that are vertex programs, in float64, against the interpreter of what was traced."""

import numpy as np
import pytest
from support.graphs import build_layout, typed_csr
from support.models import needs_types, programmed, small

from mgg import layout
from mgg.backend import simulated
from mgg.graph.csr import from_arcs
from mgg.model import build, models, settings_of
from mgg.model.module import Pass
from mgg.model.neighborhood import Neighborhood
from mgg.model.program import programs_of
from mgg.vertex import ir
from mgg.vertex.autodiff import gradients
from mgg.vertex.interpret import ArcGraph, evaluate

SEED, EPOCH = 5, 2


def interpreted(layer, graph, x, weights, seeds, arc_features):
    """Outputs and gradients of a layer, from its trace as it is: nothing rewritten, nothing compiled."""
    trace = layer.program.trace({"x": layer.shape}, layer.given, arc_inputs=layer.arcs, types=layer.relations)
    tables = graph.tables(**layer._over)
    targets = np.repeat(np.arange(tables.rows), np.diff(tables.ptr))
    arcs = ArcGraph.of(
        tables.rows, targets, tables.ends, types=tables.types, ids=tables.ids, type_count=tables.type_count
    )
    given = [ir.leaf(f"seed {k}", output.space, output.shape) for k, output in enumerate(trace.outputs)]
    inputs = {"x": trace.inputs["x"], **{name: trace.inputs[name] for name in layer.arcs}, **trace.parameters}
    leaves = {
        "x": x.reshape(-1, *layer.shape), "norm": graph.norm(loops=layer.program.loops),
        "scaler": graph.scaler(loops=layer.program.loops),
        "weight": np.ones(len(tables.ends)) if tables.weights is None else tables.weights,
        **{leaf["name"]: seed.reshape(-1, *leaf.shape) for leaf, seed in zip(given, seeds, strict=True)},
        **{name: array.reshape(-1, *layer.arcs[name]) for name, array in arc_features.items()},
        **{name: weights[known] for known, name in layer._keys.items()},
    }  # fmt: skip
    wanted = [*trace.outputs, *gradients(trace.outputs, given, list(inputs.values()))]
    found = evaluate(wanted, arcs, leaves, masks=(SEED, EPOCH))
    return found[: len(given)], dict(zip(inputs, found[len(given) :], strict=True))


@pytest.mark.parametrize("model", filter(programmed, models()))
def test_layers_match_the_interpreter(model, neighborhood, directed, relational):
    graph = relational() if needs_types(model) else neighborhood(directed)
    graph.plan = graph.transposed = None  # they are of float32: products go over the arcs
    chain = build(model, settings_of(model, small(model, 4)), 6, 3, nodes=12, relations=graph.arc_types)
    rng = np.random.default_rng(4)
    layers = programs_of(chain)
    assert layers
    for layer in layers:
        layer.place = 0  # the interpreter counts dropouts from there
        x = rng.normal(size=(12, layer.columns))
        weights = {each.name: rng.normal(size=each.shape) for each in layer.parameters}
        count = len(graph.tables(**layer._over).ends)
        features = {name: rng.normal(size=(count, *shape)) for name, shape in layer.arcs.items()}
        run = Pass(graph, weights, {}, training=True, epoch=EPOCH, seed=SEED, arcs=dict(features))
        found = [layer.forward(x.copy(), run), *(run.arcs[name] for name in layer.keeps)]
        seeds = [rng.normal(size=each.shape) for each in found]
        run.arc_gradients = dict(zip(layer.keeps, seeds[1:], strict=True))
        expected, by = interpreted(layer, graph, x, weights, seeds, features)
        for each, other in zip(found, expected, strict=True):
            assert_close(each, other.reshape(each.shape))
        assert_close(layer.backward(seeds[0].copy(), run), by.pop("x").reshape(x.shape))
        assert set(run.arc_gradients) == set(layer.arcs)
        for name in layer.arcs:
            assert_close(run.arc_gradients[name], by.pop(name).reshape(count, -1))
        for known, name in layer._keys.items():
            assert np.abs(by[name]).max() > 0, name
            assert_close(run.gradients[known], by[name])


#: What turned layers differ in: softmax, features of arcs, extremes, types of arcs, products over weighted arcs.
TURNED = ("gatv2", "gatedgcn", "pna", "rgat", "transformer", "gcn")
#: Rows of four PEs and of two; one has none.
BOUNDS = {1: (0, 24), 2: (0, 9, 24), 4: (0, 7, 7, 19, 24)}


@pytest.fixture
def parts(tmp_path, split_at):
    """``parts(typed, pes)``: a layout of 24 nodes, directed, with weights or types, loops and some arcs twice."""

    def made(typed, pes):
        rng = np.random.default_rng(3)
        rows, columns = rng.integers(0, 24, 90), (24 * rng.random(90) ** 2).astype(int)
        csr = typed_csr(24, 80, 3) if typed else from_arcs(rows, columns, n=24, weights=rng.uniform(0.5, 2, 90))
        folder = tmp_path / f"{typed}-{pes}"
        folder.mkdir()
        with split_at(BOUNDS[pes]):
            return build_layout(folder, csr, pes, features=np.ones((24, 2), np.float32))

    return made


def bytes_of(layer, part):
    """What a PE gets in a first turned backward pass: of products all columns, and once what the graph alone says."""
    turned = layer._trained.turned(False, True)
    columns, of_arcs = 0, 0
    if turned is not None:
        columns, of_arcs = turned.columns + sum(v.size for v in turned.steady), turned.columns_of_arcs
    columns += sum(v.size for v in layer._trained.values if v.op == "product" and v["back"])
    return 8 * (columns * part.transpose.halo + of_arcs * part.transpose.remote.arcs)


@pytest.mark.parametrize("pes", BOUNDS)
@pytest.mark.parametrize("model", TURNED)
def test_turned_layers_match_the_interpreter(model, pes, parts):
    types = 3 if needs_types(model) else 0
    folder, alone = parts(types, pes), parts(types, 1) if pes > 1 else None

    def chain():
        return build(model, settings_of(model, small(model, 4)), 6, 3, nodes=24, relations=types)

    def graph_of(world, part, layer):
        return Neighborhood.prepare(world, part, "halo", {}, 0, 64, "fp32", np.float64, layer.turning())

    names = [layer.name for layer in programs_of(chain())]
    inputs = {}
    rng = np.random.default_rng(4)

    def reference(world):
        found = []
        for layer in programs_of(chain()):
            layer.place = 0
            graph = graph_of(world, layout.load(alone or folder, 0), layer)
            count, size = len(graph.tables(**layer._over).ends), layer._trained.output.size
            x = rng.normal(size=(24, layer.columns))
            weights = {each.name: rng.normal(size=each.shape) for each in layer.parameters}
            features = {name: rng.normal(size=(count, *shape)) for name, shape in layer.arcs.items()}
            seeds = [rng.normal(size=(24, size)), *(rng.normal(size=(count, v.size)) for v in layer._trained.arcs)]
            inputs[layer.name] = x, weights, features, seeds, np.array(graph.tables(**layer._over).ptr)
            found.append(interpreted(layer, graph, x, weights, seeds, features)[1])
            graph.close()
        return found

    expected = dict(zip(names, simulated.run(1, reference)[0], strict=True))

    def program(world):
        part, found = layout.load(folder, world.rank), []
        lo, hi = part.lo, part.hi
        for layer in programs_of(chain()):
            assert any(layer.turning())
            layer.place = 0
            layer.turn()
            graph = graph_of(world, part, layer)
            x, weights, features, seeds, ptr = inputs[layer.name]
            arcs = slice(ptr[lo], ptr[hi])
            mine = {name: array[arcs] for name, array in features.items()}
            run = Pass(graph, weights, {}, training=True, epoch=EPOCH, seed=SEED, arcs=mine)
            layer.forward(x[lo:hi].copy(), run)
            run.arc_gradients = {name: seed[arcs] for name, seed in zip(layer.keeps, seeds[1:], strict=True)}
            before = world.counters.embeddings()
            by = layer.backward(seeds[0][lo:hi].copy(), run)
            assert world.counters.embeddings() - before == bytes_of(layer, part)
            found.append((by, dict(run.arc_gradients), dict(run.gradients)))
            graph.close()
        return found

    runs = [simulated.run(pes, program) for _ in range(2)]
    for k, layer in enumerate(programs_of(chain())):
        by = dict(expected[layer.name])
        x, _, _, _, ptr = inputs[layer.name]
        assert_close(np.concatenate([run[k][0] for run in runs[0]]), by.pop("x").reshape(x.shape))
        for name in layer.arcs:
            assert_close(np.concatenate([run[k][1][name] for run in runs[0]]), by.pop(name).reshape(ptr[-1], -1))
        for known, name in layer._keys.items():
            assert_close(sum(run[k][2][known] for run in runs[0]), by[name])
        for one, other in zip(*runs, strict=True):
            assert np.array_equal(one[k][0], other[k][0])
            assert all(np.array_equal(one[k][2][name], other[k][2][name]) for name in one[k][2])


def assert_close(found, expected):
    assert np.abs(found - expected).max() <= 1e-10 * np.abs(expected).max()
