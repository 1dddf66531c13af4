"""The command line as scripts use it: what commands print and write, and the codes that they end with."""

import json
import re
import shutil

import click
import pytest
from support.ranks import mpiexec
from support.ranks.commands import ended, files, mgg
from support.records import alter
from support.workflow import ROOT

from mgg import backend
from mgg.aggregate import job
from mgg.cli import group
from mgg.errors import NOT_ENOUGH_MEMORY, MachineError
from mgg.records import AggregateRecord, read_lines, read_run
from mgg.records.latency import LatencyRecord
from mgg.records.prediction import PredictionRecord

INTERRUPTED = "mgg: interrupted; outputs appear only when they are whole: run the same command again"
#: The largest there is.
SEED = 2**63 - 1
RUN = (
    "train", "layout1", "--model", "gcn", "--epochs", 3, "--seed", SEED, "--set", "hidden=8", "--backend", "simulated",
    "--out", "run",
)  # fmt: skip
LATENCY = ("links", "--latency", "--pes", 2, "--backend", "simulated", "--out")


@pytest.fixture(scope="module")
def trained(made):
    """What a training prints."""
    return mgg(*RUN, cwd=made).stdout


@pytest.fixture(scope="module")
def timed(made):
    """What the timing of several techniques, options, widths and types prints."""
    return mgg(
        "aggregate", "layout2", "--technique", "local,mgg,halo", "--dim", "4,16", "--dtype", "fp32,bf16",
        "--set", "mgg.wpb=2", "--variant", "mgg:ps=2,4:dist=1", "--variant", "mgg:interleave=false",
        "--iterations", 2, "--out", "records.jsonl", cwd=made,
    )  # fmt: skip


@pytest.mark.slow
def test_one_job_times_variants_widths_and_types(made, timed):
    records = read_lines(made / "records.jsonl", AggregateRecord)
    usual = records[4].defaults
    expected = [
        (technique, dtype, tolerance, *knobs, dim)
        for technique, dtype, tolerance, *knobs in (
            ("mgg", "fp32", 1e-6, 2, 1, True),
            ("mgg", "fp32", 1e-6, 4, 1, True),
            ("mgg", "fp32", 1e-6, usual["ps"], usual["dist"], False),
            ("halo", "fp32", 1e-6, None, None, None),
            ("halo", "bf16", 1e-2, None, None, None),
        )
        for dim in (4, 16)
    ]
    knobs = ("ps", "dist", "interleave")
    found = [(r.technique, r.dtype, r.tolerance, *map(r.options.get, knobs), r.dim) for r in records]
    assert found == expected
    assert all(r.error <= r.tolerance and (r.pes, len(r.launches), len(r.seconds)) == (2, 3, 6) for r in records)
    assert {r.options["wpb"] for r in records[:6]} == {2}
    assert records[6].bytes_wire == 2 * records[8].bytes_wire > 0
    assert timed.stdout.count(" in 3 launches)") == len(records) and "halo forward bf16: D=4 P=2" in timed.stdout
    assert timed.stderr.count("mgg: not measured: local, D = 4: technique local: runs on one PE") == 1
    assert "D = 4, bf16: technique mgg: takes no bf16 embeddings" in timed.stderr


def test_output_shows_the_check_and_oversubscribed_pes(made, tmp_path, monkeypatch):
    asked = (
        "aggregate", made / "layout2", "--technique", "halo", "--dim", 4, "--iterations", 2, "--launches", 1,
        "--out", "r.jsonl",
    )  # fmt: skip
    monkeypatch.setattr("mgg.backend.machine.facts.my_cores", lambda: {("here", 0)})
    done = mgg(*asked, "--no-check", cwd=tmp_path)
    assert "mgg: 2 PEs take turns on 1 cores: these times do not show how it scales\n" in done.stderr
    assert "not checked" in done.stdout and "launches" not in done.stdout
    [line] = mgg(*asked, "--replace", cwd=tmp_path).stdout.splitlines()
    assert "check passed, " in line and " of 1e-06" in line and "bytes on the wire" in line
    [found] = read_lines(tmp_path / "r.jsonl", AggregateRecord)
    assert (found.launches, len(found.seconds)) == ([found.median], 2)


