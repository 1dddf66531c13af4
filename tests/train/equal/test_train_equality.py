"""The same loss and gradients on any number of PEs, technique and run."""

import numpy as np
import pytest
from support.models import cases
from support.programs.train_program import (
    SMALL,
    able,
    assert_close,
    gradients,
    graphs_for,
    on_ranks,
    result_arrays,
    run,
)

from mgg import layout
from mgg.aggregate import all_techniques
from mgg.backend import launch
from mgg.errors import InputError
from mgg.model import models
from mgg.train import loss_and_gradients


def check(model, technique, graph, pes, layouts, settings=None, options=None):
    """Gradients of ``technique`` on so many PEs are those of one PE."""
    same = {"model": model, "settings": settings or SMALL[model], "seed": 3, "epoch": 5}
    expected = gradients("simulated", layouts(graph, 1), 1, technique="halo", **same)[0]
    for found in gradients("simulated", layouts(graph, pes), pes, technique=technique, options=options, **same):
        assert_close(found, expected)
    return expected


@pytest.mark.parametrize(("model", "graph"), cases((model, graph) for model in models() for graph in graphs_for(model)))
def test_loss_and_gradients_do_not_depend_on_the_number_of_pes(model, graph, layouts):
    for pes in (2, 4):
        check(model, "halo", graph, pes, layouts)


@pytest.mark.slow
@pytest.mark.parametrize("technique", all_techniques())
def test_runs_repeat_bit_by_bit_and_techniques_agree(technique, layouts):
    """A model asks techniques for products with A, as gcn does; for rows, see test_train_uneven.py."""
    pes = 4 if able(technique, 4) else 1
    check("gcn", technique, "directed", pes, layouts)
    options = {"model": "gcn", "technique": technique, "epochs": 3, "settings": SMALL["gcn"], "seed": 1}
    first, *others = [each for _ in range(2) for each in run("simulated", layouts("directed", pes), pes, **options)]
    for result in others:
        for name, array in result_arrays(first).items():
            np.testing.assert_array_equal(result_arrays(result)[name], array)


@pytest.mark.parametrize("options", [{"split": "cover"}, {"split": "cover", "workgroup": 2}, {"split": "columns"}])
def test_gradients_are_right_where_sums_cross(options, layouts):
    check("gcn", "halo", "directed", 4, layouts, options=options)


@pytest.mark.parametrize("graph", graphs_for("rgcn"))
def test_rgcn_bases_do_not_depend_on_the_number_of_pes(graph, layouts):
    expected = check("rgcn", "halo", graph, 4, layouts, {"bases": 3, "dropout": 0.4})
    assert {name.split(".")[1] for name in expected if name != "loss"} == {"bases", "coefficients"}


def test_appnp_without_arc_dropout_uses_products(layouts):
    options = {"model": "appnp", "epoch": 5}
    whole, product = ({"hidden": 16, "dropout": 0.0, "arc_dropout": rate} for rate in (1e-9, 0.0))
    expected = gradients("simulated", layouts("directed", 1), 1, technique="halo", settings=whole, **options)[0]
    for found in gradients("simulated", layouts("directed", 4), 4, technique="mgg", settings=product, **options):
        assert_close(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("technique", "options"),
    [
        ("halo", {"workgroup": 2}), ("halo", {"workgroup": 2, "split": "cover"}), ("cola", {"workgroup": 2}),
        ("broadcast", {"replication": 2}),
    ],
)  # fmt: skip
def test_row_fetching_models_take_technique_options(technique, options, layouts):
    check("gatv2", technique, "planted", 4, layouts, options=options)


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
def test_row_fetching_models_refuse_invalid_technique_options(wrong, message, layouts):
    """On one PE, too, where nothing is fetched."""
    with pytest.raises(InputError, match=message):
        gradients("simulated", layouts("planted", 1), 1, model="gatv2", **wrong)


