"""Checkpoints: a run that was stopped or killed and resumed is the run that never stopped."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.graphs import make_layout, planted
from support.models import cases
from support.ranks import changed_environment
from support.records import alter
from support.stopped import ALWAYS, BASE, stop_at
from support.train_program import SMALL, Stop, checkpoint_files, graphs_for, result_arrays, run, tables

from mgg import layout
from mgg.backend import launch
from mgg.backend.simulated import SimulatedWorld
from mgg.errors import InputError, StoppedError
from mgg.model import models, settings_of
from mgg.train import Trainer
from mgg.train.run.output import digest


@pytest.mark.parametrize("pes", [1, 2])
@pytest.mark.parametrize("model", cases(models()))
def test_resumed_is_bitwise_the_run_that_never_stopped(model, pes, layouts, tmp_path):
    folder = layouts(graphs_for(model)[0], pes)
    options = {**BASE, "model": model, "settings": SMALL[model]}
    whole = run("simulated", folder, pes, out=tmp_path / "whole", **options)
    stop_at(5, folder, pes, out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()
    assert [path.name for path in checkpoint_files(tmp_path / "run")] == ["epoch-000005.safetensors"]
    resumed = run("simulated", folder, pes, out=tmp_path / "run", resume=True, **options)
    assert tables(tmp_path / "run") == tables(tmp_path / "whole")
    assert not checkpoint_files(tmp_path / "run")
    for mine, theirs in zip(resumed, whole, strict=True):
        assert mine.weights.keys() == theirs.weights.keys()
        expected = result_arrays(theirs)
        for name, array in result_arrays(mine).items():
            np.testing.assert_array_equal(array, expected[name])


def test_a_resumed_run_says_where_it_goes_on(layouts, tmp_path, capsys):
    options = {"model": "gcn", "out": tmp_path / "run", "progress": True, **BASE}
    stop_at(5, layouts("planted", 2), 2, **options)
    assert "goes on" not in capsys.readouterr().err
    run("simulated", layouts("planted", 2), 2, resume=True, **options)
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == "gcn on test: goes on after epoch 5/12"
    assert second.startswith("gcn on test: epoch 6/12 ")


def test_resuming_without_a_checkpoint_starts(layouts, tmp_path):
    run("simulated", layouts("planted", 1), 1, model="gcn", out=tmp_path / "a", resume=True, **BASE)
    run("simulated", layouts("planted", 1), 1, model="gcn", out=tmp_path / "b", **BASE)
    assert tables(tmp_path / "a") == tables(tmp_path / "b")


def test_without_resume_earlier_checkpoints_go(layouts, tmp_path):
    stop_at(5, layouts("planted", 1), 1, model="gcn", out=tmp_path / "run", **BASE)
    stop_at(2, layouts("planted", 1), 1, model="gcn", out=tmp_path / "run", **BASE)
    assert [path.name for path in checkpoint_files(tmp_path / "run")] == ["epoch-000002.safetensors"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "holds epoch 5: starting anew; --resume goes on from it"),
        ({"seed": 3}, "holds epoch 5, not of this run or"),
    ],
)
def test_without_resume_earlier_checkpoints_are_told(change, said, layouts, tmp_path, caplog):
    """Once, whatever the number of PEs; nothing is said where there are none."""
    out = tmp_path / "run"
    stop_at(5, layouts("planted", 2), 2, model="gcn", out=out, **BASE)
    assert not caplog.messages
    stop_at(2, layouts("planted", 2), 2, model="gcn", out=out, **(BASE | change))
    (line,) = caplog.messages
    assert line.startswith(f"{out}.checkpoint {said}")


@pytest.mark.parametrize(
    ("graph", "pes", "change", "message"),
    [
        ("planted", 2, {"model": "gin"}, "is of a run with model gcn, this run has model gin"),
        ("directed", 2, {}, "is of a run with graph_hash .*, this run has graph_hash"),
        ("planted", 4, {}, "is of a run with pes 2, this run has pes 4"),
        ("planted", 2, {"technique": "cola"}, "technique halo, this run has technique cola"),
        ("planted", 2, {"seed": 3}, "seed 2, this run has seed 3"),
        (
            "planted",
            2,
            {"settings": {"hidden": 9}},
            "a run whose setting hidden is 8, this run has 9: run it as before",
        ),
        ("planted", 2, {"epochs": 4}, "has 5 epochs already, more than the 4 asked for: ask for more, take another"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(graph, pes, change, message, layouts, tmp_path):
    options = {"model": "gcn", **BASE}
    stop_at(5, layouts("planted", 2), 2, out=tmp_path / "run", **options)
    with pytest.raises(InputError, match=message):
        run("simulated", layouts(graph, pes), pes, out=tmp_path / "run", resume=True, **{**options, **change})
    assert checkpoint_files(tmp_path / "run")


@pytest.fixture
def other_partition(tmp_path):
    """Another layout of the graph planted, for two PEs."""
    csr, data = planted()
    return make_layout(tmp_path / "other", csr, 2, scheme="equal_nodes", **data)


def test_a_checkpoint_over_another_partition_is_refused(layouts, other_partition, tmp_path):
    options = {"model": "gcn", "out": tmp_path / "run", **BASE}
    stop_at(5, layouts("planted", 2), 2, **options)
    assert layout.read_manifest(other_partition).graph_hash == layout.read_manifest(layouts("planted", 2)).graph_hash
    message = (
        r"epoch-000005\.safetensors: is of a run with partition scheme edge_balanced, this run has partition scheme"
        r" equal_nodes: run it as before to go on; to start anew take .* or remove .*/run\.checkpoint \(--weights takes"
    )
    with pytest.raises(InputError, match=message):
        run("simulated", other_partition, 2, resume=True, **options)
    weights = {**options, "out": tmp_path / "new", "epochs": 1, "weights": tmp_path / "run.checkpoint"}
    run("simulated", other_partition, 2, **weights)
    run("simulated", layouts("planted", 2), 2, resume=True, **options)
    message = "run: is a finished run with partition scheme edge_balanced, this run has partition scheme equal_nodes"
    with pytest.raises(InputError, match=message):
        run("simulated", other_partition, 2, resume=True, **options)


def test_a_layout_made_again_is_the_same(layouts, tmp_path):
    """Cut by the same scheme, a graph has the same layout, wherever it lies."""
    options = {"model": "gcn", "out": tmp_path / "run", **BASE}
    stop_at(5, layouts("planted", 2), 2, **options)
    csr, data = planted()
    again = make_layout(tmp_path / "again", csr, 2, scheme="edge_balanced", **data)
    assert len(run("simulated", again, 2, resume=True, **options)[0].epochs) == 12


def test_a_checkpoint_of_gpus_is_refused_on_cpus(layouts, tmp_path, monkeypatch):
    options = {"model": "gcn", "out": tmp_path / "run", **BASE}
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedWorld, "gpu", "H200")
        stop_at(5, layouts("planted", 1), 1, **options)
    with pytest.raises(InputError, match="is of a run with device GPUs, this run has device CPUs: run it as before"):
        run("simulated", layouts("planted", 1), 1, resume=True, **options)


def test_a_finished_run_can_train_longer(layouts, tmp_path):
    """More epochs than the stopped run asked for: the same curve, longer."""
    options = {"model": "gcn", **BASE}
    stop_at(5, layouts("planted", 1), 1, out=tmp_path / "run", **options)
    run("simulated", layouts("planted", 1), 1, out=tmp_path / "run", resume=True, **{**options, "epochs": 15})
    run("simulated", layouts("planted", 1), 1, out=tmp_path / "whole", **{**options, "epochs": 15})
    assert tables(tmp_path / "run") == tables(tmp_path / "whole")


def test_stopping_without_an_output(layouts):
    with pytest.raises(StoppedError, match="stopped after epoch 1 of 12: no output"):
        run("simulated", layouts("planted", 1), 1, model="gcn", stop=Stop(1), **BASE)


@pytest.mark.sentinel
@pytest.mark.slow
def test_a_killed_run_resumes(layouts, tmp_path):
    """SIGKILL in the middle of a checkpoint-writing run, again and again, until it is done."""
    folder, out = layouts("planted", 2), tmp_path / "run"
    script = (
        "import json, sys; from pathlib import Path; from support.train_program import run\n"
        "options = json.loads(sys.argv[1]); out = Path(options.pop('out'))\n"
        "run('simulated', out=out, **options)"
    )
    options = {"model": "gcn", **BASE, "epochs": 400}
    arguments = {
        **options,
        "folder": str(folder),
        "pes": 2,
        "resume": True,
        "checkpoint_every": ALWAYS,
        "out": str(out),
    }
    kills = 0
    for _ in range(20):
        command = [sys.executable, "-c", script, json.dumps(arguments)]
        with subprocess.Popen(command, env=changed_environment({}), stderr=subprocess.PIPE) as process:
            started = progressed = checkpoint_files(out)
            # Let it write some checkpoints, then kill it while it writes others.
            while process.poll() is None and (kills >= 3 or len({*progressed} - {*started}) < 2):
                progressed = checkpoint_files(out)
                time.sleep(0.002)
            process.kill()
            code, errors = process.wait(), process.stderr.read()
        assert code in (0, -signal.SIGKILL), errors
        if code == 0:
            break
        kills += 1
        out.with_name("run.checkpoint").joinpath(".tmpAbC012").touch()  # as safetensors leaves what it was writing
    assert kills == 3
    assert out.is_dir()
    run("simulated", folder, 2, out=tmp_path / "whole", **options)
    assert tables(out) == tables(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "whole"]


def test_weights_are_those_of_the_best_epoch(layouts, tmp_path):
    folder = layouts("planted", 1)
    result = run("simulated", folder, 1, model="gin", out=tmp_path / "run", **BASE)[0]
    kept = load_file(tmp_path / "run" / "weights.safetensors")

    def scores(world):
        trainer = Trainer(
            world, layout.load(folder, 0), model="gin", technique="halo", options={},
            settings=settings_of("gin", BASE["settings"]), seed=0,
        )  # fmt: skip
        trainer.start_from(kept)
        return trainer.evaluate()

    found = launch("simulated", lambda: 1, scores)[0]
    assert found.test == result.record.test_accuracy
    assert found.validation == max(epoch.validation_accuracy for epoch in result.epochs)


def test_weights_of_a_checkpoint_go_to_another_number_of_pes(layouts, tmp_path):
    stop_at(9, layouts("planted", 2), 2, model="gin", out=tmp_path / "run", **BASE)
    options = {**BASE, "model": "gin", "epochs": 1, "settings": {"hidden": 8, "learning_rate": 1e-9}}
    with pytest.raises(InputError, match=r"pes 2, this run has pes 3.*--weights takes the weights alone"):
        run("simulated", layouts("planted", 3), 3, model="gin", out=tmp_path / "run", resume=True, **BASE)
    found = run("simulated", layouts("planted", 3), 3, weights=tmp_path / "run.checkpoint", **options)[0]
    fresh = run("simulated", layouts("planted", 3), 3, **options)[0]
    assert found.epochs[0].loss < 0.8 * fresh.epochs[0].loss


@pytest.mark.parametrize("name", ["run.checkpoint", "run.checkpoint/epoch-000009.safetensors"])
def test_weights_that_its_own_checkpoints_would_replace_are_refused(name, layouts, tmp_path):
    stop_at(9, layouts("planted", 1), 1, model="gcn", out=tmp_path / "run", **BASE)
    options = {**BASE, "model": "gcn", "out": tmp_path / "run"}
    with pytest.raises(InputError, match=rf"^{tmp_path}/{name}: this run's checkpoints would replace these weights"):
        run("simulated", layouts("planted", 1), 1, weights=tmp_path / name, **options)
    assert [path.name for path in checkpoint_files(tmp_path / "run")] == ["epoch-000009.safetensors"]


@pytest.fixture
def weights(layouts, tmp_path):
    """Two finished runs to start from, and their digests as messages have them."""
    records = [
        run("simulated", layouts("planted", 1), 1, model="gcn", out=tmp_path / name, **{**BASE, "seed": seed})[0].record
        for name, seed in (("first", 7), ("second", 8))
    ]
    assert [record.weights for record in records] == [None, None]
    return {None: "none"} | {
        name: digest("", load_file(tmp_path / name / "weights.safetensors"))[:12] for name in ("first", "second")
    }


def started(weights, tmp_path):
    return {**BASE, "model": "gcn", "out": tmp_path / "run", "weights": weights and tmp_path / weights}


@pytest.mark.parametrize(
    ("before", "now"), [(None, "first"), ("first", None), ("first", "second"), ("first", "first"), (None, None)]
)
@pytest.mark.parametrize("finished", [False, True])
def test_a_run_goes_on_from_its_own_start_alone(before, now, finished, weights, layouts, tmp_path):
    """Wherever the weights lie: what counts is what is in them."""
    folder, options = layouts("planted", 2), started(before, tmp_path)
    if finished:
        run("simulated", folder, 2, **options)
    else:
        stop_at(5, folder, 2, **options)
    (tmp_path / "first").rename(tmp_path / "moved")
    (tmp_path / "first").symlink_to("moved/weights.safetensors")
    again = {**started(now, tmp_path), "resume": True}
    if before == now:
        record = run("simulated", folder, 2, **again)[0].record
        assert (record.weights or "none")[:12] == weights[now]
        return
    message = f"run with starting weights {weights[before]}, this run has starting weights {weights[now]}: "
    with pytest.raises(InputError, match=message):
        run("simulated", folder, 2, **again)


def test_a_resumed_start_is_bitwise_the_one_that_never_stopped(weights, layouts, tmp_path):
    folder, options = layouts("planted", 2), started("first", tmp_path)
    stop_at(5, folder, 2, **options)
    run("simulated", folder, 2, resume=True, **options)
    run("simulated", folder, 2, **{**options, "out": tmp_path / "whole"})
    assert tables(tmp_path / "run") == tables(tmp_path / "whole")


@pytest.mark.parametrize("change", [{"seed": 3}, {"epochs": 15}, {"epochs": 6}])
def test_a_run_that_takes_the_place_of_a_finished_one_goes_on(change, layouts, tmp_path):
    """Stopped on its way it is not taken for the finished one; before its first checkpoint there is only that."""
    folder, options = layouts("planted", 1), {**BASE, "model": "gcn", "out": tmp_path / "run"}
    run("simulated", folder, 1, **options)
    other = {**options, **change}
    with pytest.raises(InputError, match=r"run: (is a finished run|has 12 epochs already)"):
        run("simulated", folder, 1, resume=True, **other)
    with pytest.raises(StoppedError):
        run("simulated", folder, 1, stop=Stop(4), **other)
    run("simulated", folder, 1, resume=True, **other)
    run("simulated", folder, 1, **{**other, "out": tmp_path / "whole"})
    assert tables(tmp_path / "run") == tables(tmp_path / "whole")
    assert not checkpoint_files(tmp_path / "run")


def test_a_finished_run_is_not_trained_again(layouts, tmp_path, caplog):
    folder, options = layouts("planted", 2), {**BASE, "model": "gcn", "out": tmp_path / "run"}
    first = run("simulated", folder, 2, **options)[0]
    weights = tmp_path / "run/weights.safetensors"
    written = (weights.stat().st_ino, weights.stat().st_mtime_ns)
    again = run("simulated", folder, 2, **options, resume=True)[0]
    assert caplog.messages == [f"{tmp_path}/run: this run is finished, nothing was trained"]
    assert (again.record, again.epochs) == (first.record, first.epochs)
    assert all(np.array_equal(again.weights[name], array) for name, array in first.weights.items())
    assert (weights.stat().st_ino, weights.stat().st_mtime_ns) == written
    with pytest.raises(InputError, match="run: is a finished run with seed 2, this run has seed 3: take another"):
        run("simulated", folder, 2, **{**options, "seed": 3}, resume=True)
    with pytest.raises(InputError, match="run: is a finished run of 12 epochs, whose checkpoints are gone"):
        run("simulated", folder, 2, **{**options, "epochs": 13}, resume=True)
    with pytest.raises(InputError, match="run: has 12 epochs already, more than the 4 asked for: take another"):
        run("simulated", folder, 2, **{**options, "epochs": 4}, resume=True)


def test_a_finished_run_of_an_earlier_version(layouts, tmp_path):
    """What it did not note is not asked for."""
    options = {**BASE, "model": "gcn", "out": tmp_path / "run"}
    run("simulated", layouts("planted", 1), 1, **options)
    alter(tmp_path / "run/run.json", scheme=None, layout=None, asked_epochs=None)
    assert len(run("simulated", layouts("planted", 1), 1, **options, resume=True)[0].epochs) == 12


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_run_that_patience_ended_is_finished(schedule, layouts, tmp_path):
    """Where step sizes depend on the epochs asked for, with others it is another run."""
    settings = {"hidden": 8, "patience": 2, "learning_rate": 0.3, "schedule": schedule}
    options = {**BASE, "model": "gcn", "out": tmp_path / "run", "epochs": 60, "settings": settings}
    done = len(run("simulated", layouts("planted", 1), 1, **options)[0].epochs)
    assert done < 60
    assert len(run("simulated", layouts("planted", 1), 1, **options, resume=True)[0].epochs) == done
    longer = {**options, "epochs": 80, "resume": True}
    if schedule == "constant":
        assert len(run("simulated", layouts("planted", 1), 1, **longer)[0].epochs) == done
        return
    with pytest.raises(InputError, match="is a finished run with epochs 60, this run has epochs 80"):
        run("simulated", layouts("planted", 1), 1, **longer)


def test_altered_weights_are_refused(layouts, tmp_path):
    run("simulated", layouts("planted", 1), 1, model="gcn", out=tmp_path / "run", **BASE)
    file = tmp_path / "run/weights.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(InputError, match=r"weights.safetensors: no weights of mgg train, or torn \(its content"):
        run("simulated", layouts("planted", 1), 1, model="gcn", weights=tmp_path / "run", **BASE)


@pytest.mark.parametrize(("model", "optimizer"), cases([*((model, "adam") for model in models()), ("gcn", "adamw")]))
def test_ten_runs_give_the_same_bits(model, optimizer, layouts):
    folder = layouts(graphs_for(model)[0], 2)
    options = {**BASE, "model": model, "epochs": 3, "settings": {**SMALL[model], "optimizer": optimizer}}
    first, *others = (result_arrays(run("simulated", folder, 2, **options)[0]) for _ in range(10))
    for other in others:
        for name, array in first.items():
            np.testing.assert_array_equal(other[name], array)


@pytest.mark.parametrize(("epochs", "refused"), [(12, False), (15, True)])
def test_step_sizes_that_depend_on_all_epochs(epochs, refused, layouts, tmp_path):
    options = {**BASE, "model": "gcn", "settings": {"hidden": 8, "schedule": "cosine", "warmup": 3}}
    stop_at(5, layouts("planted", 1), 1, out=tmp_path / "run", **options)
    again = {**options, "epochs": epochs, "out": tmp_path / "run", "resume": True}
    if refused:
        with pytest.raises(InputError, match="of a run with epochs 12, this run has epochs 15"):
            run("simulated", layouts("planted", 1), 1, **again)
        return
    run("simulated", layouts("planted", 1), 1, **again)
    run("simulated", layouts("planted", 1), 1, out=tmp_path / "whole", **options)
    assert tables(tmp_path / "run") == tables(tmp_path / "whole")


@pytest.mark.parametrize("selection", ["validation", "validation_loss"])
@pytest.mark.parametrize("patience", [2, 4])
def test_early_stopping_after_a_resume(patience, selection, layouts, tmp_path):
    options = {**BASE, "model": "gcn", "settings": {"hidden": 8, "patience": patience, "selection": selection}}
    run("simulated", layouts("planted", 1), 1, out=tmp_path / "whole", **options)
    stop_at(1, layouts("planted", 1), 1, out=tmp_path / "run", **options)
    run("simulated", layouts("planted", 1), 1, out=tmp_path / "run", resume=True, **options)
    assert tables(tmp_path / "run") == tables(tmp_path / "whole")
