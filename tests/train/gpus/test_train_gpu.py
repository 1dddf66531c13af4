"""Training on GPUs, on a host without any: stand-ins for CuPy and NVSHMEM, whose kernels are those of the GPU.

Their device arrays refuse to be mixed with the host's, so what passes here keeps the two apart.
"""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from safetensors.numpy import save_file
from support.programs.phases_program import PHASE_OF, TRAININGS
from support.programs.train_program import SMALL, assert_close, gradients, graphs_for, on_ranks, result_arrays, run
from support.ranks import mpiexec

from mgg.records import read_run

FAKE = str(Path(__file__).parents[2] / "support" / "fake_gpu" / "run.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.mpi,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile the kernels for the host"),
]

#: Every model, and for each way of the features through the first layer a width that takes it.
SETTINGS = [(model, {"hidden": hidden}) for model in ("gcn", "gin", "sage") for hidden in (16, 64)]
SETTINGS += [("appnp", {"hidden": 16}), ("gat", {"hidden": 4, "output_heads": 2}), ("sgc", {})]


def on_fakes(kind, ranks, out, calls):
    return on_ranks(kind, ranks, out, calls, "nvshmem", [FAKE])


def test_user_model_trains_and_infers(layouts, tmp_path):
    """The example of the documentation, whose layer goes by the table alone."""
    text = (Path(FAKE).parents[3] / "docs/guides/own-model.md").read_text(encoding="utf-8")
    model = tmp_path / "gained.py"
    (example,) = re.findall(r'^```python title="gained.py"\n(.*?)^```$', text, re.MULTILINE | re.DOTALL)
    model.write_text(example, encoding="utf-8")
    each = {"model": str(model), "technique": "halo", "epoch": 5, "folder": str(layouts("tasks", 2))}
    (found,) = on_fakes("gradients", 2, tmp_path / "out.npz", [each])
    assert_close(found, gradients("simulated", pes=2, **each)[0])
    options = ["--model", str(model), "--weights", str(tmp_path / "w.safetensors"), "--out"]
    rng = np.random.default_rng(2)
    made = {name: rng.normal(0, 0.3, array.shape) for name, array in found.items() if name != "loss"}
    save_file(made, tmp_path / "w.safetensors")
    for backend, before in (("nvshmem", [FAKE]), ("mpi", [])):
        words = ["infer", str(layouts("tasks", 2)), "--backend", backend, *options, str(tmp_path / backend)]
        done = mpiexec(2, [*before, "-m", "mgg.cli", *words])
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("arrays of type F64 are converted to float32") == 1
    tables = [pyarrow.parquet.read_table(tmp_path / name / "predictions.parquet") for name in ("nvshmem", "mpi")]
    theirs, mine = (np.array(table["logit"].to_pylist()) for table in tables)
    assert np.abs(theirs - mine).max() <= 1e-5 * np.abs(mine).max()


@pytest.mark.sentinel
def test_device_operations_match_the_host():
    done = mpiexec(1, [FAKE, str(Path(FAKE).parents[1] / "programs" / "arrays_program.py")])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ok\n"


def check_gradients(pes, out, layouts, cases):
    options = [
        {
            "technique": "halo",
            "epoch": 5,
            "model": model,
            "settings": settings,
            "folder": str(layouts(graph, pes)),
            **more,
        }
        for model, settings, graph, more in cases
    ]
    for each, found in zip(options, on_fakes("gradients", pes, out, options), strict=True):
        assert_close(found, gradients("simulated", pes=pes, **each)[0])


@pytest.mark.sentinel
def test_sparse_features_have_the_loss_and_gradients_of_the_host(layouts, tmp_path):
    models = [("gcn", {"hidden": 16}), ("sage", {"hidden": 64}), ("gat", {"hidden": 4, "output_heads": 2})]
    check_gradients(2, tmp_path / "out.npz", layouts, [(*each, "directed", {}) for each in models])


def test_loss_and_gradients_match_the_host(layouts, tmp_path):
    check_gradients(1, tmp_path / "one.npz", layouts, [(*each, "planted", {}) for each in SETTINGS])
    # Columns of a width at which rows of shared memory are not all aligned.
    cases = [("gcn", {"hidden": 7}, "planted", {"technique": "zero_copy"}), ("gin", {"hidden": 16}, "planted", {})]
    # Rows of odd width, and several heads whose lanes make no numbers together.
    several = {"hidden": 5, "heads": 3, "output_heads": 2}
    cases += [("gat", settings, "directed", {}) for settings in ({"hidden": 17, "heads": 1}, several)]
    cases += [("rgcn", {"bases": bases}, graph, {}) for bases, graph in ((0, "typed"), (2, "featureless"))]
    # Attention as products: by MGG's kernel; in the order of halo's work; from host memory.
    product = {**several, "attention": "product"}
    cases += [("gat", product, "directed", {"technique": technique}) for technique in ("mgg", "halo", "zero_copy")]
    check_gradients(2, tmp_path / "two.npz", layouts, cases)