def test_rank_without_records_ends_well(made, tmp_path, monkeypatch):
    """Techniques that run on threads of rank 0 leave the other ranks none."""
    monkeypatch.setattr(job.AggregateJob, "run", lambda *_: ([], []))
    words = ("aggregate", made / "layout2", "--technique", "mgg_uvm", "--dim", 4, "--faults", "--out", "a.jsonl")
    for more in ((), ("--json",)):
        done = mgg(*words, *more, cwd=tmp_path, PMI_SIZE="2", PMI_RANK="1")
        assert not done.stdout + done.stderr


def test_json_has_exact_numbers_and_tables_rounded_ones(made, trained):
    lines = dict(line.split(": ") for line in trained.splitlines())
    exact = json.loads(mgg(*RUN, "--resume", "--json", cwd=made).stdout)
    done, epochs = read_run(made / "run")
    assert (done.settings["hidden"], done.pes, done.seed, len(epochs)) == (8, 1, SEED, 3)
    assert exact["loss"] == done.loss and exact["median"] == done.median
    assert lines["loss"] == f"{done.loss:.4g}" != str(done.loss)
    assert lines["seconds per epoch, median"] == f"{done.median:.4g}" and "median" not in lines
    assert set(lines) == {*exact, "seconds per epoch, median"} - {"median"}
    scores = dict(line.split(": ") for line in mgg("evaluate", "run", cwd=made).stdout.splitlines())
    exact = json.loads(mgg("evaluate", "run", "--json", cwd=made).stdout)
    assert scores["test"] == f"{exact['test']:.4g}"


def test_model_predicts_and_is_scored(made, trained, tmp_path):
    words = ("infer", made / "layout1", "--model", "gcn", "--set", "hidden=8", "--backend", "simulated")
    weights = made / "run/weights.safetensors"
    facts = json.loads(mgg(*words, "--weights", weights, "--out", "p", "--json", cwd=tmp_path).stdout)
    assert (facts["model"], facts["pes"], facts["out"]) == ("gcn", 1, "p")
    theirs, ours = (json.loads(mgg("evaluate", each, "--json", cwd=tmp_path).stdout) for each in ("p", made / "run"))
    assert theirs["test"] == ours["test"]


@pytest.mark.slow
def test_report_has_timings_and_trainings(made, timed, trained, tmp_path):
    words = ("report", made / "records.jsonl", made / "run", "--out", "report", "--title", "Mine")
    facts = json.loads(mgg(*words, "--json", cwd=tmp_path).stdout)
    assert "Mine" in (tmp_path / facts["page"]).read_text()
    assert str(SEED) in (tmp_path / "report/training.csv").read_text()
    shutil.copytree(made / "run", tmp_path / "run")
    alter(tmp_path / "run/run.json", seed=SEED + 1)
    done = mgg("report", "run", "--out", "report", cwd=tmp_path, code=2)
    assert "field seed: Input should be less than or equal to" in done.stderr


def test_generated_graph_without_labels_cannot_be_trained(tmp_path):
    named = ("--name", "pokec-like", "--scale", 0.0002, "--json", "--out", "graph")
    assert json.loads(mgg("generate", "web-like", *named, cwd=tmp_path).stdout)["dataset"] == "pokec-like"
    assert "generator: web-like\n" in (tmp_path / "graph/manifest.yaml").read_text()
    mgg("partition", "graph", "--pes", 2, "--out", "part", cwd=tmp_path)
    mgg("layout", "graph", "part", "--out", "layout", cwd=tmp_path)
    before = files(tmp_path)
    done = mgg("train", "layout", "--model", "gcn", "--out", "run", cwd=tmp_path, code=2)
    assert "labels" in done.stderr or "features" in done.stderr
    assert files(tmp_path) == before


