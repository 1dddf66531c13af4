"""Predictions for graphs, partitions and layouts: the same from each, finite up to 1,024 PEs, mistakes in one line."""

import math
from itertools import product

import pytest
from support.graphs import make_layout, random_csr

from mgg import hashed
from mgg.aggregate.auto import EQUAL
from mgg.aggregate.predict import Question, changed, predict
from mgg.config import LinkConfig
from mgg.cost.machines import H200, MACHINES
from mgg.errors import InputError

ALL = ("broadcast", "broadcast_pipelined", "cola", "direct", "features", "halo", "mgg", "ring", "zero_copy")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A graph, and its partition and layout for 16 PEs in two workgroups."""
    folder = tmp_path_factory.mktemp("predict")
    make_layout(folder, random_csr(3_000, 40_000), 16)
    return folder


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_thousand_pes_are_predicted(made, machine):
    found = predict([made / "graph"], machine, Question(ALL, [16, 128], pes=[8, 128, 1024]))
    assert [(r.pes, r.dim, r.technique) for r in found] == [
        (pes, dim, name)
        for pes, dim, name in product((8, 128, 1024), (16, 128), ALL)
        if pes == 8 or name != "zero_copy"  # no bus leads to another host's memory
    ]
    assert all(math.isfinite(r.seconds) and r.seconds > 0 for r in found)
    assert {(r.machine, r.basis) for r in found} == {(machine.name, machine.basis)}
    for pes, dim in product((8, 128, 1024), (16, 128)):
        here = [r for r in found if (r.pes, r.dim) == (pes, dim)]
        (pick,), least = [r for r in here if r.chosen], min(here, key=lambda r: r.seconds)
        near = pick.technique in ("cola", "halo") and pick.seconds <= EQUAL * least.seconds
        assert pick == least or near


def test_graph_partition_and_layout_predict_the_same(made):
    techniques = ("halo", "mgg"), [32]
    graph = predict([made / "graph"], H200, Question(*techniques, pes=[16], scheme="equal_nodes"))
    part, layout = (predict([made / name], H200, Question(*techniques)) for name in ("partition-16", "layout-16"))
    said = [[record.model_dump(exclude={"recorded_at"}) for record in found] for found in (graph, part, layout)]
    assert said[0] == said[1] == said[2]
    assert graph[0].network == "infiniband-ndr" and graph[0].workgroup == 8


def test_variants_are_predicted_separately(made):
    grids = {"cola": [{}, {"fusion": False}, {"pipelined": False, "coalesced": [True, False]}]}
    found = predict([made / "partition-16"], H200, Question(("cola", "halo"), [32], variants=grids))
    assert [(r.technique, r.options) for r in found] == [
        ("cola", {}), ("cola", {"fusion": False}), ("cola", {"pipelined": False}),
        ("cola", {"coalesced": False, "pipelined": False}), ("halo", {}),
    ]  # fmt: skip
    plain = predict([made / "partition-16"], H200, Question(("cola", "halo"), [32]))
    assert [found[0].seconds, found[-1].seconds] == [record.seconds for record in plain]
    assert found[0].seconds < found[2].seconds < found[3].seconds < found[1].seconds
    assert [r.chosen for r in found] == [False] * 4 + [True]


def test_techniques_without_a_prediction_are_reported_once(made, caplog):
    grids = {"cola": [{}, {"workgroup": 4}]}  # the partition's are of 8
    found = predict([made / "partition-16"], H200, Question(("cola", "mgg_uvm"), [32, 64], variants=grids))
    assert [(record.technique, record.options) for record in found] == [("cola", {})] * 2
    left_out = "P=16: not predicted: {}: the cost model does not cover it there (docs/concepts/costs.md)"
    assert [text.partition(", ")[2] for text in caplog.messages] == [
        left_out.format(each) for each in ("cola (workgroup=4)", "mgg_uvm")
    ]


def test_auto_predicts_default_options(made):
    """Auto picks among defaults, whatever its pick takes with other options."""
    grids = {"halo": [{}, {"workgroup": 8}], "mgg": [{"ps": 16}]}
    found = predict([made / "partition-16"], H200, Question(("halo", "mgg"), [32], variants=grids))
    assert [(r.technique, r.options, r.chosen) for r in found] == [
        ("halo", {}, True), ("halo", {"workgroup": 8}, False), ("mgg", {"ps": 16}, False),
    ]  # fmt: skip


def test_layout_manifest_is_read_once_for_all_pes(made, monkeypatch):
    read, real = [], hashed.load
    monkeypatch.setattr(hashed, "load", lambda path, *rest: read.append(path.name) or real(path, *rest))
    predict([made / "layout-16"], H200, Question(("halo",), [32]))
    assert read == ["layout.yaml"]


def test_slower_network_affects_only_other_workgroups(made):
    question = Question(("halo", "cola", "broadcast", "mgg"), [64], pes=[8, 16])
    slow = changed(H200, {"infiniband-ndr": LinkConfig(bandwidth=1e8, message=1e-5)}, None)
    fast, slower = (predict([made / "graph"], machine, question) for machine in (H200, slow))
    for before, after in zip(fast, slower, strict=True):
        assert (after.seconds > before.seconds) == (before.pes == 16), before
    hdr = predict([made / "graph"], changed(H200, {}, "infiniband-hdr"), question)
    assert hdr[-1].network == "infiniband-hdr"


@pytest.mark.parametrize(
    ("name", "question", "message"),
    [
        ("graph", Question(("halo",), [16]), "is a graph: name numbers of PEs to split it for"),
        ("nothing", Question(("halo",), [16]), "no such folder of mgg graph, mgg partition or mgg layout"),
        ("partition-16", Question(("halo",), [16], pes=[2]), "--pes: partitions and layouts are split already"),
        ("partition-16", Question(("hallo",), [16]), "technique 'hallo': unknown; did you mean halo"),
        ("partition-16", Question(("mgg", "ring"), [16], "bf16"), "does not cover mgg, ring with bf16 embeddings"),
        ("graph", Question(("halo",), [16], pes=[2], scheme="metric"), "metric"),
        ("graph", Question(("cola",), [16], pes=[2], variants={"cola": [{"fusing": True}]}), "option fusing"),
    ],
)
def test_invalid_predictions_are_one_line(made, name, question, message):
    with pytest.raises(InputError, match=message):
        predict([made / name], H200, question)