def test_program_schedules_match_the_host(layouts, tmp_path):
    """Gradients that come home, and those made by whoever has the source: a softmax, and extremes; arcs by blocks."""
    options = [
        {"model": model, "technique": "halo", "settings": {**settings, "hidden": 4, "backward": backward}, "epoch": 5,
         "folder": str(layouts("planted", 2))}
        for model, settings, backward in (
            ("gatv2", {"heads": 2}, "return"), ("gatv2", {"heads": 2}, "turned"), ("pna", {"layers": 2}, "turned"),
            ("gatv2", {"heads": 2, "kernels": "groups=block,arcs=parallel,blocks=atomic,rows=sorted"}, "turned"),
        )
    ]  # fmt: skip
    for each, found in zip(options, on_fakes("gradients", 2, tmp_path / "out.npz", options), strict=True):
        assert_close(found, gradients("simulated", pes=2, **each)[0])


def test_generated_kernels_are_all_compiled_ahead(layouts, tmp_path):
    """All of them, and no others: of both schedules, of training and evaluation."""
    settings = [{"heads": 2, "hidden": 4, "backward": backward} for backward in ("return", "turned")]
    settings.append(settings[1] | {"kernels": "arcs=sequence,rows=sorted"})
    same = {"model": "gatv2", "technique": "halo", "epochs": 1, "folder": str(layouts("planted", 2))}
    options = [{**same, "settings": each} for each in settings]
    for found in on_fakes("kernels", 2, tmp_path / "out.npz", options):
        assert len(found["ahead"]) >= 4 and found["ahead"].tolist() == found["asked"].tolist()


def test_resumed_runs_have_the_bits_of_whole_runs(layouts, tmp_path):
    """The same accuracies as on the CPU, and the same bits whether the run was stopped or not."""
    options = {"model": "gin", "technique": "halo", "settings": {"hidden": 16}, "epochs": 9}
    options["folder"] = str(layouts("planted", 2))
    stopped = {**options, "out": tmp_path / "run"}
    calls = [options, {**stopped, "stop_at": 4}, {**stopped, "resume": True}]
    whole, nothing, resumed = on_fakes("train", 2, tmp_path / "out.npz", calls)
    assert not nothing
    assert all(np.array_equal(resumed[name], array) for name, array in whole.items())
    expected = result_arrays(run("simulated", pes=2, **options)[0])
    np.testing.assert_allclose(whole["curve"], expected["curve"], rtol=1e-3)
    assert len(read_run(tmp_path / "run")[1]) == 9


def test_bf16_tasks_and_phases_match_the_host(layouts, tmp_path, monkeypatch):
    """Embeddings in bf16 give the CPU's numbers but for their order of summing; phases are told by events.

    Each PE's clock goes on by 1 when it is read; phases begin before an epoch and end after it.
    """
    monkeypatch.setenv("FAKE_CLOCK", "1")
    calls = [
        {"model": "gcn", "technique": "halo", "epochs": 6, "dtype": "bf16", "folder": str(layouts("planted", 2))},
        {
            "model": "gin", "technique": "halo", "epochs": 6, "metric": "roc_auc", "settings": {"hidden": 16},
            "folder": str(layouts("tasks", 2)), "phases": True, "out": tmp_path / "run",
        },
    ]  # fmt: skip
    for each, found in zip(calls, on_fakes("train", 2, tmp_path / "out.npz", calls), strict=True):
        options = {name: value for name, value in each.items() if name not in ("phases", "out")}
        expected = result_arrays(run("simulated", pes=2, **options)[0])
        losses = found["curve"][:, :5], expected["curve"][:, :5]
        np.testing.assert_allclose(*losses, rtol=1e-2)
    for epoch in read_run(tmp_path / "run")[1]:
        parts = [epoch.aggregate, epoch.dense, epoch.communication, epoch.other]
        assert min(parts) > 0 and sum(parts) == pytest.approx(epoch.seconds + 2, rel=1e-12)


