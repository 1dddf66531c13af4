"""The command line as scripts use it: output, exit codes, one line for every mistake, nothing half-written."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml
from support import forked
from support.ranks import mpiexec
from support.records import alter
from support.workflow import ROOT

from mgg import backend, record
from mgg.aggregate import job
from mgg.cli import group, main
from mgg.errors import NOT_ENOUGH_MEMORY, MachineError

INTERRUPTED = "mgg: interrupted; outputs appear only when they are whole: run the same command again"


def mgg(*arguments, cwd, code=0, **environment):
    """Run the installed command; returns what it printed, after checking its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "mgg.cli", *map(str, arguments)],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """digits, taken as far as its layouts."""
    folder = tmp_path_factory.mktemp("cli")
    mgg("retrieve", "digits", "--out", "raw", cwd=folder)
    mgg("graph", "raw", "--out", "graph", cwd=folder)
    for pes in (1, 2):
        mgg("partition", "graph", "--pes", pes, "--out", f"part{pes}", cwd=folder)
        mgg("layout", "graph", f"part{pes}", "--out", f"layout{pes}", cwd=folder)
    return folder


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))


def test_from_graph_to_report(made, tmp_path):
    mgg(
        "aggregate", made / "layout2", "--technique", "mgg,halo", "--dim", "4,16", "--set", "mgg.ps=8",
        "--iterations", 4, "--out", "records.jsonl", cwd=tmp_path,
    )  # fmt: skip
    records = record.read_lines(tmp_path / "records.jsonl", record.AggregateRecord)
    assert [(r.technique, r.dim, r.pes) for r in records] == [
        ("mgg", 4, 2),
        ("mgg", 16, 2),
        ("halo", 4, 2),
        ("halo", 16, 2),
    ]
    assert records[0].options["ps"] == 8 and all(r.error <= r.tolerance for r in records)
    assert all((len(r.launches), len(r.seconds)) == (3, 12) for r in records)
    mgg("train", made / "layout2", "--model", "gcn", "--epochs", 5, "--set", "hidden=8", "--out", "run", cwd=tmp_path)
    run, epochs = record.read_run(tmp_path / "run")
    assert run.settings["hidden"] == 8 and len(epochs) == 5 and run.pes == 2
    mgg("report", "records.jsonl", "run", "--out", "report", "--title", "Mine", cwd=tmp_path)
    assert "Mine" in (tmp_path / "report" / "index.html").read_text()


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.skipif(bool(backend.gpus()), reason="there are GPUs")
@pytest.mark.parametrize("pes", [1, 2])
def test_gpus_that_a_job_holds_and_cannot_use_are_one_line(made, tmp_path, pes):
    """None of them computes on CPU cores in silence; who wants that says so."""
    words = [
        "-m",
        "mgg.cli",
        "train",
        str(made / f"layout{pes}"),
        "--model",
        "gcn",
        "--epochs",
        "1",
        "--out",
        str(tmp_path / "run"),
    ]
    done = mpiexec(pes, words, SLURM_GPUS_ON_NODE="2")
    assert done.returncode == 3 and not files(tmp_path)
    [line] = [line for line in done.stderr.splitlines() if line.startswith("mgg: ")]
    assert line.startswith("mgg: backend auto: Slurm has given this job 2 GPUs, and") and "take --backend mpi" in line
    assert "Traceback" not in done.stderr
    assert mpiexec(pes, [*words, "--backend", "mpi"], SLURM_GPUS_ON_NODE="2").returncode == 0


