"""Attention as products of a technique: what sums over rows that it has brought give, by the rows that it moves."""

import logging

import pytest
from support.programs.train_program import able, assert_close, gradients, result_arrays, run

from mgg import layout
from mgg.errors import InputError
from mgg.train import resolve_auto as choice

GAT = {"hidden": 4, "heads": 3, "output_heads": 2}
ROWS, PRODUCT = ({**GAT, "attention": way} for way in ("rows", "product"))
#: Techniques that take weights, with options that deal out the work otherwise.
SIDES = [
    ("mgg", {"ps": 3, "dist": 2, "wpb": 1, "interleave": False, "merge": True}),
    ("halo", {}), ("direct", {}), ("zero_copy", {}), ("local", {}), ("ring", {}), ("broadcast_pipelined", {}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("graph", "sides"), [("directed", SIDES), ("typed", SIDES[:1]), ("three_nodes", SIDES[:2])])
def test_weighted_products_have_the_gradients_of_fetched_rows(graph, sides, layouts):
    """Loops, weights of arcs, arcs of several types between two nodes, PEs without rows."""
    same = {"model": "gat", "seed": 3, "epoch": 5}
    expected = gradients("simulated", layouts(graph, 1), 1, technique="halo", settings=ROWS, **same)[0]
    for technique, chosen in sides:
        pes = 4 if able(technique, 4) else 1
        product = {"technique": technique, "options": chosen, "settings": PRODUCT}
        for found in gradients("simulated", layouts(graph, pes), pes, **product, **same):
            assert_close(found, expected)


@pytest.mark.parametrize(("technique", "unit"), [("mgg", "remote_arcs"), ("halo", "halo_rows")])
def test_weighted_products_move_rows_by_the_technique(technique, unit, layouts):
    """A row an arc by mgg, each needed row once by halo; the numbers of rows and heads each once by both."""
    folder = layouts("directed", 4)
    results = [
        run("simulated", folder, 4, model="gat", technique=technique, epochs=2, settings=PRODUCT) for _ in range(2)
    ]
    facts, columns, heads = layout.read_manifest(folder), 3 * 4 + 2 * 4, 3 + 2
    forward, back = facts.forward, facts.transpose
    # Two products a training pass either way, one to evaluate; one number a head forward, four back.
    products = columns * (3 * sum(getattr(forward, unit)) + 2 * sum(getattr(back, unit)))
    numbers = heads * (2 * sum(forward.halo_rows) + 4 * sum(back.halo_rows))
    assert results[0][0].record.bytes_wire == 4 * (products + numbers)
    for name, array in result_arrays(results[1][3]).items():
        assert (array == result_arrays(results[0][0])[name]).all()


@pytest.mark.parametrize(
    ("pes", "wrong", "message"),
    [
        (
            2, {"technique": "cola"},
            r"attention=product: technique cola keeps the weights of its arcs: take broadcast, broadcast_pipelined,"
            r" direct, halo, mgg, mgg_uvm, ring, zero_copy, or attention=rows$",
        ),
        (1, {"technique": "gnnadvisor"}, r"technique gnnadvisor keeps the weights of its arcs: take broadcast,"),
        (
            4, {"technique": "halo", "options": {"workgroup": 2}},
            "technique halo keeps the weights of its arcs with these options: take broadcast,",
        ),
        (
            2, {"technique": "halo", "options": {"split": "cover"}},
            "technique halo keeps the weights of its arcs with these options: take broadcast,",
        ),
        (2, {"technique": "halo", "dtype": "bf16"}, "attention=product: takes fp32 alone, not bf16: or take attention"),
        (1, {"technique": "mgg", "settings": {"attention": "sum"}}, "setting of model gat: attention"),
    ],
)  # fmt: skip
def test_techniques_without_arc_weights_are_refused(pes, wrong, message, layouts):
    with pytest.raises(InputError, match=message):
        gradients("simulated", layouts("planted", pes), pes, **{"model": "gat", "settings": PRODUCT, **wrong})


@pytest.mark.parametrize(
    ("model", "technique", "settings", "said"),
    [
        ("gat", "mgg", {}, "; attention=product has it sum them"),
        ("rgcn", "mgg", {}, "technique's products"),
        ("gat", "mgg", {"attention": "product"}, None),
        ("gat", "halo", {}, None),
        ("sage", "mgg", {}, None),
    ],
)
def test_run_reports_whether_the_technique_sums(model, technique, settings, said, layouts, caplog):
    graph = "typed" if model == "rgcn" else "planted"
    with caplog.at_level(logging.WARNING):
        gradients("simulated", layouts(graph, 2), 2, model=model, technique=technique, settings=settings)
    messages = [each.message for each in caplog.records if "brings rows of other PEs" in each.message]
    assert len(messages) == (said is not None)
    assert not messages or (
        messages[0].startswith(f"model {model}: technique mgg brings") and messages[0].endswith(said)
    )


def test_unused_option_split_is_reported(layouts, caplog):
    for model, times in (("gat", 1), ("gcn", 0)):
        caplog.clear()
        gradients("simulated", layouts("planted", 2), 2, model=model, technique="halo", options={"split": "cover"})
        assert caplog.text.count(f"option split changes nothing: model {model} fetches rows") == times


def test_auto_picks_among_techniques_with_arc_weights(layouts, monkeypatch):
    monkeypatch.setattr(choice, "for_training", lambda *_: ["cola", "mgg", "features", "halo"])
    found = run("simulated", layouts("planted", 2), 2, model="gat", technique="auto", epochs=1, settings=PRODUCT)
    assert found[0].record.technique == "mgg"
    monkeypatch.setattr(choice, "for_training", lambda *_: ["cola"])
    with pytest.raises(InputError, match="technique auto: none that can run here takes weights of arcs"):
        run("simulated", layouts("planted", 2), 2, model="gat", technique="auto", epochs=1, settings=PRODUCT)