def test_partition_prints_its_quality(made, tmp_path):
    asked = ("partition", made / "digits", "--pes", 4, "--dim", 8, "--out", "p")
    quality = json.loads(mgg(*asked, "--json", cwd=tmp_path).stdout)
    text = mgg(*asked, cwd=tmp_path).stdout
    assert f"edge_cut: {quality['edge_cut']}\n" in text and "halo_rows_per_pair" not in text
    assert len(quality["arcs_per_pe"]) == 4 and sum(quality["arcs_per_pe"]) == 24678
    assert quality["v_cg"] == 4 * 1797 * 8 * 3 and quality["v_fr"] == 4 * quality["edge_cut"] * 8
    assert quality["v_fc"] == 4 * sum(quality["halo_rows_per_pe"]) * 8


def test_gpu_memory_is_not_reported_as_host_memory():
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
def test_internal_errors_and_interruptions_have_exit_codes(raised, code, said, monkeypatch, capsys):
    @click.command()
    def broken():
        raise raised

    monkeypatch.setattr(group, "cli", broken)
    assert ended() == code and capsys.readouterr().err.strip() == said
    assert f"\n| {code} | " in (ROOT / "docs/guides/errors.md").read_text(encoding="utf-8")


def test_debug_shows_the_traceback(tmp_path):
    done = mgg("retrieve", "coro", "--out", "x", "--debug", cwd=tmp_path, code=2)
    assert "Traceback" in done.stderr and done.stderr.strip().splitlines()[-1].startswith("mgg: ")


def test_help_names_every_stage_and_doctor_runs(tmp_path):
    out = mgg("--help", cwd=tmp_path).stdout
    for stage in ("retrieve", "graph", "generate", "partition", "layout", "aggregate", "train", "report", "doctor"):
        assert f"\n  {stage} " in out
    assert json.loads(mgg("doctor", "--json", cwd=tmp_path).stdout)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("words", ["list schemes", "list schemes --json", "completion bash", "completion bash --json"])
def test_only_rank_0_lists_names(tmp_path, words, rank):
    done = mgg(*words.split(), cwd=tmp_path, PMI_SIZE="2", PMI_RANK=str(rank))
    assert bool(done.stdout) == (rank == 0)


@pytest.mark.skipif(bool(backend.gpus()), reason="there are GPUs")
def test_unusable_gpus_of_a_job_are_one_line(made, tmp_path):
    """Nobody computes on CPU cores in silence; who wants that says so."""
    words = ("train", made / "layout1", "--model", "gcn", "--epochs", 1, "--out", "run")
    done = mgg(*words, cwd=tmp_path, code=3, SLURM_GPUS_ON_NODE="2")
    assert re.fullmatch("mgg: backend auto: Slurm has given this job 2 GPUs, and .*take --backend mpi\n", done.stderr)
    assert not files(tmp_path)


@pytest.mark.slow
@pytest.mark.mpi
def test_ranks_print_errors_once(made, tmp_path):
    """What all of them do and refuse, and what one of them alone finds broken."""
    words = ["--technique", "halo", "--dim", "4", "--out", str(tmp_path / "r.jsonl")]
    done = mpiexec(3, ["-m", "mgg.cli", "aggregate", str(made / "layout2"), *words, "--backend", "mpi"])
    assert (done.returncode, done.stderr.strip()) == (2, (
        "mgg: this layout is for 2 PEs but the job has 3: start it with mpiexec -n 2"
        " (or srun -n), or make a layout for as many PEs as the job has"
    ))  # fmt: skip
    shutil.copytree(made / "layout2", tmp_path / "harmed")
    victim = tmp_path / "harmed" / "pe-0001" / "forward.halo_rows.npy"
    victim.write_bytes(victim.read_bytes()[:-4])
    done = mpiexec(2, ["-m", "mgg.cli", "aggregate", str(tmp_path / "harmed"), *words], timeout=60)
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 2 and "pe-0001/forward.halo_rows.npy" in line
    assert not (tmp_path / "r.jsonl").exists()
    done = mpiexec(2, ["-m", "mgg.cli", "aggregate", str(made / "layout2"), *words, "--json"])
    assert done.returncode == 0, done.stderr
    (only,) = json.loads(done.stdout)["records"]
    assert only["backend"] == "mpi" and only["pes"] == 2