def test_variants_are_timed_in_one_job(made, tmp_path):
    done = mgg(
        "aggregate", made / "layout2", "--technique", "local,mgg,halo", "--dim", 4, "--set", "mgg.wpb=2",
        "--variant", "mgg:ps=2,4:dist=1", "--variant", "mgg:interleave=false", "--iterations", 1, "--out", "r.jsonl",
        cwd=tmp_path,
    )  # fmt: skip
    records = record.read_lines(tmp_path / "r.jsonl", record.AggregateRecord)
    shown = [(r.technique, r.options.get("ps"), r.options.get("dist"), r.options.get("interleave")) for r in records]
    usual = records[2].defaults
    assert shown == [
        ("mgg", 2, 1, True),
        ("mgg", 4, 1, True),
        ("mgg", usual["ps"], usual["dist"], False),
        ("halo", None, None, None),
    ]
    assert {r.options["wpb"] for r in records[:3]} == {2}
    assert done.stderr.count("mgg: not measured: local, D = 4: technique local: runs on one PE") == 1
    assert done.stdout.count(" in 3 launches)") == len(records)


def test_two_types_are_timed_in_one_job(made, tmp_path):
    done = mgg(
        "aggregate", made / "layout2", "--technique", "mgg,halo", "--dim", 4, "--dtype", "fp32,bf16", "--iterations", 2,
        "--launches", 1, "--out", "r.jsonl", cwd=tmp_path,
    )  # fmt: skip
    records = record.read_lines(tmp_path / "r.jsonl", record.AggregateRecord)
    assert [(r.technique, r.dtype, r.tolerance) for r in records] == [
        ("mgg", "fp32", 1e-6), ("halo", "fp32", 1e-6), ("halo", "bf16", 1e-2),
    ]  # fmt: skip
    assert all((r.launches, len(r.seconds)) == ([r.median], 2) for r in records) and "launches" not in done.stdout
    assert records[1].bytes_wire == 2 * records[2].bytes_wire > 0
    assert "not measured: mgg, D = 4, bf16: technique mgg: takes no bf16 embeddings" in done.stderr
    assert "halo forward bf16: D=4 P=2" in done.stdout


def test_a_generated_graph_with_a_name_of_its_own(tmp_path):
    named = ("--name", "pokec-like", "--scale", 0.0002, "--json", "--out", "graph")
    made = json.loads(mgg("generate", "web-like", *named, cwd=tmp_path).stdout)
    assert made["name"] == "pokec-like"
    manifest = yaml.safe_load((tmp_path / "graph/manifest.yaml").read_text())
    assert manifest["source"]["generator"] == "web-like"


@pytest.mark.slow
def test_json_is_one_object_on_standard_output(made, tmp_path):
    commands = [
        ["doctor"],
        ["retrieve", "digits", "--out", "raw"],
        ["graph", "raw", "--out", "graph"],
        ["generate", "planted", "--scale", "0.1", "--out", "planted"],
        ["partition", "graph", "--pes", "2", "--out", "part"],
        ["layout", "graph", "part", "--out", "layout"],
        ["aggregate", "layout", "--technique", "halo", "--dim", "4", "--iterations", "2", "--out", "r.jsonl"],
        ["train", "layout", "--model", "gcn", "--epochs", "2", "--out", "run"],
        ["infer", "layout", "--model", "gcn", "--weights", "run/weights.safetensors", "--out", "predictions"],
        ["evaluate", "predictions"],
        ["report", "r.jsonl", "run", "--out", "report"],
    ]
    for command in commands:
        values = json.loads(mgg(*command, "--json", cwd=tmp_path).stdout)
        assert isinstance(values, dict) and values, command


@pytest.mark.slow
def test_people_read_rounded_numbers_and_programs_exact_ones(made, tmp_path):
    run = ["train", made / "layout1", "--model", "gcn", "--epochs", 3, "--out", "run"]
    lines = dict(line.split(": ") for line in mgg(*run, cwd=tmp_path).stdout.splitlines())
    exact = json.loads(mgg(*run, "--resume", "--json", cwd=tmp_path).stdout)
    done, _ = record.read_run(tmp_path / "run")
    assert exact["loss"] == done.loss and exact["median"] == done.median
    assert lines["loss"] == f"{done.loss:.4g}" != str(done.loss)
    assert lines["seconds an epoch, median"] == f"{done.median:.4g}" and "median" not in lines
    assert set(lines) == {*exact, "seconds an epoch, median"} - {"median"}
    scores = dict(line.split(": ") for line in mgg("evaluate", "run", cwd=tmp_path).stdout.splitlines())
    exact = json.loads(mgg("evaluate", "run", "--json", cwd=tmp_path).stdout)
    assert scores["test"] == f"{exact['test']:.4g}" != str(exact["test"])


