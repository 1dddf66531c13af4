"""The same loss, gradients and curves on any number of PEs, technique and run."""

import numpy as np
import pytest
from support.models import cases
from support.train_program import FETCHING, SMALL, able, assert_close, gradients, graphs_for, result_arrays, run

from mgg import layout
from mgg.aggregate import all_techniques
from mgg.backend import launch
from mgg.errors import InputError
from mgg.model import models
from mgg.train import loss_and_gradients

#: Every model, every technique; a model asks techniques for products with A, as gcn does, or for rows, as gat does.
PAIRS = [
    (model, technique)
    for model in models()
    for technique in all_techniques()
    if technique == "halo" or model in ("gat", "gcn")
]


@pytest.mark.parametrize(
    ("model", "technique", "graph"), cases((*pair, graph) for pair in PAIRS for graph in graphs_for(pair[0]))
)
def test_loss_and_gradients_on_any_pes_and_technique(technique, model, graph, layouts):
    options = {"model": model, "settings": SMALL[model], "seed": 3, "epoch": 5}
    expected = gradients("simulated", layouts(graph, 1), 1, technique="halo", **options)[0]
    for pes in (pes for pes in (1, 2, 4) if able(technique, pes)):
        for found in gradients("simulated", layouts(graph, pes), pes, technique=technique, **options):
            assert_close(found, expected)


@pytest.mark.parametrize("chosen", [{"split": "cover"}, {"split": "cover", "workgroup": 2}, {"split": "columns"}])
def test_gradients_where_sums_cross(chosen, layouts):
    options = {"model": "gcn", "technique": "halo", "settings": SMALL["gcn"], "seed": 3, "epoch": 5}
    expected = gradients("simulated", layouts("directed", 1), 1, **options)[0]
    for found in gradients("simulated", layouts("directed", 4), 4, options=chosen, **options):
        assert_close(found, expected)


@pytest.mark.parametrize("graph", graphs_for("rgcn"))
def test_bases_on_any_pes(graph, layouts):
    options = {"model": "rgcn", "technique": "halo", "settings": {"bases": 3, "dropout": 0.4}, "epoch": 5}
    expected = gradients("simulated", layouts(graph, 1), 1, **options)[0]
    assert {name.split(".")[1] for name in expected if name != "loss"} == {"bases", "coefficients"}
    for pes in (2, 4):
        for found in gradients("simulated", layouts(graph, pes), pes, **options):
            assert_close(found, expected)


@pytest.mark.parametrize("technique", ["broadcast", "mgg"])
def test_appnp_without_dropout_on_arcs_goes_by_products_with_a(technique, layouts):
    options = {"model": "appnp", "epoch": 5}
    whole, product = ({"hidden": 16, "dropout": 0.0, "arc_dropout": rate} for rate in (1e-9, 0.0))
    expected = gradients("simulated", layouts("directed", 1), 1, technique="halo", settings=whole, **options)[0]
    for found in gradients("simulated", layouts("directed", 4), 4, technique=technique, settings=product, **options):
        assert_close(found, expected)


@pytest.mark.parametrize("model", cases(FETCHING))
@pytest.mark.parametrize(
    ("technique", "chosen"),
    [
        ("halo", {"workgroup": 2}),
        ("halo", {"workgroup": 1}),
        ("halo", {"workgroup": 2, "split": "cover"}),
        ("cola", {"workgroup": 2}),
        ("broadcast", {"replication": 2}),
    ],
)
def test_models_that_fetch_rows_take_options_of_techniques(technique, chosen, model, layouts):
    options = {"model": model, "settings": SMALL[model], "seed": 3, "epoch": 5}
    graph = graphs_for(model)[0]
    expected = gradients("simulated", layouts(graph, 1), 1, technique="halo", **options)[0]
    for found in gradients("simulated", layouts(graph, 4), 4, technique=technique, options=chosen, **options):
        assert_close(found, expected)


@pytest.mark.parametrize("pes", [1, 2])
@pytest.mark.parametrize("model", cases(FETCHING))
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"technique": "mgg", "dtype": "bf16"}, "technique mgg: takes no bf16 embeddings"),
        ({"technique": "mgg", "options": {"ps": 0}}, "technique mgg: option ps"),
        ({"technique": "hallo"}, "technique 'hallo': unknown"),
        ({"technique": "halo", "options": {"workgroup": 16}}, "option workgroup: 16 must divide the number of PEs"),
        ({"technique": "broadcast", "options": {"replication": 2}}, "option replication: the square of 2 must divide"),
    ],
)
def test_models_that_fetch_rows_refuse_what_techniques_refuse(wrong, message, model, pes, layouts):
    """On one PE, too, where nothing is fetched."""
    with pytest.raises(InputError, match=message):
        gradients("simulated", layouts(graphs_for(model)[0], pes), pes, model=model, **wrong)


@pytest.mark.parametrize("model", cases(FETCHING))
def test_models_that_fetch_rows_refuse_layouts_of_other_jobs(model, layouts):
    part = layout.load(layouts(graphs_for(model)[0], 4), 0)
    with pytest.raises(InputError, match="the layout is for 4 PEs and the job has 2"):
        launch("simulated", lambda: 2, lambda world: loss_and_gradients(world, part, model=model, technique="halo"))


