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
from support.command_mistakes import MISTAKES
from support.ranks import mpiexec
from support.records import alter
from support.workflow import ROOT

from mgg import backend, record
from mgg.aggregate import job
from mgg.cli import group, main
from mgg.errors import NOT_ENOUGH_MEMORY, MachineError
from mgg.latency_record import LatencyRecord

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


def test_lines_tell_the_check_and_pes_that_take_turns(made, tmp_path):
    asked = [sys.executable, "-m", "mgg.cli", "aggregate", str(made / "layout2"), "--technique", "halo", "--dim", "4",
             "--iterations", "1", "--launches", "1", "--out", "r.jsonl", "--backend", "simulated"]  # fmt: skip
    core = min(os.sched_getaffinity(0))
    done = subprocess.run([*asked, "--no-check"], cwd=tmp_path, capture_output=True, text=True, check=True,
                          preexec_fn=lambda: os.sched_setaffinity(0, {core}))  # fmt: skip
    assert "mgg: 2 PEs take turns on 1 cores: these times say nothing of scaling\n" in done.stderr
    assert "not checked" in done.stdout
    [record] = record_of(
        subprocess.run([*asked, "--replace"], cwd=tmp_path, capture_output=True, text=True, check=True)
    )
    assert "check passed, " in record and " of 1e-06" in record


def record_of(done):
    """The lines of products."""
    return [line for line in done.stdout.splitlines() if "bytes on the wire" in line]


def test_a_generated_graph_with_a_name_of_its_own(tmp_path):
    named = ("--name", "pokec-like", "--scale", 0.0002, "--json", "--out", "graph")
    made = json.loads(mgg("generate", "web-like", *named, cwd=tmp_path).stdout)
    assert made["dataset"] == "pokec-like"
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


def test_partition_prints_its_quality(made, tmp_path):
    asked = ("partition", made / "graph", "--pes", 4, "--dim", 8, "--out", "p")
    quality = json.loads(mgg(*asked, "--json", cwd=tmp_path).stdout)
    text = mgg(*asked, cwd=tmp_path).stdout
    assert f"edge_cut: {quality['edge_cut']}\n" in text and "halo_rows_per_pair" not in text
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
        (ZeroDivisionError(), 1, "mgg: internal error: ZeroDivisionError (--debug shows where)"),
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
    assert f"\n| {code} | " in (ROOT / "docs/errors.md").read_text(encoding="utf-8")


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
    found = json.loads(told.stdout)["records"]
    assert [(each["technique"], each["dim"]) for each in found[:4]] == [
        ("halo", 4), ("mgg_uvm", 4), ("halo", 16), ("mgg_uvm", 16),
    ]  # fmt: skip
    assert found[0]["links"]["shared_memory"]["bandwidth"] == 1e9 and found[0]["machine"] == "simulated"
    assert record.read_lines(tmp_path / "p.jsonl", record.PredictionRecord)[0].seconds == found[0]["seconds"]
    mgg("report", "p.jsonl", made / "part2", "--out", "report", cwd=tmp_path)
    assert "Predicted, not measured" in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_settings_are_tuned_kept_and_taken(made, tmp_path):
    asked = ("tune", made / "layout2", "--dim", 4, "--set", "mgg.interleave=true", "--settings", 3, "--iterations", 2)
    first = mgg(*asked, "--backend", "simulated", "--out", "found.json", "--json", cwd=tmp_path, XDG_CACHE_HOME=".")
    found = json.loads(first.stdout)["products"]
    assert found == json.loads((tmp_path / "found.json").read_text())
    assert [(each["direction"], each["fresh"], len(each["tried"])) for each in found] == [
        ("forward", True, 3), ("transpose", True, 3),
    ]  # fmt: skip
    assert len([line for line in first.stderr.splitlines() if line.startswith("forward D=4: ")]) == 3, "progress"
    assert len(files(tmp_path / "mgg" / "tune")) == 2
    again = mgg(*asked, "--backend", "simulated", cwd=tmp_path, XDG_CACHE_HOME=".")
    assert again.stdout.count("in the table before, nothing was tried") == 2 and not again.stderr
    mgg(
        "aggregate", made / "layout2", "--technique", "mgg", "--dim", "4,5", "--set", "tune=cached", "--backend",
        "simulated", "--iterations", 1, "--warmup", 0, "--out", "times.jsonl", cwd=tmp_path, XDG_CACHE_HOME=".",
    )  # fmt: skip
    records = record.read_lines(tmp_path / "times.jsonl", record.AggregateRecord)
    knobs = [{name: each.options[name] for name in ("ps", "dist", "wpb")} for each in records]
    assert knobs == [found[0]["chosen"], {"ps": 32, "dist": 16, "wpb": 4}]


def test_latency_goes_to_records(tmp_path):
    asked = ("links", "--latency", "--pes", 2, "--backend", "simulated", "--out", "l.jsonl")
    text = mgg(*asked, cwd=tmp_path).stdout
    lines = record.read_lines(tmp_path / "l.jsonl", LatencyRecord)
    assert len(lines) == len(text.splitlines()) == 12 and text.startswith("shared_memory, 0.25 MiB, fine: ")
    mgg(*asked, "--replace", cwd=tmp_path)
    assert len(record.read_lines(tmp_path / "l.jsonl", LatencyRecord)) == 12
    said = mgg("links", "--latency", "--refresh", cwd=tmp_path, code=2).stderr
    assert "leave out --refresh" in said
    (tmp_path / "other").write_text("text")
    said = mgg(*asked[:-1], "other", cwd=tmp_path, code=2).stderr
    assert "other: exists and holds no records of this kind; choose another name" in said


def test_links_go_to_a_file(tmp_path):
    said = mgg("links", "--backend", "simulated", "--out", ".", cwd=tmp_path, code=2, XDG_CACHE_HOME=".").stderr
    assert ".: is a folder; links are written to a file" in said and not files(tmp_path)


@pytest.mark.slow
@pytest.mark.sentinel
def test_predictions_are_a_line_each(made):
    asked = ["predict", made / "graph", "--pes", "2,64", "--technique", "halo,cola"]
    told = mgg(*asked, cwd=made).stdout.splitlines()
    exact = [each["seconds"] * 1e3 for each in json.loads(mgg(*asked, "--json", cwd=made).stdout)["records"]]
    assert [float(line.split(" ms predicted")[0].split()[-1]) for line in told] == pytest.approx(exact, abs=1e-3)
    assert [line.split("  ")[0] for line in told] == [
        f"digits {name}: D=64 P={pes}" for pes in (2, 64) for name in ("halo", "cola")
    ]
    assert all(" ms predicted on h200" in line for line in told)


@pytest.mark.slow
def test_predictions_mark_what_auto_would_pick(made):
    """The fastest of all techniques, where it is among those named."""
    told = json.loads(mgg("predict", made / "graph", "--pes", "2,64", "--json", cwd=made).stdout)["records"]
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