@pytest.mark.parametrize("techniques", ["mgg,mgg_uvm", "mgg_uvm"])
def test_refusal_of_threads_keeps_measurements_of_ranks(made, tmp_path, techniques, monkeypatch):
    """A job whose ranks see one GPU each: techniques of one process cannot run there."""

    def refuse(*_):
        raise MachineError("2 PEs in one process need 2 GPUs").on_every_pe()

    monkeypatch.setattr(job, "splits", lambda *_: True)
    monkeypatch.setattr(job, "launch_threads", refuse)
    measured, out = techniques.split(",")[:-1], tmp_path / "r.jsonl"
    words = ("aggregate", made / "layout2", "--technique", techniques, "--dim", 4, "--iterations", 2, "--out", out)
    done = mgg(*words, "--backend", "simulated", cwd=tmp_path, code=0 if measured else 3)
    assert "2 PEs in one process need 2 GPUs" in done.stderr and out.exists() == bool(measured)
    if measured:
        assert [found.technique for found in read_lines(out, AggregateRecord)] == measured


@pytest.mark.slow
def test_links_are_printed_stored_and_used_for_predictions(made, tmp_path):
    words = ("links", "--pes", 2, "--backend", "simulated")
    text = mgg(*words, "--out", "here.json", cwd=tmp_path, XDG_CACHE_HOME=".").stdout
    assert "shared_memory: " in text and "GB/s" in text and "kept: " not in text
    barrier = json.loads((tmp_path / "here.json").read_text())["links"]["barrier"]
    assert text.splitlines()[-1] == f"barrier: {barrier * 1e6:.3g} us"
    assert len(files(tmp_path / "mgg" / "links")) == 1
    said, values = mgg(*words, cwd=tmp_path, XDG_CACHE_HOME=".").stdout.split("\n", 1)
    assert values == text and said.startswith("kept: measured before, in mgg/links/")
    assert said.endswith(".json; --refresh measures anew")
    done = mgg(
        "predict", made / "layout2", made / "part2", "--machine", "here.json", "--technique", "halo,mgg_uvm",
        "--dim", "4,16", "--link", "shared_memory.bandwidth=1e9", "--out", "p.jsonl", "--json", cwd=tmp_path,
    )  # fmt: skip
    found = json.loads(done.stdout)["records"]
    assert [(each["technique"], each["dim"]) for each in found[:4]] == [
        ("halo", 4), ("mgg_uvm", 4), ("halo", 16), ("mgg_uvm", 16),
    ]  # fmt: skip
    assert found[0]["links"]["shared_memory"]["bandwidth"] == 1e9 and found[0]["machine"] == "simulated"
    assert read_lines(tmp_path / "p.jsonl", PredictionRecord)[0].seconds == found[0]["seconds"]
    mgg("report", "p.jsonl", made / "part2", "--out", "report", cwd=tmp_path)
    assert "Predicted, not measured" in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_tuned_settings_are_stored_and_used(made, tmp_path):
    asked = (
        "tune", made / "layout2", "--dim", 4, "--set", "mgg.interleave=true", "--settings", 3, "--iterations", 2,
        "--backend", "simulated",
    )  # fmt: skip
    first = mgg(*asked, "--out", "found.json", "--json", cwd=tmp_path, XDG_CACHE_HOME=".")
    found = json.loads(first.stdout)["products"]
    assert found == json.loads((tmp_path / "found.json").read_text())
    assert [(each["direction"], each["fresh"], len(each["tried"])) for each in found] == [
        ("forward", True, 3), ("transpose", True, 3),
    ]  # fmt: skip
    assert len([line for line in first.stderr.splitlines() if line.startswith("forward D=4: ")]) == 3, "progress"
    assert len(files(tmp_path / "mgg" / "tune")) == 2
    again = mgg(*asked, cwd=tmp_path, XDG_CACHE_HOME=".")
    assert again.stdout.count("in the table before, nothing was tried") == 2 and not again.stderr
    mgg(
        "aggregate", made / "layout2", "--technique", "mgg", "--dim", "4,5", "--set", "tune=cached", "--backend",
        "simulated", "--iterations", 1, "--warmup", 0, "--out", "times.jsonl", cwd=tmp_path, XDG_CACHE_HOME=".",
    )  # fmt: skip
    records = read_lines(tmp_path / "times.jsonl", AggregateRecord)
    knobs = [{name: each.options[name] for name in ("ps", "dist", "wpb")} for each in records]
    assert knobs == [found[0]["chosen"], {"ps": 32, "dist": 16, "wpb": 4}]


