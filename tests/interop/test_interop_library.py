"""Training in PyTorch Geometric by our own loop: the same curve as ours, records that say so, what is refused."""

import sys
from functools import partial

import click
import numpy as np
import pytest
from click.core import ParameterSource
from support.graphs.train_graphs import layouts_below
from support.models import pyg
from support.programs.train_program import Stop, result_arrays
from support.ranks.stopped import ALWAYS

from mgg import layout
from mgg.backend import launch
from mgg.backend.simulated import SimulatedWorld
from mgg.cli.training.train import _library
from mgg.cli.training.train import train as command
from mgg.errors import InputError, MachineError, StoppedError
from mgg.interop import sampling
from mgg.interop.pyg_training import LibraryTrainer
from mgg.interop.sampling import SampledTrainer, Sampler
from mgg.kernel.random import stream_key
from mgg.records import read_run
from mgg.train import loop, train
from mgg.train.trainer import Trainer

#: What both sides can agree on: dropout draws other numbers.
ALIKE = {
    "gcn": {"hidden": 8, "dropout": 0.0},
    "gat": {"hidden": 4, "heads": 2, "output_heads": 2, "dropout": 0.0, "attention_dropout": 0.0},
    "appnp": {"hidden": 8, "steps": 3, "dropout": 0.0, "arc_dropout": 0.0},
    "gin": {"hidden": 8, "layers": 2, "dropout": 0.0},
    "sage": {"hidden": 8, "dropout": 0.0, "weight_decay": 1e-3},
    "rgcn": {"hidden": 8, "weight_decay": 1e-3},
}
#: Models that count weights of arcs.
WEIGHTED = ("gcn", "appnp")


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    """``layouts(name, pes)``: graphs without arcs from a node to itself, or real ones, are of another list."""
    trained, compared = layouts_below(tmp_path_factory.mktemp), pyg.layouts_below(tmp_path_factory.mktemp)
    return lambda name, pes: (compared if name in (*pyg.GRAPHS, "cora") and name != "directed" else trained)(name, pes)


def run(folder, *, side, epochs=6, **options):
    """A run on one PE; ``side`` mgg is ours."""
    how = {"technique": "local", "epochs": epochs, "seed": 3, "side": side, **options}
    if side != "mgg":
        how["library"] = partial(SampledTrainer if side == "pyg_sampled" else LibraryTrainer, side=side)
    return launch("simulated", lambda: 1, lambda world: train(world, layout.load(folder, 0), **how))[0]


def graph_of(model):
    return "typed" if model == "rgcn" else "weighted" if model in WEIGHTED else "planted"


def check(folder, side, model, settings):
    ours, theirs = (run(folder, side=each, model=model, settings=settings) for each in ("mgg", side))
    for mine, other in zip(ours.epochs, theirs.epochs, strict=True):
        assert other.loss == pytest.approx(mine.loss, rel=1e-4)
        if mine.validation_loss is not None:
            assert other.validation_loss == pytest.approx(mine.validation_loss, rel=1e-4)
        for split in ("train", "validation", "test"):
            if getattr(mine, f"{split}_accuracy") is None:
                assert getattr(other, f"{split}_accuracy") is None
                continue
            assert getattr(other, f"{split}_accuracy") == pytest.approx(getattr(mine, f"{split}_accuracy"), abs=0.02)
    assert len({each.loss for each in theirs.epochs}) == len(theirs.epochs), "nothing was learned"
    assert theirs.weights.keys() == ours.weights.keys()
    for name, value in theirs.weights.items():
        assert value.shape == ours.weights[name].shape
    assert theirs.record.settings == ours.record.settings, "row_normalize is decided alike"
    return ours.record, theirs.record


@pytest.mark.parametrize(
    "model", [name if name == "gcn" else pytest.param(name, marks=pytest.mark.slow) for name in ALIKE]
)
def test_pyg_training_has_our_loss_curve(model, layouts):
    ours, theirs = check(layouts(graph_of(model), 1), "pyg", model, ALIKE[model])
    assert (ours.side, theirs.side, theirs.technique, theirs.options) == ("mgg", "pyg", "pyg", {})
    assert {"torch", "torch-geometric"} == theirs.versions.keys() - ours.versions.keys()
    assert theirs.gpu_memory is None


