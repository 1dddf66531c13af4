"""How `mgg doctor --slurm` reads Slurm's answers; tests/system/slurm runs it on a real cluster."""

import json
import subprocess
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from mgg.backend.machine import slurm, slurm_job, two_ranks
from mgg.cli.group import cli
from mgg.errors import InputError, MachineError


def test_partitions_are_parsed_by_state_and_node_type():
    text = "cpu|2|64|257000|(null)|1-00:00:00|idle\ngpu*|3|128|2000000+|gpu:h200:8|infinite|mixed\n"
    found = slurm.parse_partitions(text + "gpu*|1|128|1000000|gpu:a100:4|infinite|down*\n")
    assert found["cpu"].described() == "nodes: 2 idle; each 64 cores, 251 GiB, no GPUs; jobs of at most 1-00:00:00"
    assert found["gpu"].default and found["gpu"].states == {"mixed": 3, "down*": 1}
    assert list(found["gpu"].kinds) == ["128 cores, 1953 GiB, gpu:h200:8", "128 cores, 977 GiB, gpu:a100:4"]


LIMITS = {
    "cpu": ("1-00:00:00", 1440), "cpu2": ("2-03:30:00", 3090), "gpu*": ("4:00:00", 240), "short": ("30:00", 30),
    "long": ("infinite", None),
}  # fmt: skip


def test_time_limits_are_parsed(monkeypatch):
    """The default partition's limit is also listed under the empty name."""
    lines = [f"{name}|2|64|1|(null)|{limit}|idle" for name, (limit, _) in LIMITS.items()]
    monkeypatch.setattr(slurm, "_ask", lambda *command: "\n".join(lines))
    expected = {name.rstrip("*"): minutes for name, (_, minutes) in LIMITS.items() if minutes}
    assert slurm.time_limits() == expected | {"": 240}


@pytest.mark.parametrize(
    "text",
    [
        "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4",
        "srun: MPI types are...\nsrun: pmix\nsrun: pmi2\nsrun: openmpi\n",
        "MPI plugin types are: none pmix pmi2, pmix\n",
    ],
)
def test_pmi_flavours_are_parsed(text: str):
    assert slurm.parse_flavours(text) == ["pmix", "pmi2"]


def message(**values: object) -> str:
    return json.dumps(values) + "\n"


def trial(script: str, nodes: int = 2, gpus: bool = False) -> slurm.Trial:
    return slurm._judge("srun", nodes, gpus, **slurm_job.attempt(["sh", "-c", script], 20))


def ranks(*nodes: str, size: int = 2, total: int = 3, gpus: tuple = ()) -> str:
    """The output of two ranks on ``nodes``."""
    visible = [{"gpus": each} for each in gpus] or [{}, {}]
    before = "".join(message(node=node, seen=True, **more) for node, more in zip(nodes, visible, strict=True))
    return before + "".join(message(rank=rank, size=size, sum=total) for rank in (0, 1))


@pytest.mark.parametrize(
    ("output", "script", "nodes", "works", "phrase"),
    [
        (ranks("a", "b"), "echo 'Lmod: loaded'; printf '%s' '{}'", 2, True, "work on a, b"),
        (ranks("b", "a", gpus=("", "2,3")), "printf '%s' '{}'", 2, True, "work on a (GPU 2,3), b (no GPU)"),
        (ranks("a", "a"), "printf '%s' '{}'", 1, True, "work on a"),
        (ranks("a", "a"), "printf '%s' '{}'", 2, False, "both run on a, although the job has 2 nodes"),
        (ranks("a", "b"), "printf '%s' '{}'; exit 1", 2, False, ""),
        (ranks("a", "b", total=2), "printf '%s' '{}'", 2, False, ""),
        (ranks("a", "a", size=1, total=1), "printf '%s' '{}'", 2, False, "two worlds of one rank"),
        ("", "echo 'srun: no PMI' >&2; echo 'srun: error: a: task 0: Exited with exit code 1' >&2; exit 1", 2, False,
         "fail: srun: no PMI"),
    ],
)  # fmt: skip
def test_verdict_on_two_ranks(output: str, script: str, nodes: int, works: bool, phrase: str):
    found = trial(script.replace("{}", output), nodes, gpus="gpus" in output)
    assert found.works == works and phrase in found.said
    assert not works or found.nodes == ({"a": True, "b": True} if nodes == 2 else {"a": True})


@pytest.mark.parametrize(
    ("kinds", "spread"),
    [
        (["3|(null)"], (2, 0)),
        (["4|gpu:h200:8(S:0-1),tmp:1"], (2, 1)),
        (["1|gpu:a100:8"], (1, 2)),
        (["9|tmp:1", "1|tmp:1,gpu:1"], (1, 1)),
    ],
)
def test_trial_asks_for_two_nodes_and_gpus_if_there_are_any(kinds: list[str], spread: tuple[int, int]):
    """On two nodes that have GPUs, if there are two."""
    lines = [f"gpu|{nodes}|8|1024|{gres}|1:00:00|idle" for nodes, gres in (kind.split("|") for kind in kinds)]
    assert slurm.parse_partitions("\n".join(lines))["gpu"].spread() == spread