def test_gradients_at_given_weights(layouts):
    options = {"model": "gcn", "technique": "halo", "settings": {"dropout": 0.0}}
    at_start = gradients("simulated", layouts("planted", 1), 1, **options)[0]
    weights = {name: np.zeros(array.shape, np.float32) for name, array in at_start.items() if name != "loss"}
    found = gradients("simulated", layouts("planted", 2), 2, weights=weights, **options)[0]
    # Zero weights give equal logits: the loss is that of a uniform guess over 10 classes.
    assert np.isclose(found["loss"], np.log(10))
    assert not found["layer0.weight"].any()


def test_dropout_is_drawn_anew_in_each_epoch_and_for_each_seed(layouts):
    options = {"model": "gcn", "technique": "halo"}
    weights = gradients("simulated", layouts("planted", 1), 1, **options)[0]
    weights = {name: array.astype(np.float32) for name, array in weights.items() if name != "loss"}
    losses = {
        float(
            gradients("simulated", layouts("planted", 2), 2, weights=weights, seed=seed, epoch=epoch, **options)[0][
                "loss"
            ]
        )
        for seed, epoch in ((0, 1), (0, 2), (1, 1))
    }
    assert len(losses) == 3


@pytest.mark.parametrize("graph", ["planted", "directed"])
def test_gcn_curves_without_dropout(graph, layouts):
    options = {"model": "gcn", "technique": "halo", "epochs": 50, "settings": {"dropout": 0.0}}
    curves = [
        np.array([epoch.loss for epoch in run("simulated", layouts(graph, pes), pes, **options)[0].epochs])
        for pes in (1, 2, 4)
    ]
    for curve in curves[1:]:
        np.testing.assert_allclose(curve, curves[0], rtol=1e-5)


@pytest.mark.parametrize(("model", "technique"), cases(PAIRS))
def test_two_runs_give_the_same_bits(model, technique, layouts):
    options = {"model": model, "technique": technique, "epochs": 6, "settings": SMALL[model], "seed": 1}
    pes = 4 if able(technique, 4) else 1
    graph = graphs_for(model)[0]
    results = [run("simulated", layouts(graph, pes), pes, **options) for _ in range(2)]
    expected = result_arrays(results[0][0])
    for result in (*results[0], *results[1]):
        for name, array in result_arrays(result).items():
            np.testing.assert_array_equal(array, expected[name])


def test_the_seed_changes_weights_and_curve(layouts):
    options = {"model": "gcn", "technique": "halo", "epochs": 2}
    first, second = (run("simulated", layouts("planted", 1), 1, seed=seed, **options)[0] for seed in (0, 1))
    assert first.record.loss != second.record.loss
    assert not np.array_equal(first.weights["layer0.weight"], second.weights["layer0.weight"])


def test_bytes_on_the_wire_are_those_of_the_aggregations(layouts):
    """GCN of 32 -> 16 -> 10 columns, halo: each halo row crosses once in each product."""
    record = run("simulated", layouts("planted", 4), 4, model="gcn", technique="halo", epochs=2)[0].record
    manifest = layout.read_manifest(layouts("planted", 4))
    forward, backward = sum(manifest.forward.halo_rows), sum(manifest.transpose.halo_rows)
    # Forward in training and in evaluation, and backward.
    assert record.bytes_wire == 4 * (16 + 10) * (2 * forward + backward)


def test_attention_moves_each_halo_row_once_a_pass_and_its_gradient_once(layouts):
    """Two layers of 2 x 4 and 10 columns, whatever the arcs: forward in training and evaluation, and backward.

    Rows of 8 columns cross for both layers, before the second layer's weights. Gradients go back by rows after the
    weights; those of the attention's scores are added to them before.
    """
    settings = {"hidden": 4, "heads": 2}
    options = {"model": "gat", "technique": "halo", "epochs": 1, "settings": settings}
    manifest = layout.read_manifest(layouts("planted", 4))
    for dtype, size in (("fp32", 4), ("bf16", 2)):
        record = run("simulated", layouts("planted", 4), 4, dtype=dtype, **options)[0].record
        # Gradients are fp32 in any case.
        columns = (8 + 8) * 2 * size + (8 + 10) * 4
        assert record.bytes_wire == columns * sum(manifest.forward.halo_rows)


@pytest.mark.parametrize("model", cases(FETCHING))
def test_fetched_rows_in_bf16_on_any_pes(model, layouts):
    """All rows are rounded, the PE's own as well: what differs are rare ties after sums in another order."""
    graph = graphs_for(model)[0]
    options = {"model": model, "technique": "halo", "settings": SMALL[model], "seed": 3, "epoch": 5}
    plain = gradients("simulated", layouts(graph, 1), 1, **options)[0]
    expected = gradients("simulated", layouts(graph, 1), 1, dtype="bf16", **options)[0]
    assert expected["loss"] != plain["loss"] and expected["loss"] == pytest.approx(plain["loss"], rel=0.02)
    for pes in (2, 4):
        for found in gradients("simulated", layouts(graph, pes), pes, dtype="bf16", **options):
            assert_close(found, expected, 1e-3)
