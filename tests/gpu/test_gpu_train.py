"""Training on GPUs against CPU ranks: array operations, gradients, loss curves, resumed runs, the command."""

from functools import cache

import numpy as np
import pytest
from support.devices.gpus import taken
from support.models import programmed
from support.programs import arrays_program
from support.programs.train_program import (
    FETCHING,
    SMALL,
    assert_close,
    gradients,
    graphs_for,
    multiplies,
    on_ranks,
    result_arrays,
    run,
)
from support.ranks import succeeded

from mgg import layout, partition
from mgg.aggregate import all_techniques
from mgg.graph.build import build
from mgg.records import read_run

pytestmark = pytest.mark.gpu

#: Settings of ``gat`` with which its sums are products of the technique.
GAT_PRODUCTS = {"hidden": 5, "heads": 3, "output_heads": 2, "attention": "product"}


def trainable(pes):
    """Techniques that train on ``pes`` ranks; unified memory belongs to one process."""
    return [name for name, plan in all_techniques().items() if pes == 1 or not (plan.single_pe or plan.one_process)]


def test_every_array_operation_equals_the_host():
    done = succeeded(1, [arrays_program.__file__])
    assert done.stdout == "ok\n"


@pytest.mark.parametrize("pes", [1, 2, 4])
def test_loss_and_gradients_equal_cpu(pes, layouts, tmp_path):
    options = [
        {"model": model, "technique": technique, "settings": settings, "graph": graph}
        for model, settings in SMALL.items()
        for graph in graphs_for(model)[1:]
        for technique in (trainable(pes) if multiplies(model) else ["halo"])
    ]
    options += [
        {"model": model, "technique": "halo", "settings": settings, "graph": graph}
        for model, settings, graph in (
            ("rgcn", {"bases": 3}, "typed"),
            ("gat", {"hidden": 5, "heads": 3, "output_heads": 2}, "planted"),
            ("gat", {"hidden": 4}, "three_nodes"),
            ("gatv2", {"heads": 2, "kernels": "groups=block,arcs=parallel,blocks=atomic,rows=sorted"}, "planted"),
            ("gatv2", {"heads": 2, "kernels": "groups=warp,arcs=sequence,blocks=static"}, "planted"),
            ("gcn", {"layers": 3, "normalization": "layer", "residual": True}, "planted"),
            ("sage", {"hidden": 16, "layers": 3, "normalization": "batch", "unit_rows": False}, "planted"),
        )
    ]
    directed = layout.load(layouts("directed", pes), 0)
    options += [
        {"model": "gat", "technique": technique, "settings": GAT_PRODUCTS, "graph": "directed"}
        for technique in trainable(pes)
        if all_techniques()[technique].reweighs(directed, all_techniques()[technique].Options())
    ]
    options += [
        {"model": model, "technique": "halo", "settings": {"hidden": hidden}, "graph": graph}
        for model, hidden in (("gcn", 3), ("gcn", 64), ("gin", 64))
        for graph in ("planted", "directed", "three_nodes")
    ]
    options += [
        {"model": model, "technique": "halo", "settings": SMALL[model], "graph": graphs_for(model)[0], **others}
        for model in FETCHING
        for others in ({"dtype": "bf16"}, {"options": {"workgroup": 1}}, {"dtype": "bf16", "options": {"workgroup": 1}})
    ]
    graphs = [each.pop("graph") for each in options]
    calls = [{"folder": layouts(graph, pes), "epoch": 5, **each} for graph, each in zip(graphs, options, strict=True)]
    results = on_ranks("gradients", pes, tmp_path / "out.npz", calls, "nvshmem")
    for graph, each, result in zip(graphs, options, results, strict=True):
        expected = gradients("simulated", layouts(graph, 1), 1, epoch=5, **{**each, "technique": "halo"})[0]
        # Batch normalization over three nodes divides by nearly 0: gradients are rounding errors.
        names = ["loss"] if graph == "three_nodes" and each["model"] == "gin" else list(expected)
        # Sums in another order may round to the other neighbor in bf16.
        tolerance = 1e-3 if "dtype" in each else 1e-4
        assert_close({name: result[name] for name in names}, {name: expected[name] for name in names}, tolerance)


#: Every model on each of its graphs.
CASES = [(model, graph) for model in SMALL for graph in graphs_for(model)]


@pytest.fixture(scope="session")
def gradients_on(layouts, tmp_path_factory):
    """``gradients_on(pes, names)``: by model, graph and technique of ``names`` the loss and gradients on GPUs."""

    def compute(pes, names):
        keys = [(*case, name) for case in CASES for name in names]
        calls = [
            {"model": model, "technique": name, "settings": SMALL[model], "seed": 3, "epoch": 5}
            | {"folder": layouts(graph, pes)}
            for model, graph, name in keys
        ]
        out = tmp_path_factory.mktemp("gradients") / "out.npz"
        return dict(zip(keys, on_ranks("gradients", pes, out, calls, "nvshmem"), strict=True))

    return compute


@pytest.fixture(scope="session")
def on_one_gpu(gradients_on):
    """By model and graph the loss and gradients on one GPU, dropout included."""
    return {(model, graph): found for (model, graph, _), found in gradients_on(1, ["halo"]).items()}


