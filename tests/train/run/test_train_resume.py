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
from support.programs.train_program import SMALL, Stop, checkpoint_files, graphs_for, result_arrays, run, tables
from support.ranks import changed_environment
from support.ranks.stopped import ALWAYS, BASE, stop_at
from support.records import alter

from mgg import layout
from mgg.backend import launch
from mgg.backend.simulated import SimulatedWorld
from mgg.errors import InputError, StoppedError
from mgg.model import models, settings_of
from mgg.train import Trainer
from mgg.train.run.identity import Identity, difference
from mgg.train.run.output import digest


@pytest.mark.parametrize(("model", "pes"), cases([*((model, 2) for model in models()), ("gin", 1)]))
def test_resumed_run_has_the_bits_of_an_unbroken_run(model, pes, layouts, tmp_path):
    folder = layouts(graphs_for(model)[0], pes)
    options = {**BASE, "model": model, "settings": SMALL[model]}
    whole = run("simulated", folder, pes, out=tmp_path / "whole", **options)[0]
    stop_at(5, folder, pes, out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()
    assert [path.name for path in checkpoint_files(tmp_path / "run")] == ["epoch-000005.safetensors"]
    resumed = run("simulated", folder, pes, out=tmp_path / "run", resume=True, **options)
    assert tables(tmp_path / "run") == tables(tmp_path / "whole")
    assert not checkpoint_files(tmp_path / "run")
    for mine in resumed:
        assert mine.weights.keys() == whole.weights.keys()
        for name, array in result_arrays(whole).items():
            np.testing.assert_array_equal(result_arrays(mine)[name], array)


@pytest.mark.parametrize(
    ("settings", "stopped", "epochs"),
    [
        ({"schedule": "cosine", "warmup": 3}, 5, 12),
        ({"patience": 2, "selection": "validation_loss"}, 1, 12),
        ({"optimizer": "adamw"}, 5, 15),  # more epochs than the stopped run asked for: the same curve, longer
    ],
)
def test_schedule_and_patience_continue_after_resume(settings, stopped, epochs, layouts, tmp_path):
    options = {**BASE, "model": "gcn", "settings": {"hidden": 8, **settings}}
    stop_at(stopped, layouts("planted", 1), 1, out=tmp_path / "run", **options)
    options["epochs"] = epochs
    run("simulated", layouts("planted", 1), 1, out=tmp_path / "run", resume=True, **options)
    run("simulated", layouts("planted", 1), 1, out=tmp_path / "whole", **options)
    assert tables(tmp_path / "run") == tables(tmp_path / "whole")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "holds epoch 5: starting anew; --resume goes on from it"),
        ({"seed": 3}, "holds epoch 5, not of this run or"),
    ],
)
def test_run_without_resume_reports_earlier_checkpoints(change, said, runs, caplog):
    """Once, whatever the number of PEs; nothing is said where there are none."""
    runs.stop(5, pes=2)
    assert not caplog.messages
    runs.stop(2, pes=2, **change)
    (line,) = caplog.messages
    assert line.startswith(f"{runs.out}.checkpoint {said}")
    assert runs.names() == ["epoch-000002.safetensors"]


def test_checkpoint_of_another_run_is_refused(runs):
    paths = runs.stop(5, pes=2)
    for change, message in (
        ({"graph": "directed"}, "is of a run with graph_hash .*, this run has graph_hash"),
        ({"pes": 4}, "is of a run with pes 2, this run has pes 4.*--weights takes the weights alone"),
        ({"technique": "cola"}, "technique halo, this run has technique cola"),
        ({"settings": {"hidden": 9}}, "whose setting hidden is 8, this run has 9: run it as before"),
        ({"epochs": 4}, "has 5 epochs already, more than the 4 asked for: ask for more, take another"),
    ):
        with pytest.raises(InputError, match=message):
            runs.resume(**{"pes": 2, **change})
        assert runs.files() == paths
    for weights in ("run.checkpoint", "run.checkpoint/epoch-000005.safetensors"):
        path = runs.out.with_name("run.checkpoint") if weights == "run.checkpoint" else paths[0]
        with pytest.raises(InputError, match=rf"/{weights}: this run's checkpoints would replace these weights"):
            runs.train(pes=2, weights=path)
        assert runs.files() == paths