def test_row_fetching_models_refuse_layouts_of_other_sizes(layouts):
    part = layout.load(layouts("planted", 4), 0)
    with pytest.raises(InputError, match="the layout is for 4 PEs and the job has 2"):
        launch("simulated", lambda: 2, lambda world: loss_and_gradients(world, part, model="gatv2", technique="halo"))


def test_dropout_depends_on_epoch_and_seed(layouts):
    options = {"model": "gcn", "technique": "halo"}
    weights = gradients("simulated", layouts("planted", 1), 1, **options)[0]
    options["weights"] = {name: array.astype(np.float32) for name, array in weights.items() if name != "loss"}
    draws = [{"seed": 0, "epoch": 1}, {"seed": 0, "epoch": 2}, {"seed": 1, "epoch": 1}]
    found = [gradients("simulated", layouts("planted", 2), 2, **options, **each)[0] for each in draws]
    assert len({float(each["loss"]) for each in found}) == 3


def test_gcn_epoch_moves_the_bytes_of_its_products(layouts):
    """GCN of 32 -> 16 -> 10 columns, halo: each halo row crosses once in each product."""
    record = run("simulated", layouts("planted", 4), 4, model="gcn", technique="halo", epochs=2)[0].record
    manifest = layout.read_manifest(layouts("planted", 4))
    forward, backward = sum(manifest.forward.halo_rows), sum(manifest.transpose.halo_rows)
    # Forward in training and in evaluation, and backward.
    assert record.bytes_wire == 4 * (16 + 10) * (2 * forward + backward)


def test_attention_moves_each_halo_row_and_gradient_once_per_pass(layouts):
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


@pytest.mark.slow
def test_fetched_bf16_rows_do_not_depend_on_the_number_of_pes(layouts):
    """All rows are rounded, the PE's own as well: what differs are rare ties after sums in another order."""
    options = {"model": "gatv2", "technique": "halo", "settings": SMALL["gatv2"], "seed": 3, "epoch": 5}
    plain, expected = (
        gradients("simulated", layouts("planted", 1), 1, dtype=dtype, **options)[0] for dtype in ("fp32", "bf16")
    )
    assert expected["loss"] != plain["loss"] and expected["loss"] == pytest.approx(plain["loss"], rel=0.02)
    for found in gradients("simulated", layouts("planted", 4), 4, dtype="bf16", **options):
        assert_close(found, expected, 1e-3)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("pes", [1, 4])
def test_loss_and_gradients_are_right_on_mpi_ranks(pes, layouts, tmp_path):
    """Every model, and every technique for products and for rows."""
    techniques = [technique for technique in all_techniques() if able(technique, pes)]
    pairs = [(model, "halo") for model in models() if pes > 1]
    pairs += [(model, technique) for technique in techniques for model in ("gcn", "gat")]
    calls, expected = [], {}
    for model, technique in pairs:
        graph, each = graphs_for(model)[-1], {"model": model, "settings": SMALL[model]}
        calls.append({"folder": str(layouts(graph, pes)), "technique": technique, "epoch": 5, **each})
        if model not in expected:
            alone = {**calls[-1], "folder": layouts(graph, 1), "technique": "halo"}
            expected[model] = gradients("simulated", pes=1, **alone)[0]
    for (model, _), found in zip(pairs, on_ranks("gradients", pes, tmp_path / "out.npz", calls), strict=True):
        assert_close(found, expected[model])


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.sentinel
def test_mpi_runs_have_the_bits_of_the_simulated_backend(layouts, tmp_path):
    options = {"model": "gin", "technique": "halo", "settings": {"hidden": 16}, "epochs": 5}
    simulated = result_arrays(run("simulated", layouts("planted", 2), 2, **options)[0])
    calls = [{"folder": str(layouts("planted", 2)), **options}] * 2
    for found in on_ranks("train", 2, tmp_path / "out.npz", calls):
        for name, array in simulated.items():
            np.testing.assert_array_equal(found[name], array)