def test_partition_prints_its_quality_as_json(made, tmp_path):
    quality = json.loads(mgg("partition", made / "graph", "--pes", 4, "--dim", 8, "--out", "p", cwd=tmp_path).stdout)
    assert len(quality["arcs_per_pe"]) == 4 and sum(quality["arcs_per_pe"]) == 24678
    assert quality["v_cg"] == 4 * 1797 * 8 * 3 and quality["v_fr"] == 4 * quality["edge_cut"] * 8
    assert quality["v_fc"] == 4 * sum(quality["halo_rows_per_pe"]) * 8


def test_memory_of_a_gpu_is_not_taken_for_the_hosts():
    """The workflow asks for more of the host's, which would not help."""
    of_gpu = type("OutOfMemoryError", (MemoryError,), {"__module__": "cupy.cuda.memory"})
    assert group._memory(of_gpu("512 bytes")).startswith("not enough GPU memory: 512 bytes")
    assert group._memory(MemoryError("512 bytes")) == f"{NOT_ENOUGH_MEMORY}: 512 bytes"


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (RuntimeError("odd"), 1, "mgg: internal error: RuntimeError: odd (--debug shows where)"),
        (NotImplementedError(), 1, "mgg: internal error: NotImplementedError (--debug shows where)"),
        (KeyboardInterrupt(), 130, INTERRUPTED),
    ],
)
def test_an_error_of_ours_and_an_interruption_have_codes_of_their_own(raised, code, said, monkeypatch, capsys):
    @click.command()
    def broken():
        raise raised

    monkeypatch.setattr(group, "cli", broken)
    monkeypatch.setattr(sys, "argv", ["mgg"])
    monkeypatch.setattr(backend, "mpi_runs", lambda: False)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        group.run()
    assert ended.value.code == code and capsys.readouterr().err.strip() == said
    assert f"\n| {code} | " in (ROOT / "README.md").read_text(encoding="utf-8")