def test_latency_is_recorded(tmp_path):
    text = mgg(*LATENCY, "l.jsonl", cwd=tmp_path).stdout
    lines = read_lines(tmp_path / "l.jsonl", LatencyRecord)
    assert len(lines) == len(text.splitlines()) == 12 and text.startswith("shared_memory, 0.25 MiB, fine: ")
    mgg(*LATENCY, "l.jsonl", "--replace", cwd=tmp_path)
    assert len(read_lines(tmp_path / "l.jsonl", LatencyRecord)) == 12


def test_predictions_mark_the_pick_of_auto(made, tmp_path):
    """That is the fastest of all techniques, where it is among those named."""
    asked = ("predict", made / "graph", "--pes", "2,64")
    records = json.loads(mgg(*asked, "--json", cwd=tmp_path).stdout)["records"]
    lines = mgg(*asked, cwd=tmp_path).stdout.splitlines()
    assert len(records) == 8
    for each, line in zip(records, lines, strict=True):
        start, seconds, rest = re.fullmatch(r"(.*)  ([\d.]+) ms predicted on h200(.*)", line).groups()
        assert start == f"planted {each['technique']}: D=64 P={each['pes']}"
        assert float(seconds) == pytest.approx(each["seconds"] * 1e3, abs=1e-3)
        assert rest == ", the pick of auto" * each["chosen"]
    for pes in (2, 64):
        ours = [each for each in records if each["pes"] == pes]
        assert [each for each in ours if each["chosen"]] == [min(ours, key=lambda each: each["seconds"])]


def test_variants_are_predicted(made, tmp_path):
    lines = mgg(
        "predict", made / "graph", "--pes", "16", "--technique", "halo,cola", "--variant", "cola",
        "--variant", "cola:fusion=false:pipelined=true,false", "--out", "p.jsonl", cwd=tmp_path,
    ).stdout.splitlines()  # fmt: skip
    assert [line.split(": ")[0] for line in lines] == [
        "planted halo", "planted cola", "planted cola (fusion=False)", "planted cola (fusion=False, pipelined=False)",
    ]  # fmt: skip
    assert [each.options for each in read_lines(tmp_path / "p.jsonl", PredictionRecord)] == [
        {}, {}, {"fusion": False}, {"fusion": False, "pipelined": False},
    ]  # fmt: skip


@pytest.mark.slow
def test_auto_is_measured(made, tmp_path):
    shown = mgg(
        "aggregate", made / "layout2", "--technique", "auto", "--dim", "4", "--iterations", 2, "--out", "r.jsonl",
        cwd=tmp_path, XDG_CACHE_HOME=".",
    ).stdout  # fmt: skip
    (found,) = read_lines(tmp_path / "r.jsonl", AggregateRecord)
    assert found.chosen and found.predicted > 0 and "picked by auto" in shown
