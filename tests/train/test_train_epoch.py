"""Epochs as CUDA graphs, on stand-ins that capture what GPUs would and do it again with the memory of the capture."""

import json
import re
import shutil
from pathlib import Path

import pytest
from support.ranks import mpiexec
from support.train_program import SMALL, graphs_for

SUPPORT = Path(__file__).parents[1] / "support"
FAKE, PROGRAM = str(SUPPORT / "fake_gpu" / "run.py"), str(SUPPORT / "epochs_program.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.mpi,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile the kernels for the host"),
]
SAME = {"losses": 0, "scores": 0, "arrays": [], "distinct": 5, "bytes": False, "pes": 1}


def answers(pes, cases, **environment):
    done = mpiexec(pes, [FAKE, PROGRAM, json.dumps(cases, default=str)], **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def case(layouts, pes, kind="compare", model="gcn", technique="halo", graph=None, **others):
    graph = graph or graphs_for(model)[0]
    others = {"settings": SMALL[model], **others}
    return {"kind": kind, "folder": layouts(graph, pes), "model": model, "technique": technique, **others}


def test_one_pe_launches_one_graph_for_every_model(layouts):
    cases = [case(layouts, 1, model=model) for model in SMALL]
    cases += [case(layouts, 1, model=model, graph=graphs_for(model)[1]) for model in ("gcn", "gat", "rgcn")]
    cases += [case(layouts, 1, technique=technique) for technique in ("local", "mgg", "cola", "zero_copy", "mgg_uvm")]
    cases += [
        case(layouts, 1, dtype="bf16"),
        case(layouts, 1, model="gat", dtype="bf16"),
        case(layouts, 1, settings={"optimizer": "adamw", "schedule": "cosine", "warmup": 2, "dropout": 0.0}),
        case(layouts, 1, settings={"hidden": 16, "layers": 4, "normalization": "layer", "residual": True}),
        case(layouts, 1, model="rgcn", settings={"bases": 3, "dropout": 0.3}),
        case(layouts, 1, model="gin", graph="tasks", metric="roc_auc"),
        case(layouts, 1, model="gin", graph="tasks", metric="micro_f1"),
    ]
    for each, answer in zip(cases, answers(1, cases), strict=True):
        assert answer == SAME | {"graphs": 1}, each


def test_several_pes_launch_one_graph_where_no_host_is_needed(layouts):
    """Transfers by NCCL are submitted one by one."""
    cases = [case(layouts, 2, model=model) for model in SMALL]
    cases += [case(layouts, 2, model="rgcn", dtype="bf16")]
    cases += [
        case(layouts, 2, technique=technique)
        for technique in ("mgg", "cola", "zero_copy", "dgcl", "features", "broadcast", "ring")
    ]
    expected = [1] * (len(cases) - 2) + [0, 0]
    for each, answer, number in zip(cases, answers(2, cases), expected, strict=True):
        assert answer == SAME | {"graphs": number}, each


def test_weights_that_arcs_get_anew_are_part_of_the_graph(layouts):
    settings = {"hidden": 5, "heads": 2, "attention": "product"}
    cases = [
        case(layouts, 2, model="gat", technique=technique, settings=settings)
        for technique in ("mgg", "halo", "zero_copy")
    ]
    assert answers(2, cases) == [SAME | {"graphs": 1}] * 3


@pytest.mark.parametrize("left", [0, 10_000])
def test_an_epoch_whose_graph_finds_no_memory_runs_as_it_is_written(left, layouts):
    cases = [case(layouts, 1, model=model) for model in ("gcn", "gin")]
    assert answers(1, cases, FAKE_LEFT=str(left)) == [SAME | {"graphs": 0}] * 2


@pytest.fixture(scope="module", params=[1, 2], ids=["one PE", "two PEs"])
def found(request, layouts):
    """Cases and their answers by kind, of one start of the ranks."""
    values = (("gcn", "nan"), ("gcn", 3e38), ("gin", 3e38), ("sage", "inf"), ("sage", 1e21))
    cases = [case(layouts, request.param, "diverge", model, value=value) for model, value in values]
    cases += [case(layouts, request.param, "resume", model) for model in ("gcn", "gin", "gat")]
    cases += [case(layouts, request.param, "side_by_side", model) for model in ("gcn", "sage")]
    both = list(zip(cases, answers(request.param, cases), strict=True))
    return {kind: [pair for pair in both if pair[0]["kind"] == kind] for kind in ("diverge", "resume", "side_by_side")}


def test_numbers_that_are_not_finite_leave_the_weights_alone(found):
    named = r"epoch 4: the .*(, first in layer|the gradient of) (layer\d|classifier)"
    for each, answer in found["diverge"]:
        plain, repeated = answer["said"]
        assert plain == repeated and re.match(named, plain), each
        assert not answer["changed"]


@pytest.mark.parametrize("kind", ["resume", "side_by_side"])
def test_a_run_that_is_resumed_or_not_the_only_one_has_the_same_bits(kind, found):
    """Trainers of one job keep out of the memory of each other's graphs."""
    for each, answer in found[kind]:
        assert answer == {"differ": [], "pes": 1}, each