@pytest.mark.parametrize("phases", [True, False])
def test_phases_are_nvtx_ranges(phases, layouts):
    """What goes arc by arc is in those of aggregations, with its transfers; nobody who does not ask has any."""
    folder = str(layouts("planted", 2))
    calls = [{**options, "folder": folder, "phases": phases} for options in TRAININGS]
    done = mpiexec(2, [FAKE, str(Path(FAKE).parents[1] / "programs" / "phases_program.py"), json.dumps(calls)])
    assert done.returncode == 0, done.stderr
    expected = {**PHASE_OF, "get_rows": "aggregate"}
    for found in json.loads(done.stdout):
        assert found["operations"] == {name: [phase if phases else "other"] for name, phase in expected.items()}
        assert found["pushed"] == (["aggregate", "communication", "dense"] if phases else [])
        assert found["open"] == []


PROGRAM = str(Path(FAKE).parents[1] / "programs" / "epochs_program.py")

#: Epochs as CUDA graphs: captured and done again with the memory of the capture.
SAME = {"losses": 0, "scores": 0, "arrays": [], "distinct": 5, "bytes": False, "pes": 1}


def answers(pes, cases, **environment):
    done = mpiexec(pes, [FAKE, PROGRAM, json.dumps(cases, default=str)], **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def case(layouts, pes, kind="compare", model="gcn", technique="halo", graph=None, **others):
    graph = graph or graphs_for(model)[0]
    others = {"settings": SMALL[model], **others}
    return {"kind": kind, "folder": layouts(graph, pes), "model": model, "technique": technique, **others}


def test_epoch_of_one_pe_is_one_cuda_graph(layouts):
    cases = [case(layouts, 1, graph="directed"), case(layouts, 1, model="rgcn", graph="featureless")]
    cases += [case(layouts, 1, technique=technique) for technique in ("local", "mgg_uvm")]
    cases += [
        case(layouts, 1, model="gat", dtype="bf16"),
        case(layouts, 1, settings={"optimizer": "adamw", "schedule": "cosine", "warmup": 2, "dropout": 0.0}),
        case(layouts, 1, settings={"hidden": 16, "layers": 4, "normalization": "layer", "residual": True}),
        case(layouts, 1, model="rgcn", settings={"bases": 3, "dropout": 0.3}),
        case(layouts, 1, model="gin", graph="tasks", metric="roc_auc"),
        case(layouts, 1, model="gin", graph="tasks", metric="micro_f1"),
    ]
    for each, answer in zip(cases, answers(1, cases), strict=True):
        assert answer == SAME | {"graphs": 1}, each


def test_epoch_of_several_pes_is_one_cuda_graph_if_no_host_is_needed(layouts):
    """For every model; also where arcs get weights anew. Transfers by NCCL are submitted one by one."""
    cases = [case(layouts, 2, model=model) for model in SMALL]
    cases += [case(layouts, 2, model="rgcn", dtype="bf16")]
    product = {"model": "gat", "settings": {"hidden": 5, "heads": 2, "attention": "product"}}
    cases += [case(layouts, 2, technique=technique, **product) for technique in ("mgg", "halo")]
    cases += [case(layouts, 2, technique=technique) for technique in ("mgg", "cola", "zero_copy", "dgcl", "ring")]
    expected = [1] * (len(cases) - 1) + [0]
    for each, answer, number in zip(cases, answers(2, cases), expected, strict=True):
        assert answer == SAME | {"graphs": number}, each


def test_epoch_without_memory_for_its_graph_runs_step_by_step(layouts):
    assert answers(1, [case(layouts, 1, model="gin")], FAKE_LEFT="10000") == [SAME | {"graphs": 0}]


def test_divergence_resume_and_two_trainers_work_with_cuda_graphs(layouts):
    """Numbers that are not finite leave weights alone; trainers of a job keep out of each other's graphs' memory."""
    cases = [
        case(layouts, 2, "diverge", model, value=value)
        for model, value in (("gcn", "nan"), ("gin", 3e38), ("sage", 1e21))
    ]
    cases += [case(layouts, 2, "resume", model) for model in ("gin", "gat")]
    cases += [case(layouts, 2, "side_by_side", "gcn")]
    for each, answer in zip(cases, answers(2, cases), strict=True):
        if each["kind"] != "diverge":
            assert answer == {"differ": [], "pes": 1}, each
            continue
        plain, repeated = answer["errors"]
        assert plain == repeated and not answer["changed"], each
        assert re.match(r"epoch 4: the .*(, first in layer|the gradient of) (layer\d|classifier)", plain), each