@pytest.mark.parametrize("side", ["pyg", "pyg_sampled"])
def test_pyg_epochs_report_progress_to_the_watchdog(side, layouts, monkeypatch):
    """Else the watchdog takes a long training for one that does not get further."""
    places = []
    monkeypatch.setattr(SimulatedWorld, "set_phase", lambda _, epoch, phase: places.append((epoch, phase)))
    run(layouts("planted", 1), side=side, model="sage", settings=ALIKE["sage"], epochs=2)
    epochs = [place for place in places if place[1] in ("forward", "backward", "evaluation")]
    assert epochs == [(epoch, phase) for epoch in (1, 2) for phase in ("forward", "backward", "evaluation")]


@pytest.mark.slow
@pytest.mark.parametrize(("graph", "model"), [("weighted", "gcn"), ("planted", "gin")])
def test_pyg_csr_side_uses_sparse_products(graph, model, layouts, monkeypatch):
    """Where PyTorch Geometric would scatter, there are as many products as sums, A^T's backward among them."""
    products, product = [], pyg.torch.sparse.mm
    monkeypatch.setattr(pyg.torch.sparse, "mm", lambda *given: products.append(given) or product(*given))
    _, theirs = check(layouts(graph, 1), "pyg_csr", model, ALIKE[model])
    # Two sums forward in a step and two without dropout; no gradient of features is asked for, which GIN sums first.
    backward = 2 if model == "gcn" else 1
    assert len(products) == 6 * (4 + backward)
    assert (theirs.side, theirs.technique) == ("pyg_csr", "pyg_csr")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_sparse_features_are_normalized_like_ours(model, layouts):
    """Ours are CSR there."""
    check(layouts("cora", 1), "pyg", model, ALIKE[model])


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["typed", "featureless"])
@pytest.mark.parametrize("side", ["pyg", "pyg_bmm"])
def test_both_rgcn_layers_of_pyg_match(side, graph, layouts):
    settings = {"hidden": 8, "bases": 3} if graph == "typed" else {"hidden": 8, "selection": "last"}
    check(layouts(graph, 1), side, "rgcn", settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "adamw"},
        {"schedule": "cosine", "warmup": 3},
        {"class_weights": "balanced"},
        {"selection": "validation_loss", "patience": 1},
    ],
)
def test_settings_have_the_same_effect_in_pyg(settings, layouts):
    check(layouts("planted", 1), "pyg", "gcn", ALIKE["gcn"] | settings)


def test_sampling_all_neighbors_equals_full_graph(layouts, monkeypatch):
    """As one batch: the steps are those of the whole graph, of three layers too."""
    monkeypatch.setattr(sampling, "FANOUTS", (10**6,))
    monkeypatch.setattr(sampling, "BATCH", 10**6)
    check(layouts("planted", 1), "pyg_sampled", "sage", ALIKE["sage"] | {"layers": 3})


def test_sampled_neighbors_are_uniform():
    rng = np.random.default_rng(5)
    neighbors = [np.sort(rng.choice(40, count, replace=False)) for count in rng.integers(0, 12, 40)]
    neighbors[7] = np.arange(0, 40, 2)
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in neighbors])])
    sampler = Sampler(indptr, np.concatenate(neighbors).astype(np.int32), (4, 3))
    batch, times, chosen = np.array([7, 0, 39, 12]), 2000, np.zeros(40)
    for epoch in range(times):
        sample = sampler.sample(batch, stream_key(3, epoch))
        assert np.array_equal(sample.nodes[:4], batch)
        assert len({*sample.nodes.tolist()}) == len(sample.nodes) == sample.sizes[-1]
        ends = [0, *sample.sizes]
        for hop, fanout in enumerate((4, 3)):
            sources, targets = sample.hops[hop]
            for place in range(ends[hop], ends[hop + 1]):
                found, known = sample.nodes[sources[targets == place]], neighbors[sample.nodes[place]]
                assert len({*found.tolist()}) == len(found) == min(fanout, len(known)) and np.isin(found, known).all()
            assert ((targets >= ends[hop]) & (targets < ends[hop + 1])).all() and (sources < ends[hop + 2]).all()
        np.add.at(chosen, sample.nodes[sample.hops[0][0][sample.hops[0][1] == 0]], 1)
    expected = times * 4 / 20  # of the 20 neighbors of node 7
    assert np.abs(chosen[neighbors[7]] - expected).max() < 5 * np.sqrt(expected * 0.8)