def test_checkpoint_of_another_partition_is_refused(runs, layouts, tmp_path):
    csr, data = planted()
    other = make_layout(tmp_path / "other", csr, 2, scheme="equal_nodes", **data)
    options = {**BASE, "model": "gcn"}
    runs.stop(5, pes=2)
    assert layout.read_manifest(other).graph_hash == layout.read_manifest(layouts("planted", 2)).graph_hash
    message = (
        r"epoch-000005\.safetensors: is of a run with partition scheme edge_balanced, this run has partition scheme"
        r" equal_nodes: run it as before to go on; to start anew take .* or remove .*/run\.checkpoint \(--weights takes"
    )
    with pytest.raises(InputError, match=message):
        run("simulated", other, 2, out=runs.out, resume=True, **options)
    weights = {**options, "out": tmp_path / "new", "epochs": 1, "weights": tmp_path / "run.checkpoint"}
    run("simulated", other, 2, **weights)
    runs.resume(pes=2)
    message = "run: is a finished run with partition scheme edge_balanced, this run has partition scheme equal_nodes"
    with pytest.raises(InputError, match=message):
        run("simulated", other, 2, out=runs.out, resume=True, **options)


def test_checkpoint_of_gpus_is_refused_on_cpus(runs, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedWorld, "gpu", "H200")
        runs.stop(5)
    with pytest.raises(InputError, match="is of a run with device GPUs, this run has device CPUs: run it as before"):
        runs.resume()


def test_stopped_training_without_output_says_what_is_lost(layouts):
    with pytest.raises(StoppedError, match="stopped after epoch 1 of 12: no output"):
        run("simulated", layouts("planted", 1), 1, model="gcn", stop=Stop(1), **BASE)


@pytest.mark.sentinel
@pytest.mark.slow
def test_killed_run_resumes(runs, layouts, tmp_path):
    """SIGKILL in the middle of a checkpoint-writing run, again and again, until it is done."""
    script = (
        "import json, sys; from pathlib import Path; from support.programs.train_program import run\n"
        "options = json.loads(sys.argv[1]); out = Path(options.pop('out'))\n"
        "run('simulated', out=out, **options)"
    )
    arguments = {**BASE, "model": "gcn", "epochs": 400, "folder": layouts("planted", 2), "pes": 2, "resume": True}
    arguments |= {"checkpoint_every": ALWAYS, "out": runs.out}
    kills = 0
    for _ in range(20):
        command = [sys.executable, "-c", script, json.dumps(arguments, default=str)]
        with subprocess.Popen(command, env=changed_environment({}), stderr=subprocess.PIPE) as process:
            started = progressed = runs.files()
            # Let it write some checkpoints, then kill it while it writes others.
            while process.poll() is None and (kills >= 2 or len({*progressed} - {*started}) < 2):
                progressed = runs.files()
                time.sleep(0.002)
            process.kill()
            code, errors = process.wait(), process.stderr.read()
        assert code in (0, -signal.SIGKILL), errors
        if code == 0:
            break
        kills += 1
        runs.out.with_name("run.checkpoint").joinpath(".tmpAbC012").touch()  # as safetensors leaves what it was writing
    assert kills == 2
    assert runs.out.is_dir()
    runs.check(pes=2, epochs=400)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "whole"]


def test_saved_weights_are_those_of_the_best_epoch(runs, layouts):
    result = runs.train(model="gin")
    kept = load_file(runs.out / "weights.safetensors")

    def scores(world):
        settings = settings_of("gin", BASE["settings"])
        part = layout.load(layouts("planted", 1), 0)
        trainer = Trainer(world, part, model="gin", technique="halo", options={}, settings=settings, seed=0)
        trainer.start_from(kept)
        return trainer.evaluate()

    found = launch("simulated", lambda: 1, scores)[0]
    assert found.test == result.record.test_accuracy
    assert found.validation == max(epoch.validation_accuracy for epoch in result.epochs)


@pytest.mark.parametrize("change", [{"seed": 3}, {"epochs": 6}])
def test_interrupted_replacement_of_a_finished_run_resumes(change, runs):
    """Stopped on its way it is not taken for the finished one; before its first checkpoint there is only that."""
    runs.train()
    with pytest.raises(InputError, match=r"run: (is a finished run|has 12 epochs already)"):
        runs.resume(**change)
    with pytest.raises(StoppedError):
        runs.train(stop=Stop(4), **change)
    runs.resume(**change)
    runs.check(**change)
    assert not runs.files()