MISTAKES = {
    "no such command": (["agregate"], "aggregate"),
    "no such option": (["partition", "{made}/graph", "--pse", "2", "--out", "x"], "--pes"),
    "missing option": (["partition", "{made}/graph", "--pes", "2"], "--out"),
    "not a number": (["partition", "{made}/graph", "--pes", "two", "--out", "x"], "two"),
    "no PEs": (["partition", "{made}/graph", "--pes", "0", "--out", "x"], "--pes"),
    "unknown scheme": (["partition", "{made}/graph", "--pes", "2", "--scheme", "metys", "--out", "x"], "metis"),
    "unknown data set": (["retrieve", "coro", "--out", "x"], "cora"),
    "unknown generator": (["generate", "redit-like", "--out", "x"], "reddit-like"),
    "the name of a real data set": (["generate", "web-like", "--name", "cora", "--out", "x"], "a real data set"),
    "the name of another generator": (
        ["generate", "web-like", "--name", "planted", "--out", "x"], "is that of a generator",
    ),
    "a name that is none": (["generate", "web-like", "--name", "a/b", "--out", "x"], "only letters"),
    "no such type": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--dtype", "fp32,fp8", "--out", "x"],
        "'fp8' is not one of fp32, bf16",
    ),
    "no graph there": (["partition", "nowhere", "--pes", "2", "--out", "x"], "nowhere"),
    "a layout is not a graph": (["partition", "{made}/layout2", "--pes", "2", "--out", "x"], "not a graph folder"),
    "a graph is not a layout": (["train", "{made}/graph", "--model", "gcn", "--out", "x"], "not a layout folder"),
    "too many columns": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "99999", "--out", "x"], "65536",
    ),
    "a folder for records": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--out", "{made}"], "is a folder",
    ),
    "a file of another kind": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--out", "{made}/raw/digits.csv.gz"],
        "no timing records",
    ),
    "below a file": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--out", "{made}/raw/source.yaml/x"],
        "source.yaml: is not a folder",
    ),
    "records where nobody can write": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--out", "/proc/self/x"],
        "cannot be written",
    ),
    "an option of a technique without options": (
        ["aggregate", "{made}/layout2", "--technique", "ring", "--dim", "4", "--set", "ps=4", "--out", "x"],
        "there are none",
    ),
    "over another kind of folder": (
        ["layout", "{made}/graph", "{made}/part2", "--out", "{made}/graph"], "not an output",
    ),
    "no layout there": (["train", "nowhere", "--model", "gcn", "--out", "x"], "nowhere"),
    "unknown technique": (["aggregate", "{made}/layout2", "--technique", "cula", "--dim", "4", "--out", "x"], "cola"),
    "a variant of nothing": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--variant", "mgg:ps=2", "--out", "x"],
        "is not among those named",
    ),
    "a variant of nothing predicted": (
        ["predict", "{made}/graph", "--pes", "2", "--technique", "halo", "--variant", "cola:fusion=false"],
        "--variant cola:fusion=false: technique 'cola' is not among those named",
    ),
    "a variant out of range": (
        ["aggregate", "{made}/layout2", "--technique", "mgg", "--dim", "4", "--variant", "mgg:ps=64", "--out", "x"],
        "option ps",
    ),
    "nothing that can run": (
        ["aggregate", "{made}/layout2", "--technique", "local", "--dim", "4", "--out", "x"],
        "runs on one PE",
    ),
    "an unknown figure": (["report", "x", "--figure", "mgg_fig12", "--out", "y"], "did you mean"),
    "a note without its figure": (["report", "x", "--note", "mgg_fig11=why", "--out", "y"], "this figure is not shown"),
    "zero columns": (["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4,0", "--out", "x"], "4,0"),
    "unknown option of a technique": (
        ["aggregate", "{made}/layout2", "--technique", "mgg", "--dim", "4", "--set", "wbp=2", "--out", "x"], "wpb",
    ),
    "a setting that a model has not": (
        ["train", "{made}/layout2", "--model", "sgc", "--set", "sgc.alpha=2", "--out", "x"],
        "setting of model sgc: alpha: unknown field; known: class_weights, hops, learning_rate",
    ),
    "a model of one's own that is not there": (
        ["train", "{made}/layout2", "--model", "./mine.py", "--set", "mine.hidden=2", "--out", "x"],
        "model './mine.py': No such file or directory, seen from /",
    ),
    "a model of one's own with the name of MGG's": (
        ["train", "{made}/layout2", "--model", str(ROOT / "mgg/model/gcn.py"), "--out", "x"],
        "gcn is a model of MGG's: rename the file, or ask for --model gcn",
    ),
    "the content of a model of MGG's": (
        ["train", "{made}/layout2", "--model", "gcn", "--model-hash", "0" * 64, "--out", "x"],
        "--model-hash: gcn is a model of MGG's, and no file of your own",
    ),
    "weights to predict with that are not there": (
        ["infer", "{made}/layout2", "--model", "gcn", "--weights", "w.npz", "--out", "x"], "w.npz: cannot be read",
    ),
    "weights of PyTorch's own format": (
        ["infer", "{made}/layout2", "--model", "gcn", "--weights", "w.pt", "--out", "x"],
        "w.pt: is neither a .safetensors nor a .npz file; in PyTorch: safetensors.torch.save_file(",
    ),
    "a setting of training in inference": (
        ["infer", "{made}/layout2", "--model", "gcn", "--weights", "w.npz", "--set", "patience=2", "--out", "x"],
        "setting patience: is of training, and changes no prediction: leave it out",
    ),
    "a setting of another model": (
        ["train", "{made}/layout2", "--model", "gcn", "--set", "gin.layers=2", "--out", "x"],
        "--set gin.layers: 'gin' is neither the model nor the technique; did you mean gcn?",
    ),
    "an option of the technique that it has not": (
        ["train", "{made}/layout2", "--model", "gcn", "--set", "halo.alpha=2", "--out", "x"],
        "technique halo: option alpha: unknown field; known: workgroup",
    ),
    "option of an absent technique": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--set", "mgg.ps=2", "--out", "x"],
        "mgg.ps",
    ),
    "not an assignment": (
        ["aggregate", "{made}/layout2", "--technique", "mgg", "--dim", "4", "--set", "ps", "--out", "x"], "key=value",
    ),
    "unknown model": (["train", "{made}/layout2", "--model", "gnc", "--out", "x"], "gcn"),
    "a setting for an option": (
        ["train", "{made}/layout2", "--model", "gcn", "--patience", "3", "--out", "x"],
        "No such option '--patience': patience is a setting of the model, --set patience=VALUE (see mgg train --help)",
    ),
    "an option that is no setting": (
        ["train", "{made}/layout2", "--model", "gcn", "--patients", "3", "--out", "x"], "No such option '--patients'",
    ),
    **{
        f"several to train with, {option}": (
            ["train", "{made}/layout2", "--model", "gcn", option, "a,b", "--out", "x"],
            f"Invalid value for '{option}': takes one, found 'a,b': run mgg train once for each of them",
        )
        for option in ("--model", "--technique")
    },
    "unknown setting": (["train", "{made}/layout2", "--model", "gcn", "--set", "hiden=3", "--out", "x"], "hidden"),
    "a setting that the model ignores": (
        ["train", "{made}/layout2", "--model", "gin", "--set", "weight_decay=10", "--out", "x"], "weight_decay",
    ),
    "impossible setting": (
        ["train", "{made}/layout2", "--model", "gcn", "--set", "dropout=1.5", "--out", "x"], "dropout",
    ),
    "a metric without its labels": (
        ["train", "{made}/layout2", "--model", "gcn", "--metric", "roc_auc", "--out", "x"], "take accuracy",
    ),
    "no such metric": (["train", "{made}/layout2", "--model", "gcn", "--metric", "acuracy", "--out", "x"], "accuracy"),
    **{
        f"{option} {value}": (
            ["train", "{made}/layout2", "--model", "gcn", option, value, "--out", "x"], f"Invalid value for '{option}'",
        )
        for option in ("--stall-after", "--checkpoint-every")
        for value in ("nan", "inf", "1e300", "0")
    },
    **{
        f"scale {value}": (["generate", "planted", "--scale", value, "--out", "x"], "Invalid value for '--scale'")
        for value in ("nan", "inf", "1e300", "0")
    },
    **{
        f"{option} {value}": (
            ["train", "{made}/layout2", "--model", "gcn", option, str(value), "--out", "x"],
            f"Invalid value for '{option}': {value} is not in the range {least}<=x<={most}",
        )
        for option, least, most in (("--seed", 0, 2**63 - 1), ("--epochs", 1, 10**9))
        for value in (least - 1, most + 1)
    },
    "a seed of a graph": (["generate", "planted", "--seed", str(2**63), "--out", "x"], "Invalid value for '--seed'"),
    "more products than a year has": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--iterations", "9" * 30, "--out", "x"],
        "Invalid value for '--iterations'",
    ),
    "no such schedule": (
        ["train", "{made}/layout2", "--model", "gcn", "--set", "schedule=cosin", "--out", "x"], "schedule",
    ),
    "weights that are not there": (
        ["train", "{made}/layout2", "--model", "gcn", "--weights", "nowhere", "--out", "x"], "no weights of mgg train",
    ),
    "bf16 with a technique that lacks it": (
        ["train", "{made}/layout2", "--model", "gcn", "--technique", "cola", "--dtype", "bf16", "--out", "x"],
        "takes no bf16",
    ),
    "no records": (["report", "nowhere.jsonl", "--out", "x"], "nowhere.jsonl"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_exit_code_2_and_writes_nothing(made, tmp_path, name):
    arguments, said = MISTAKES[name]
    words = [argument.format(made=made) for argument in arguments]
    done = forked.run("mgg", words, tmp_path, dict(os.environ), 120)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and done.stderr.startswith("mgg: ")
    assert done.stdout == ""
    assert files(tmp_path) == []


@pytest.mark.slow
def test_the_largest_seed_goes_through_training_and_report(made, tmp_path):
    seed = 2**63 - 1
    mgg("train", made / "layout2", "--model", "gcn", "--epochs", 1, "--seed", seed, "--out", "run", cwd=tmp_path)
    mgg("report", "run", "--out", "report", cwd=tmp_path)
    assert str(seed) in (tmp_path / "report/training.csv").read_text()
    alter(tmp_path / "run/run.json", seed=seed + 1)
    done = mgg("report", "run", "--out", "report", cwd=tmp_path, code=2)
    assert "field seed: Input should be less than or equal to" in done.stderr


def test_debug_shows_the_traceback(tmp_path):
    done = mgg("retrieve", "coro", "--out", "x", "--debug", cwd=tmp_path, code=2)
    assert "Traceback" in done.stderr and done.stderr.strip().splitlines()[-1].startswith("mgg: ")


def test_training_a_graph_without_labels_is_refused(tmp_path):
    mgg("generate", "web-like", "--scale", "0.0002", "--out", "graph", cwd=tmp_path)
    mgg("partition", "graph", "--pes", 2, "--out", "part", cwd=tmp_path)
    mgg("layout", "graph", "part", "--out", "layout", cwd=tmp_path)
    before = files(tmp_path)
    done = mgg("train", "layout", "--model", "gcn", "--out", "run", cwd=tmp_path, code=2)
    assert "labels" in done.stderr or "features" in done.stderr
    assert files(tmp_path) == before


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_layout_for_another_number_of_pes_than_the_job_has(made, tmp_path, ranks):
    arguments = ["aggregate", str(made / "layout2"), "--technique", "halo", "--dim", "4", "--backend", "mpi"]
    done = mpiexec(ranks, ["-m", "mgg.cli", *arguments, "--out", str(tmp_path / "x")])
    assert done.returncode == 2
    assert done.stderr.strip() == (
        f"mgg: this layout is for 2 PEs but the job has {ranks}: start it with mpiexec -n 2"
        " (or srun -n), or make a layout for as many PEs as the job has"
    )
    assert files(tmp_path) == []


@pytest.mark.slow
@pytest.mark.mpi
def test_ranks_speak_with_one_voice(made, tmp_path):
    arguments = ["aggregate", str(made / "layout2"), "--technique", "halo", "--dim", "4"]
    done = mpiexec(2, ["-m", "mgg.cli", *arguments, "--json", "--out", str(tmp_path / "r.jsonl")])
    assert done.returncode == 0, done.stderr
    (only,) = json.loads(done.stdout)["records"]
    assert only["backend"] == "mpi" and only["pes"] == 2
    done = mpiexec(2, ["-m", "mgg.cli", *arguments, "--set", "ps=4", "--out", str(tmp_path / "x")])
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.mpi
def test_an_array_harmed_on_one_pe_ends_all_ranks_with_one_line(made, tmp_path):
    import shutil

    harmed = tmp_path / "layout"
    shutil.copytree(made / "layout2", harmed)
    victim = harmed / "pe-0001" / "forward.halo_rows.npy"
    victim.write_bytes(victim.read_bytes()[:-4])
    arguments = ["aggregate", str(harmed), "--technique", "halo", "--dim", "4", "--out", str(tmp_path / "r.jsonl")]
    done = mpiexec(2, ["-m", "mgg.cli", *arguments], timeout=60)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "pe-0001/forward.halo_rows.npy" in line
    assert not (tmp_path / "r.jsonl").exists()


def test_help_names_every_stage(tmp_path):
    out = mgg("--help", cwd=tmp_path).stdout
    for stage in ("retrieve", "graph", "generate", "partition", "layout", "aggregate", "train", "report", "doctor"):
        assert f"\n  {stage} " in out


@pytest.mark.parametrize("techniques", ["mgg,mgg_uvm", "mgg_uvm"])
def test_what_threads_refuse_does_not_lose_what_ranks_measured(made, tmp_path, techniques, monkeypatch, capsys):
    """A job whose ranks see one GPU each: techniques of one process cannot run there."""

    def refuse(*_):
        raise MachineError("2 PEs in one process need 2 GPUs").on_every_pe()

    monkeypatch.setattr(job, "splits", lambda *_: True)
    monkeypatch.setattr(job, "launch_threads", refuse)
    out = tmp_path / "records.jsonl"
    arguments = ["aggregate", str(made / "layout2"), "--technique", techniques, "--dim", "4", "--iterations", "2"]
    monkeypatch.setattr(sys, "argv", ["mgg", *arguments, "--backend", "simulated", "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        main()
    measured = techniques.split(",")[:-1]
    assert ended.value.code in ((0, None) if measured else (3,))
    assert "2 PEs in one process need 2 GPUs" in capsys.readouterr().err
    assert out.exists() == bool(measured)
    if measured:
        assert [found.technique for found in record.read_lines(out, record.AggregateRecord)] == measured


@pytest.mark.slow
def test_links_are_printed_stored_and_taken_for_predictions(made, tmp_path):
    text = mgg("links", "--pes", 2, "--backend", "simulated", "--out", "here.json", cwd=tmp_path, XDG_CACHE_HOME=".")
    assert "shared_memory: " in text.stdout and "GB/s" in text.stdout
    barrier = json.loads((tmp_path / "here.json").read_text())["links"]["barrier"]
    assert text.stdout.splitlines()[-1] == f"barrier: {barrier * 1e6:.3g} us"
    assert len(files(tmp_path / "mgg" / "links")) == 1 and "kept: " not in text.stdout
    again = mgg("links", "--pes", 2, "--backend", "simulated", cwd=tmp_path, XDG_CACHE_HOME=".").stdout
    said, values = again.split("\n", 1)
    assert values == text.stdout and said.startswith("kept: measured before, in mgg/links/")
    assert said.endswith(".json; --refresh measures anew")
    told = mgg(
        "predict", made / "layout2", made / "part2", "--machine", "here.json", "--technique", "halo,mgg_uvm",
        "--dim", "4,16", "--link", "shared_memory.bandwidth=1e9", "--out", "p.jsonl", "--json", cwd=tmp_path,
    )  # fmt: skip
    found = json.loads(told.stdout)["predictions"]
    assert [(each["technique"], each["dim"]) for each in found[:4]] == [
        ("halo", 4), ("mgg_uvm", 4), ("halo", 16), ("mgg_uvm", 16),
    ]  # fmt: skip
    assert found[0]["links"]["shared_memory"]["bandwidth"] == 1e9 and found[0]["machine"] == "simulated"
    assert record.read_lines(tmp_path / "p.jsonl", record.PredictionRecord)[0].seconds == found[0]["seconds"]
    mgg("report", "p.jsonl", made / "part2", "--out", "report", cwd=tmp_path)
    assert "Predicted, not measured" in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")


def test_links_go_to_a_file(tmp_path):
    said = mgg("links", "--backend", "simulated", "--out", ".", cwd=tmp_path, code=2, XDG_CACHE_HOME=".").stderr
    assert ".: is a folder; links are written to a file" in said and not files(tmp_path)


@pytest.mark.slow
@pytest.mark.sentinel
def test_predictions_are_a_line_each(made):
    asked = ["predict", made / "graph", "--pes", "2,64", "--technique", "halo,cola"]
    told = mgg(*asked, cwd=made).stdout.splitlines()
    exact = [each["seconds"] * 1e3 for each in json.loads(mgg(*asked, "--json", cwd=made).stdout)["predictions"]]
    assert [float(line.split(" ms predicted")[0].split()[-1]) for line in told] == pytest.approx(exact, abs=1e-3)
    assert [line.split("  ")[0] for line in told] == [
        f"digits {name}: D=64 P={pes}" for pes in (2, 64) for name in ("halo", "cola")
    ]
    assert all(" ms predicted on h200" in line for line in told)


@pytest.mark.slow
def test_predictions_mark_what_auto_would_pick(made):
    """The fastest of all techniques, where it is among those named."""
    told = json.loads(mgg("predict", made / "graph", "--pes", "2,64", "--json", cwd=made).stdout)["predictions"]
    for pes in (2, 64):
        ours = [each for each in told if each["pes"] == pes]
        assert [each for each in ours if each["chosen"]] == [min(ours, key=lambda each: each["seconds"])]
    lines = mgg("predict", made / "graph", "--pes", "2,64", cwd=made).stdout.splitlines()
    assert [line.endswith(", the pick of auto") for line in lines] == [each["chosen"] for each in told]


def test_variants_are_predicted(made, tmp_path):
    told = mgg(
        "predict", made / "graph", "--pes", "16", "--technique", "halo,cola", "--variant", "cola",
        "--variant", "cola:fusion=false:pipelined=true,false", "--out", "p.jsonl", cwd=tmp_path,
    ).stdout.splitlines()  # fmt: skip
    assert [line.split(": ")[0] for line in told] == [
        "digits halo", "digits cola", "digits cola (fusion=False)", "digits cola (fusion=False, pipelined=False)",
    ]  # fmt: skip
    assert [each.options for each in record.read_lines(tmp_path / "p.jsonl", record.PredictionRecord)] == [
        {}, {}, {"fusion": False}, {"fusion": False, "pipelined": False},
    ]  # fmt: skip


@pytest.mark.slow
def test_auto_is_measured_beside_what_was_named(made, tmp_path):
    text = mgg(
        "aggregate", made / "layout2", "--technique", "auto,halo", "--dim", "4", "--set", "halo.x=1",
        "--out", "r.jsonl", cwd=tmp_path, code=2, XDG_CACHE_HOME=".",
    ).stderr  # fmt: skip
    assert "technique halo: option" in text
    text = mgg(
        "aggregate", made / "layout2", "--technique", "auto", "--dim", "4", "--set", "ps=2", "--out", "r.jsonl",
        cwd=tmp_path, code=2,
    ).stderr  # fmt: skip
    assert "--set: technique auto picks at default options" in text
    shown = mgg(
        "aggregate", made / "layout2", "--technique", "auto", "--dim", "4", "--iterations", 2, "--out", "r.jsonl",
        cwd=tmp_path, XDG_CACHE_HOME=".",
    ).stdout  # fmt: skip
    (found,) = record.read_lines(tmp_path / "r.jsonl", record.AggregateRecord)
    assert found.chosen and found.predicted > 0 and "picked by auto" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--link", "nvlink=1"], "--link nvlink: expected CLASS.FIELD=NUMBER"),
        (["--link", "nvlnk.bandwidth=1e9"], "link class 'nvlnk' is unknown; did you mean nvlink?"),
        (["--link", "nvlink.bandwidth=1.2.3e4"], "predict: links.nvlink.bandwidth: input should be a valid number"),
        (["--pes", "2,5000"], "holds a number that is not in 1..4096"),
        (["--link", "nvlink.bandwidth=-1"], "predict: links.nvlink.bandwidth: input should be greater than 0"),
        (["--network", "ethernet"], "link class 'ethernet' is unknown"),
        (
            ["--machine", "h300"],
            "machine 'h300': neither a file of mgg links nor known (there are a100, a800, h100, h200, v100)",
        ),
        (
            ["--technique", "auto"],
            "mgg predict marks its pick by itself, where it is among the techniques named: leave",
        ),
        (["--pes", "8"], "--pes: partitions and layouts are split already"),
    ],
)
def test_wrong_links_are_named(made, tmp_path, arguments, message):
    assert message in mgg("predict", made / "part2", *arguments, cwd=tmp_path, code=2).stderr