REFUSAL = "sbatch: error: QOSMinGRES\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """``program(name, script)``: write a shell script that comes first on $PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def write(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return write


def test_refused_trial_still_shows_partitions(tmp_path, program):
    """The partitions are listed, and the error says that the cluster cannot run the workflow yet."""
    program("sinfo", "[ \"$1\" = --version ] && echo slurm 23 || echo 'gpu*|2|8|1024|gpu:8|1:00:00|idle'")
    program("srun", "echo pmi2")
    program("sbatch", f"printf '%s\\n' \"$*\" > {tmp_path}/arguments; echo '{REFUSAL}' >&2; exit 1")
    program("squeue", "exit 1")
    run = CliRunner().invoke(cli, ["doctor", "--slurm", "--json", "--qos", "short", "--account", "me"])
    assert isinstance(run.exception, MachineError) and "cannot run the workflow yet" in str(run.exception)
    facts = json.loads(run.stdout)
    assert "gpu:8" in facts["partition gpu"] and facts["mpi in the profile"] == "nothing that was tried works"
    lack = facts["two ranks by any launcher, partition gpu"]
    assert " ".join(REFUSAL.split()) in lack and "name the --account or --qos that your site wants" in lack
    options = "--partition=gpu --account=me --qos=short --gpus-per-node=1 --nodes=2 --ntasks=2"
    assert options in lack and options in (tmp_path / "arguments").read_text()


def test_busy_controller_is_no_refusal(program):
    error = "sbatch: error: Batch job submission failed: Unexpected message received"
    program("sbatch", f"echo '{error}' >&2; exit 1")
    assert slurm._run_job([], ["true"])[0] == f"sbatch gets no answer, try again later: {error}"


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", None),
        ("echo", None),
        ("echo 'RUNNING|a|None'", ["RUNNING", "a", "None"]),
        ("[ -e again ] && echo 'RUNNING|a|None' || { touch again; echo 'Socket timed out' >&2; exit 1; }", None),
    ],
)
def test_state_is_asked_again_if_squeue_times_out(tmp_path, program, monkeypatch, answers, found):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(slurm.time, "sleep", lambda seconds: None)
    program("squeue", answers)
    assert slurm._state_of("7") == (["RUNNING", "a", "None"] if "again" in answers else found)
    program("squeue", "echo 'Socket timed out' >&2; exit 1")
    with pytest.raises(MachineError, match="squeue: Socket timed out"):
        slurm._state_of("7")


def test_nodes_are_told_apart_by_host_name():
    text = message(node="a", host="a", seen=True) + message(node="a", host="b", seen=False)
    assert slurm.parse_ranks(text)[0] == {"a": True, "b": False}


def test_job_environment_drops_launcher_options(monkeypatch):
    for name in ("SLURM_NTASKS_PER_NODE", "SLURM_JOB_ID", "SLURM_NODELIST", "SRUN_DEBUG", "SBATCH_X", "OTHER"):
        monkeypatch.setenv(name, "1")
    assert {"SLURM_JOB_ID", "SLURM_NODELIST", "OTHER"} <= set(slurm_job.environment())
    assert not {"SLURM_NTASKS_PER_NODE", "SRUN_DEBUG", "SBATCH_X"} & set(slurm_job.environment())


def test_launcher_that_hangs_or_is_missing():
    assert slurm._judge("srun", 1, False, **slurm_job.attempt(["sleep", "9"], 0.1)).said == "does not end within 0 s"
    assert (
        slurm._judge("srun", 1, False, **slurm_job.attempt(["/no/srun"], 9)).said
        == "/no/srun: No such file or directory"
    )


def test_node_without_the_shared_folder_is_named():
    nodes, _ = slurm.parse_ranks(message(node="b", seen=False) + message(node="a", seen=True))
    assert slurm._visibility(nodes) == "the same on a; not on b: run from a folder that all nodes share"


def test_machine_without_slurm_is_reported(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="no Slurm here: sinfo is not on PATH"):
        slurm.report(tmp_path)
    assert isinstance(CliRunner().invoke(cli, ["doctor", "--partition", "gpu"]).exception, InputError)


def test_unknown_or_missing_partition_is_refused():
    partitions = slurm.parse_partitions("gpu|1|8|1024|(null)|1:00:00|idle\n")
    assert slurm._choose(partitions, "gpu") == "gpu"
    with pytest.raises(InputError, match="--partition cpu: the cluster has gpu"):
        slurm._choose(partitions, "cpu")
    with pytest.raises(InputError, match="no default partition"):
        slurm._choose(partitions, None)


def test_messages_of_two_ranks_on_one_line_are_parsed():
    text = (
        message(node="a", seen=True).strip()
        + message(node="b", seen=True).strip()
        + "\n{ not ours }\n"
        + message(size=2, sum=1)
    )
    assert slurm.parse_ranks(text) == ({"a": True, "b": True}, [(2, 1)])


def test_failed_scancel_still_reports_the_outcome(monkeypatch, caplog):
    """If Slurm is slow, the outcome of the job is reported, and that the job may still exist."""

    def run(command, **options):
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(slurm, "_run", lambda *command: SimpleNamespace(returncode=0, stdout="17\n", stderr=""))
    monkeypatch.setattr(slurm, "_state_of", lambda job: None)
    monkeypatch.setattr(slurm.subprocess, "run", run)
    assert slurm._run_job([], ["true"]) == ("", "its node")
    assert "job 17 may be there still" in caplog.text


def test_message_of_a_rank_is_one_write(monkeypatch):
    """Otherwise the other rank's output could come between the line and its end."""
    written = []
    monkeypatch.setattr("sys.stdout", SimpleNamespace(write=written.append, flush=lambda: None))
    two_ranks._say({"rank": 1})
    assert [text for text in written if text] == ['{"rank": 1}\n']