@pytest.mark.parametrize("pes", [2, 4])
def test_loss_and_gradients_equal_one_gpu(pes, gradients_on, on_one_gpu):
    for (model, graph, _), found in gradients_on(pes, trainable(pes)).items():
        # Generated kernels sum arcs in float32.
        tolerance = 2e-5 if programmed(model) and not multiplies(model) else 1e-5
        assert_close(found, on_one_gpu[model, graph], tolerance)


@pytest.mark.parametrize("pes", [1, 2, 4])
def test_ten_runs_give_the_same_bits(pes, layouts, tmp_path):
    """Every model with ``halo``, and GCN with every other deterministic technique."""
    names = [name for name in trainable(pes) if all_techniques()[name].deterministic and name != "halo"]
    cases = [(model, "halo") for model in SMALL] + [("gcn", name) for name in names]
    calls = [
        {"model": model, "technique": name, "settings": SMALL[model], "epochs": 3, "seed": 2}
        | {"folder": layouts(graphs_for(model)[0], pes)}
        for model, name in cases
        for _ in range(10)
    ]
    found = on_ranks("train", pes, tmp_path / "out.npz", calls, "nvshmem")
    for index, case in enumerate(cases):
        first, *repeated = found[10 * index : 10 * index + 10]
        for other in repeated:
            assert all(np.array_equal(other[name], array) for name, array in first.items()), case


CURVE = {"model": "gcn", "technique": "halo", "epochs": 20, "settings": {"dropout": 0.0}}
GRAPHS, MODELS = ("planted", "directed"), ("gcn", "gin", "gat", "rgcn")


@pytest.fixture(scope="session")
def trained(layouts, tmp_path_factory):
    """``trained(pes)``: by graph the result of ``CURVE``, by model those of a whole, a stopped and a resumed run."""

    @cache
    def train(pes):
        out = tmp_path_factory.mktemp("trained")
        calls = [{**CURVE, "folder": layouts(graph, pes)} for graph in GRAPHS]
        for model in MODELS:
            options = {"model": model, "technique": "halo", "settings": SMALL[model], "epochs": 12}
            whole = options | {"folder": layouts(graphs_for(model)[0], pes)}
            stopped = {**whole, "out": out / model}
            calls += [whole, {**stopped, "stop_at": 5}, {**stopped, "resume": True}]
        found = on_ranks("train", pes, out / "out.npz", calls, "nvshmem")
        runs = found[len(GRAPHS) :]
        return dict(zip(GRAPHS, found, strict=False)) | {
            model: runs[3 * i : 3 * i + 3] for i, model in enumerate(MODELS)
        }

    return train


@pytest.mark.parametrize("pes", [1, 2, 4])
@pytest.mark.parametrize("graph", GRAPHS)
def test_gcn_loss_curve_equals_cpu(graph, pes, layouts, trained):
    expected = result_arrays(run("simulated", layouts(graph, 1), 1, **CURVE)[0])
    # Column 1 is the loss.
    np.testing.assert_allclose(trained(pes)[graph]["curve"][:, 1], expected["curve"][:, 1], rtol=1e-4)


@pytest.mark.parametrize("pes", [1, 2, 4])
@pytest.mark.parametrize("model", MODELS)
def test_resumed_run_has_the_bits_of_an_uninterrupted_one(model, pes, trained):
    whole, stopped, resumed = trained(pes)[model]
    assert not stopped
    assert all(np.array_equal(resumed[name], array) for name, array in whole.items())


@pytest.mark.parametrize("pes", [1, 2, 4])
def test_command_trains_on_digits(pes, tmp_path):
    graph, part, folder = (tmp_path / name for name in ("graph", "partition", "layout"))
    build("digits", graph)
    partition.build(graph, part, pes=pes, scheme="edge_balanced", workgroup=8, dim=16)
    layout.build(graph, part, folder)
    command = ["train", str(folder), "--model", "gcn", "--backend", "nvshmem", "--epochs", "200"]
    succeeded(pes, ["-m", "mgg.cli", *command, "--out", str(tmp_path / "run")])
    record, epochs = read_run(tmp_path / "run")
    assert (record.backend, record.pes, len(epochs)) == ("nvshmem", pes, 200)
    assert len(record.machine.gpus) == taken(pes)
    assert record.test_accuracy >= 0.94  # one point below the bound for the mean over seeds


@pytest.mark.parametrize("pes", [1, 2])
def test_bf16_multi_label_and_phases(pes, layouts, tmp_path):
    calls = [
        {"model": "gcn", "technique": "halo", "epochs": 10, "dtype": "bf16", "folder": layouts("planted", pes)},
        {
            "model": "gin", "technique": "halo", "epochs": 10, "metric": "roc_auc", "settings": {"hidden": 16},
            "folder": layouts("tasks", pes), "phases": True, "out": tmp_path / "run",
        },
    ]  # fmt: skip
    for each, found in zip(calls, on_ranks("train", pes, tmp_path / "out.npz", calls, "nvshmem"), strict=True):
        options = {name: value for name, value in each.items() if name not in ("phases", "out")}
        expected = result_arrays(run("simulated", pes=pes, **options)[0])
        np.testing.assert_allclose(found["curve"][:3, :2], expected["curve"][:3, :2], rtol=1e-2)
    for epoch in read_run(tmp_path / "run")[1]:
        parts = [epoch.aggregate, epoch.dense, epoch.communication, epoch.other]
        assert min(parts) >= 0 and 0.5 * epoch.seconds < sum(parts) <= 1.2 * epoch.seconds
