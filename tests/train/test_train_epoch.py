"""Epochs as CUDA graphs, on stand-ins that capture what GPUs would and do it again with the memory of the capture."""

import json
import shutil
from pathlib import Path

import pytest
from support.ranks import mpiexec
from support.train_program import SMALL, graphs_for

SUPPORT = Path(__file__).parents[1] / "support"
FAKE, PROGRAM = str(SUPPORT / "fake_gpu" / "run.py"), str(SUPPORT / "epochs_program.py")

pytestmark = [
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
    cases = [case(layouts, 1, model=model, graph=graph) for model in SMALL for graph in graphs_for(model)]
    cases += [case(layouts, 1, technique=technique) for technique in ("local", "mgg", "cola", "zero_copy", "mgg_uvm")]
    cases += [
        case(layouts, 1, dtype="bf16"),
        case(layouts, 1, settings={"optimizer": "adamw", "schedule": "cosine", "warmup": 2, "dropout": 0.0}),
        case(layouts, 1, settings={"hidden": 16, "layers": 4, "normalization": "layer", "residual": True}),
        case(layouts, 1, model="rgcn", settings={"bases": 3, "dropout": 0.3}),
        case(layouts, 1, model="gin", graph="tasks", metric="roc_auc"),
        case(layouts, 1, model="gin", graph="tasks", metric="micro_f1"),
    ]
    for each, answer in zip(cases, answers(1, cases), strict=True):
        assert answer == SAME | {"graphs": 1}, each


def test_several_pes_launch_two_graphs_where_no_host_is_needed(layouts):
    """Technique halo meets inside its launches; others, and models that fetch rows themselves, need the hosts."""
    graphs = {"gcn": 2, "sage": 2, "sgc": 2, "gin": 0, "gat": 0, "appnp": 0, "rgcn": 0}
    cases = [case(layouts, 2, model=model) for model in graphs]
    cases += [case(layouts, 2, technique=technique) for technique in ("cola", "broadcast", "ring", "direct")]
    expected = [*graphs.values(), 0, 0, 0, 0]
    for each, answer, number in zip(cases, answers(2, cases), expected, strict=True):
        assert answer == SAME | {"graphs": number}, each


@pytest.mark.parametrize("left", [0, 10_000])
def test_an_epoch_whose_graph_finds_no_memory_runs_as_it_is_written(left, layouts):
    cases = [case(layouts, 1, model=model) for model in ("gcn", "gin")]
    assert answers(1, cases, FAKE_LEFT=str(left)) == [SAME | {"graphs": 0}] * 2


@pytest.mark.parametrize("pes", [1, 2])
def test_numbers_that_are_not_finite_leave_the_weights_alone(pes, layouts):
    cases = [
        case(layouts, pes, "diverge", model, value=value)
        for model, value in (("gcn", "nan"), ("gcn", 3e38), ("gin", 3e38), ("sage", "inf"))
    ]
    for each, answer in zip(cases, answers(pes, cases), strict=True):
        plain, repeated = answer["said"]
        assert plain == repeated and plain.startswith("epoch 4: the "), each
        assert not answer["changed"]


@pytest.mark.parametrize("pes", [1, 2])
def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(pes, layouts):
    for answer in answers(pes, [case(layouts, pes, "resume", model) for model in ("gcn", "gin", "gat")]):
        assert answer == {"differ": [], "pes": 1}
