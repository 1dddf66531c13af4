"""Epochs as CUDA graphs have the same bits as step by step; divergence; resumed runs."""

import json

import pytest
from support.programs import epochs_program
from support.programs.train_program import SMALL, graphs_for
from support.ranks import succeeded

from mgg.aggregate import all_techniques

pytestmark = pytest.mark.gpu

#: The result of every comparison if the technique is deterministic.
SAME = {"losses": 0, "scores": 0, "arrays": [], "distinct": 5, "bytes": False, "pes": 1}
#: Techniques with transfers by NCCL, which are submitted one by one.
BY_NCCL = ("broadcast", "broadcast_pipelined", "ring")


def run(pes, cases):
    done = succeeded(pes, [epochs_program.__file__, json.dumps(cases, default=str)])
    return json.loads(done.stdout)


def case(layouts, pes, kind="compare", model="gcn", technique="halo", graph=None, **options):
    folder = layouts(graph or graphs_for(model)[0], pes)
    return {"kind": kind, "folder": folder, "model": model, "technique": technique, "settings": SMALL[model], **options}


def check(cases, graphs, results):
    wrong = []
    for each, number, result in zip(cases, graphs, results, strict=True):
        expected = SAME | {"graphs": number}
        if not all_techniques()[each["technique"]].deterministic:  # float atomics: only that graphs are launched
            expected = result | {"graphs": number, "pes": 1}
        if result != expected:
            wrong.append((each["model"], each["technique"], each["settings"], result))
    assert not wrong, wrong


def test_epoch_on_one_pe_is_one_cuda_graph(layouts):
    cases = [case(layouts, 1, model=model, graph=graph) for model in SMALL for graph in graphs_for(model)]
    cases += [case(layouts, 1, technique=technique) for technique in all_techniques()]
    cases += [
        case(layouts, 1, dtype="bf16"),
        case(layouts, 1, settings={"hidden": 256}),
        case(layouts, 1, settings={"optimizer": "adamw", "schedule": "cosine", "warmup": 2, "dropout": 0.0}),
        case(layouts, 1, settings={"hidden": 16, "layers": 4, "normalization": "layer", "residual": True}),
        case(layouts, 1, model="gat", settings={"hidden": 5, "heads": 3, "output_heads": 2}),
        case(layouts, 1, model="rgcn", settings={"bases": 3, "dropout": 0.3}),
        case(layouts, 1, model="gin", graph="tasks", metric="roc_auc"),
        case(layouts, 1, model="gin", graph="tasks", metric="micro_f1"),
    ]
    check(cases, [1] * len(cases), run(1, cases))


@pytest.mark.parametrize("pes", [2, 4])
def test_epoch_on_several_pes_is_one_cuda_graph_without_nccl(pes, layouts):
    cases = [case(layouts, pes, model=model) for model in SMALL]
    names = [name for name, plan in all_techniques().items() if not plan.single_pe and name not in ("halo", "mgg_uvm")]
    cases += [case(layouts, pes, technique=technique) for technique in names]
    cases += [case(layouts, pes, model=model, graph=graphs_for(model)[1]) for model in ("gcn", "gat", "rgcn")]
    cases += [
        case(layouts, pes, dtype="bf16"),
        case(layouts, pes, model="gat", dtype="bf16"),
        case(layouts, pes, settings={"hidden": 16, "layers": 4, "normalization": "layer", "residual": True}),
        case(layouts, pes, model="gin", graph="tasks", metric="roc_auc"),
    ]
    check(cases, [0 if each["technique"] in BY_NCCL else 1 for each in cases], run(pes, cases))


@pytest.mark.parametrize("pes", [1, 2])
def test_nonfinite_numbers_leave_weights_unchanged(pes, layouts):
    cases = [
        case(layouts, pes, "diverge", model, value=value)
        for model, value in (("gcn", "nan"), ("gcn", 3e38), ("gin", 3e38), ("sage", "inf"))
    ]
    for each, result in zip(cases, run(pes, cases), strict=True):
        plain, repeated = result["errors"]
        assert plain == repeated and plain.startswith("epoch 4: the "), each
        assert not result["changed"]


@pytest.mark.parametrize("pes", [1, 2])
def test_resumed_run_has_the_bits_of_an_uninterrupted_one(pes, layouts):
    for result in run(pes, [case(layouts, pes, "resume", model) for model in SMALL]):
        assert result == {"differ": [], "pes": 1}


@pytest.mark.parametrize("pes", [1, 2])
def test_trainers_of_one_job_do_not_share_memory(pes, layouts):
    for result in run(pes, [case(layouts, pes, "side_by_side", model) for model in ("gcn", "sage")]):
        assert result == {"differ": [], "pes": 1}