@pytest.mark.parametrize(
    ("side", "model"), [("pyg", "gcn"), ("pyg_sampled", "sage"), pytest.param("pyg", "gin", marks=pytest.mark.slow)]
)
def test_resumed_pyg_run_ends_like_an_unbroken_one(side, model, layouts, tmp_path, monkeypatch):
    """With dropout, and for GIN running statistics; batches and samples are drawn again."""
    monkeypatch.setattr(sampling, "BATCH", 16)
    monkeypatch.setattr(sampling, "FANOUTS", (3, 2))
    folder, options = layouts("planted", 1), {"model": model, "settings": {"hidden": 8}, "checkpoint_every": ALWAYS}
    whole = run(folder, side=side, **options)
    with pytest.raises(StoppedError, match="stopped after epoch 3"):
        run(folder, side=side, out=tmp_path / "run", stop=Stop(3), **options)
    with pytest.raises(InputError, match=f"run with side {side}, this run has side mgg"):
        run(folder, side="mgg", out=tmp_path / "run", resume=True, **options)
    resumed = run(folder, side=side, out=tmp_path / "run", resume=True, **options)
    for name, array in result_arrays(whole).items():
        assert np.array_equal(array, result_arrays(resumed)[name]), name
    record, epochs = read_run(tmp_path / "run")
    assert (record.side, len(epochs)) == (side, 6)


@pytest.mark.parametrize(
    ("graph", "pes", "options", "message"),
    [
        ("planted", 2, {}, "side pyg: trains on one PE, and this layout is for 2: partition for 1"),
        ("planted", 1, {"model": "sgc"}, "side pyg: has no model sgc; it has gcn, gin, sage, gat, appnp, rgcn"),
        ("planted", 1, {"settings": {"layers": 3}}, "side pyg: model gcn: setting layers: is 3, and this model in Py"),
        ("planted", 1, {"dtype": "bf16"}, "side pyg: computes in fp32: leave out --dtype bf16"),
        ("planted", 1, {"phases": True}, "side pyg: nobody counts its phases"),
        (
            "directed",
            1,
            {},
            "side pyg: model gcn takes arcs from a node to itself another way than ours, and test has some",
        ),
        ("tasks", 1, {}, "side pyg: scores by accuracy, one class a node, and not by micro_f1"),
        ("directed", 1, {"model": "gat"}, "side pyg: model gat counts no weights of arcs, and test has some"),
    ],
)
def test_unsupported_settings_of_pyg_are_refused(graph, pes, options, message, layouts):
    options = {"model": "gcn", "technique": "local", "library": partial(LibraryTrainer, side="pyg")} | options
    folder = layouts(graph, pes)
    with pytest.raises(InputError) as error:
        launch("simulated", lambda: pes, lambda world: train(world, layout.load(folder, world.rank), **options))
    assert str(error.value).startswith(message), error.value


@pytest.mark.slow
@pytest.mark.parametrize("side", ["mgg", "pyg"])
def test_passes_of_pyg_are_timed_after_the_last_epoch(side, layouts, tmp_path, monkeypatch):
    """As many as there are to be, and nothing else is another for it; a finished run that lacks them is told."""
    kind, passes = LibraryTrainer if side == "pyg" else Trainer, []
    logits = kind._logits
    monkeypatch.setattr(kind, "_logits", lambda *given: passes.append(given) or logits(*given))
    how = {"side": side, "model": "gcn", "settings": ALIKE["gcn"], "epochs": 2}
    usual = run(layouts("planted", 1), out=tmp_path / "run", **how)
    before = len(passes)
    timed = run(layouts("planted", 1), inference=True, **how)
    assert len(passes) - before == before - 1 + loop.WARM_UP + loop.PASSES, "but for the predictions, without a folder"
    assert timed.record.inference > 0 and usual.record.inference is None
    assert all(np.array_equal(array, result_arrays(timed)[name]) for name, array in result_arrays(usual).items())
    with pytest.raises(InputError, match="is a finished run whose inference was not timed"):
        run(layouts("planted", 1), inference=True, out=tmp_path / "run", resume=True, **how)


def test_divergence_in_pyg_is_reported(layouts):
    with pytest.raises(InputError, match=r"epoch \d+: the (training loss|loss of the validation split) is "):
        run(
            layouts("planted", 1),
            side="pyg",
            model="gcn",
            epochs=60,
            settings={"learning_rate": 10.0, "weight_decay": 1e6, "optimizer": "adamw"},
        )


@pytest.mark.parametrize(
    ("package", "message"),
    [("torch", "mgg.interop needs PyTorch"), ("torch_geometric", "models of PyTorch Geometric need it")],
)
def test_missing_library_is_named(package, message, monkeypatch):
    for name in [each for each in sys.modules if each.startswith("mgg.interop")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [package, *(each for each in sys.modules if each.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    context = click.Context(command)
    context.set_parameter_source("technique", ParameterSource.DEFAULT)
    with context, pytest.raises(MachineError, match=f"^side pyg: {message} .*pip install 'mgg.torch.'$") as error:
        _library("pyg")
    assert error.value.everywhere