def test_finished_run_is_not_trained_again(runs, caplog):
    first = runs.train(pes=2)
    weights = runs.out / "weights.safetensors"
    written = (weights.stat().st_ino, weights.stat().st_mtime_ns)
    again = runs.resume(pes=2)
    assert caplog.messages == [f"{runs.out}: this run is finished, nothing was trained"]
    assert (again.record, again.epochs) == (first.record, first.epochs)
    assert all(np.array_equal(again.weights[name], array) for name, array in first.weights.items())
    assert (weights.stat().st_ino, weights.stat().st_mtime_ns) == written
    for change, message in (
        ({"seed": 3}, "run: is a finished run with seed 2, this run has seed 3: take another"),
        ({"epochs": 13}, "run: is a finished run of 12 epochs, whose checkpoints are gone"),
        ({"epochs": 4}, "run: has 12 epochs already, more than the 4 asked for: take another"),
    ):
        with pytest.raises(InputError, match=message):
            runs.resume(pes=2, **change)
    # What an earlier version did not note is not asked for.
    alter(runs.out / "run.json", scheme=None, layout=None, asked_epochs=None)
    assert len(runs.resume(pes=2).epochs) == 12


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_run_ended_by_patience_is_finished(schedule, runs):
    """Where step sizes depend on the epochs asked for, with others it is another run."""
    options = {"settings": {"hidden": 8, "patience": 2, "learning_rate": 0.3, "schedule": schedule}, "epochs": 60}
    done = len(runs.train(**options).epochs)
    assert done < 60
    assert len(runs.resume(**options).epochs) == done
    options["epochs"] = 80
    if schedule == "constant":
        assert len(runs.resume(**options).epochs) == done
        return
    with pytest.raises(InputError, match="is a finished run with epochs 60, this run has epochs 80"):
        runs.resume(**options)


@pytest.mark.parametrize(
    ("before", "now", "finished"),
    [
        ("none", "first", False), ("first", "none", False), ("first", "second", True), ("first", "first", True),
        ("first", "first", False),
    ],
)  # fmt: skip
def test_run_resumes_only_from_its_own_initial_weights(before, now, finished, runs, tmp_path):
    """Wherever the weights lie: what counts is what is in them."""
    digests, start = {"none": "none"}, {"none": None}
    for name in {before, now} - {"none"}:
        runs.train(seed=len(name), out=name)
        digests[name] = digest("", load_file(tmp_path / name / "weights.safetensors"))[:12]
        start[name] = tmp_path / name
    if finished:
        runs.train(pes=2, weights=start[before])
    else:
        runs.stop(5, pes=2, weights=start[before])
    if before != now:
        message = f"run with starting weights {digests[before]}, this run has starting weights {digests[now]}: "
        with pytest.raises(InputError, match=message):
            runs.resume(pes=2, weights=start[now])
        return
    (tmp_path / "first").rename(tmp_path / "moved")
    (tmp_path / "first").symlink_to("moved/weights.safetensors")
    assert runs.resume(pes=2, weights=start[now]).record.weights[:12] == digests[now]
    runs.check(pes=2, weights=start[now])


def test_altered_weights_are_refused(runs):
    runs.train()
    file = runs.out / "weights.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(InputError, match=r"weights.safetensors: no weights of mgg train, or torn \(its content"):
        runs.train(weights=runs.out, out="other")


MINE = Identity(
    model="gcn", dataset="cora", graph_hash="a" * 64, pes=2, scheme="metis", layout="b" * 64, device="CPUs",
    technique="mgg", options={"ps": 16, "wpb": 2}, seed=0, settings={"hidden": 16, "patience": None, "dropout": 0.5},
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"pes": 4, "seed": 1}, "with pes 4, this run has pes 2"),
        ({"layout": "c" * 64}, "with layout cccccccccccc, this run has layout bbbbbbbbbbbb"),
        ({"model_file": "e" * 64}, "with model file of sha256 eeeeeeeeeeee, this run has model file of sha256 none"),
        ({"scheme": None, "layout": None, "device": None}, None),
        ({"emulated": "emulated 20 GB/s, 5 us"}, "with network emulated 20 GB/s, 5 us, this run has network none"),
        ({"options": {"ps": 32, "wpb": 2}}, "whose option ps is 32, this run has 16"),
        (
            {"settings": {"hidden": 8, "patience": 5, "dropout": 0.5}},
            "whose setting hidden is 8, this run has 16; setting patience is 5, this run has none",
        ),
        ({"settings": {"hidden": 16, "dropout": 0.5}}, None),
        ({"settings": {"hidden": 16, "patience": None}}, "whose setting dropout is none, this run has 0.5"),
    ],
)
def test_first_difference_between_runs_is_named(change, said):
    assert difference(MINE.model_copy(update=change), MINE) == said
