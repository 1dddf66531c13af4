"""What the profiles ask of Slurm, for every rule: stand-ins for its commands write down how they were called."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.workflow import ROOT, TINY, Folder
from support.workflow.slurm import ALIKE, LARGE, OUTPUTS, RANKS, StandIns, asked

from mgg.errors import memory_error

pytestmark = pytest.mark.slow

PROFILES = ("dgx", "dgx-multi", "slurm-cpu")
#: Every rule but graph: a data set in scattered jobs, renumbered; a large generated one; up to two nodes' PEs.
CONFIG = TINY | {
    "graph": {"datasets": {"digits": {"order": "degree"}, "reddit-like": {"scale": 0.5}}, "shards": 2},
    "partition": {"pes": [1, 8, 16], "quality_pes": []},
    "tune": {"dims": [4]},
    "aggregate": TINY["aggregate"] | {"techniques": ["mgg"], "options": {"mgg": {"tune": "cached"}}},
    "train": TINY["train"] | {"datasets": ["digits"], "pes": [1, 16]},
}
#: What starts 1, 8 and 16 ranks: srun looks neither at the cores of a task nor at the nodes that the job asked for.
LAUNCHERS = {
    "dgx": (
        "srun --wait=660 --nodes=1 --ntasks=1",
        "srun --wait=660 --nodes=1 --ntasks=8",
        "srun --wait=660 --nodes=1 --ntasks=16",
    ),
    "dgx-multi": (
        "srun --wait=660 --nodes=1 --ntasks=1",
        "srun --wait=660 --nodes=1 --ntasks=8",
        "srun --wait=660 --nodes=2 --ntasks=16 --ntasks-per-node=8",
    ),
    "slurm-cpu": (
        "srun --wait=660 --mpi=pmi2 --nodes=1 --ntasks=1",
        "srun --wait=660 --mpi=pmi2 --nodes=2 --ntasks=8 --ntasks-per-node=4",
        "srun --wait=660 --mpi=pmi2 --nodes=4 --ntasks=16 --ntasks-per-node=4",
    ),
}
#: What a run on this host leaves in the lock's file when it is killed.
KILLED = f"process 1 on {socket.gethostname()}\nSlurm run dead-1\n"
CORES = {"dgx": 8, "dgx-multi": 8, "slurm-cpu": 1}


class Submitted:
    """One run through a profile: its output, and what each job asked for."""

    def __init__(self, path: Path, profile: str, config: dict, *arguments: str):
        folder = Folder(path)
        folder.overlay(config)
        stand_ins = StandIns(folder, config["partition"].get("scheme", "edge_balanced"))
        for name in config["graph"]["datasets"]:
            (folder.results / "retrieve" / name).mkdir(parents=True)
        run = stand_ins.run(*arguments, profile=profile)
        assert run.returncode == 0, run.stdout
        self.output = run.stdout
        self.jobs = stand_ins.submitted()

    def asked(self) -> dict[str, str]:
        """What each job asks for, by its rule and wildcards."""
        return {" ".join((rule, *values)): asked(words) for (rule, values), (words, _) in self.jobs.items()}


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Submitted]:
    """The whole workflow through each profile."""
    stages = ("--until", "aggregate", "train")
    return {name: Submitted(tmp_path_factory.mktemp(name), name, CONFIG, *stages) for name in PROFILES}


@pytest.mark.parametrize("profile", PROFILES)
def test_every_rule_has_its_sbatch_line(submitted: dict[str, Submitted], profile: str):
    lines = submitted[profile].asked()
    expected = ALIKE | RANKS[profile]
    assert {job: lines.get(job) for job in expected} == expected
    assert {job.split()[0] for job in lines} == set(OUTPUTS) - {"graph"}


@pytest.mark.sentinel
def test_one_job_may_build_a_data_set(tmp_path: Path):
    config = CONFIG | {"graph": {"datasets": {"digits": {}}}}
    lines = Submitted(tmp_path, "dgx", config, "--until", "graph").asked()
    assert lines == {"graph graph digits": "-t 21 --mem 5120 --nodes=1 --ntasks=1 --cpus-per-task=4"}


#: Large enough that no number is at its least; every factor of what is multiplied counts.
LARGE_CONFIG = CONFIG | {
    "tune": {"dims": []},
    "graph": {
        "datasets": {
            "products-like": {"scale": 4, "order": "degree", "features": 300, "classes": 47},
            "ogbn-papers100M": {},
        },
        "shards": 2,
    },
    "partition": {"pes": [8], "quality_pes": [], "scheme": "metis"},
    "aggregate": {
        "techniques": ["halo", "mgg"],
        "variants": {"mgg": [{}, {"ps": [2, 4]}]},
        "dims": [8, 32],
        "dtypes": ["fp32", "bf16"],
        "launches": 2,
        "warmup": 1,
        "iterations": 5,
        "breakdown": True,
    },
    "train": TINY["train"] | {"datasets": ["products-like"], "pes": [8], "epochs": 10},
}


def test_memory_and_time_grow_with_the_data(tmp_path: Path):
    assert Submitted(tmp_path, "slurm-cpu", LARGE_CONFIG, "--until", "aggregate", "train").asked() == LARGE


@pytest.mark.parametrize("profile", PROFILES)
def test_slurm_never_requeues_jobs(submitted: dict[str, Submitted], profile: str):
    for words, script in submitted[profile].jobs.values():
        assert "--no-requeue" in words and words[-1] == "/dev/stdin"
        assert "--wrap" not in words and "tiny.yaml" in script


@pytest.mark.parametrize("profile", PROFILES)
def test_ranks_start_with_the_profiles_launcher(submitted: dict[str, Submitted], profile: str):
    one, eight, sixteen = (f"{words} --cpus-per-task={CORES[profile]} mgg" for words in LAUNCHERS[profile])
    output = submitted[profile].output
    assert f" {one} aggregate results/layout/digits/p1 " in output
    assert f" {eight} aggregate results/layout/digits/p8 " in output
    assert f" {sixteen} train results/layout/digits/p16 " in output


def test_backend_decides_on_ranks_and_gpus(tmp_path: Path):
    """Whatever the profile asks for: no GPUs where none is used."""
    text = (ROOT / "profiles/dgx-multi/config.yaml").read_text().replace("# gpu_model: h200", "gpu_model: h200")
    (tmp_path / "site").mkdir()
    (tmp_path / "site/config.yaml").write_text(text)
    config = CONFIG | {
        "partition": {"pes": [16], "quality_pes": []},
        "aggregate": CONFIG["aggregate"] | {"backend": "mpi"},
        "train": {"models": []},
    }
    run = Submitted(tmp_path / "run", str(tmp_path / "site"), config, "--until", "aggregate")
    job = "nodes=2 --ntasks=16 --cpus-per-task=8 --ntasks-per-node=8"
    assert run.asked()["aggregate digits 16"].partition(" --")[2].partition(" --")[2] == job
    assert set(re.findall(r"srun .*--nodes=(\d+) --ntasks=(\d+) .*mgg aggregate", run.output)) == {("2", "16")}


def test_gpus_missing_from_the_profile_are_refused(tmp_path: Path):
    folder = Folder(tmp_path)
    folder.overlay(CONFIG | {"train": CONFIG["train"] | {"backend": "nvshmem"}})
    run = folder.run(profile="slurm-cpu", env=StandIns(folder).environment())
    assert run.returncode == 2
    assert "train.backend: nvshmem needs GPUs, and the profile gives its jobs none (gpu: 0)" in run.stdout


def test_gpu_ranks_that_fit_no_node_are_refused(tmp_path: Path):
    """Slurm knows one number of GPUs for all nodes of a job."""
    folder = Folder(tmp_path)
    folder.overlay(CONFIG | {"partition": {"pes": [9], "quality_pes": []}, "train": {"models": []}})
    stand_ins = StandIns(folder)
    (folder.results / "retrieve/digits").mkdir(parents=True)
    run = stand_ins.run("--until", "aggregate", profile="dgx-multi")
    assert run.returncode == 2 and not stand_ins.memory(), run.stdout
    # Of jobs that are ready together Snakemake takes either first.
    refusals = re.findall(r"error: (?:aggregate|tune): 9 PEs do not divide evenly over the 2 nodes that", run.stdout)
    assert len(refusals) == 1


#: Lines of a profile to change at a site (docs/guides/slurm.md), most of them commented out.
SITE = (
    "slurm_partition", "slurm_account", "gpu_model", "mpi", "runtime", "mem_mb", "cpus_per_task", "slurm_extra",
    "slurm-status-command",
)  # fmt: skip


@pytest.mark.parametrize(
    ("profile", "partition", "aggregate"),
    [
        ("dgx", "batch", "-p gpu -t 60 --mem 256000 --nodes=1 --ntasks=8 --cpus-per-task=8 --gpus=h200:8"),
        (
            "dgx-multi",
            "batch",
            "-p gpu -t 60 --mem 256000 --nodes=2 --ntasks=16 --cpus-per-task=8 --ntasks-per-node=8"
            " --gpus-per-node=h200:8 --gpus=h200:16",
        ),
        ("slurm-cpu", "cpu", "-p cpu -t 600 --mem 64000 --nodes=4 --ntasks=16 --cpus-per-task=1 --ntasks-per-node=4"),
    ],
)
def test_commented_site_settings_work(tmp_path: Path, profile: str, partition: str, aggregate: str):
    """All of them with their comment signs removed."""
    text = (ROOT / f"profiles/{profile}/config.yaml").read_text()
    text, found = re.subn(rf"(?m)^( *)# ({'|'.join(SITE)}): ", r"\1\2: ", text)
    gpus = profile != "slurm-cpu"
    assert found == 6 + gpus
    (tmp_path / "site").mkdir()
    (tmp_path / "site/config.yaml").write_text(re.sub("mpi: \"'srun.*'\"", "mpi: \"'mpiexec'\"", text))
    pes = 8 if profile == "dgx" else 16
    config = CONFIG | {"partition": {"pes": [pes], "quality_pes": []}, "train": {"models": []}}
    run = Submitted(tmp_path / "run", str(tmp_path / "site"), config, "--until", "aggregate")
    lines = run.asked()
    layout = lines[f"layout digits {pes}"]
    assert layout.startswith(f"-A my_account -p {partition} -t 11 ") and "gpus" not in layout
    assert lines[f"aggregate digits {pes}"] == f"-A my_account {aggregate}"
    assert f"mpiexec -n {pes} mgg aggregate" in run.output


@pytest.mark.parametrize("profile", PROFILES)
def test_every_site_setting_has_a_comment(profile: str):
    lines = (ROOT / f"profiles/{profile}/config.yaml").read_text().splitlines()
    setting = re.compile(rf" *(# )?({'|'.join(SITE)}): ")
    found = [number for number, line in enumerate(lines) if setting.match(line)]
    assert {setting.match(lines[number])[2] for number in found} >= set(SITE) - {"gpu_model"}
    for number in found:
        before = lines[number - 1]
        assert before.lstrip().startswith("# ") and not setting.match(before), lines[number]


def failing(path: Path, *arguments: str, programs: dict[str, str] | None = None, **environment: str):
    """A run of one small job that always fails: its stand-ins and what it said."""
    folder = Folder(path)
    stand_ins = StandIns(folder)
    for name, script in (programs or {}).items():
        (stand_ins.programs / name).write_text(f"#!/bin/sh\n{script}\n")
    run = stand_ins.run("--until", "generate", *arguments, env=environment)
    assert run.returncode == 1, run.stdout
    return stand_ins, run.stdout


class SideBySide:
    """A run of jobs that fail in one way each: what stand-ins are told, by the name of the job's data set.

    What follows from a failure is a job's own: others beside it change nothing.
    """

    def __init__(self, path: Path, cases: dict[str, dict[str, str]], *arguments: str):
        folder = Folder(path)
        datasets = {name: {"generator": "planted", "scale": 0.05} for name in cases}
        folder.overlay(TINY | {"graph": {"datasets": datasets}, "train": {"models": []}})
        self.stand_ins = StandIns(folder)
        run = self.stand_ins.run("--until", "generate", *arguments, env={"STAND_IN_CASES": json.dumps(cases)})
        assert run.returncode == 1, run.stdout
        self.said = run.stdout
        summary = run.stdout[run.stdout.index("What failed:") :]
        summaries = re.findall(r"(?m)^  generate \(made=graph, dataset=(\w+)\), (.*\n(?:    .*\n)*)", summary)
        #: What the summary says of each.
        self.summaries = dict(summaries)
        assert self.summaries.keys() == cases.keys() and len(summaries) == len(cases), summary


#: Variables of a job's stand-ins, the MB and minutes that its attempts ask for, and the beginning of what to try next.
LACKED = "give it more "
CASES = {
    "mistake": ({"STAND_IN_CODE": "2"}, [1500], [11], "correct what the log says, "),
    "died": ({"STAND_IN_CODE": "6"}, [1500] * 3, [11] * 3, "a process died or stalled: "),
    "memory": (
        {"STAND_IN_CODE": "3", "STAND_IN_LOG": f"mgg: {memory_error('')}\nmgg: GPU 0 cannot address GPU 1"},
        [1500, 3000, 3000], [11] * 3, "get what the log names, ",
    ),
    "step": (
        {"STAND_IN_CODE": "3", "STAND_IN_SLURM_LOG": "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0."},
        [1500, 3000, 6000], [11] * 3, f"{LACKED}memory: ",
    ),
    "time": ({"STAND_IN_CODE": "1", "STAND_IN_STATE": "TIMEOUT"}, [1500] * 3, [11, 22, 44], f"{LACKED}time: "),
    "stops": ({"STAND_IN_CODE": "5 5 5 2"}, [1500] * 4, [11, 22, 44, 88], "correct what the log says, "),
    "preempted": (
        {"STAND_IN_CODE": "6", "STAND_IN_STATE": "PREEMPTED"}, [1500] * 3, [11] * 3, "Slurm gave its nodes ",
    ),
}  # fmt: skip


def test_failure_decides_the_next_attempt(tmp_path: Path):
    """`retries: 2` of the profile, memory and time; test_workflow_failures.py has all causes."""
    run = SideBySide(tmp_path, {name: case for name, (case, *_) in CASES.items()})
    for name, (_, memory, minutes, advice) in CASES.items():
        assert run.stand_ins.memory(name) == memory, run.said
        assert run.stand_ins.amounts("-t", name) == minutes, run.said
        assert f"    Next: {advice}" in run.summaries[name]


def test_requests_grow_until_refused(tmp_path: Path):
    """Without a log of the job's own, Slurm's says more."""
    given = ("--set-resources", "generate:runtime=60", "generate:mem_mb=300 * 10")
    stand_ins, said = failing(tmp_path, *given, STAND_IN_CODE="1", STAND_IN_STATE="OUT_OF_MEMORY", STAND_IN_MB="7000")
    assert stand_ins.memory() == [3000, 6000] and stand_ins.amounts("-t") == [60, 60]
    summary = said[said.index("What failed:") :]
    assert "A further attempt was not submitted, sbatch: " in summary
    assert "Memory specification can not be satisfied" in summary
    assert "generate/planted.log: not written\n" in summary or "planted.log: empty\n" in summary
    assert "/1001.log ends:\n    | Command 'mgg' returned" in summary
    assert "Next: give it more memory: mem_mb of rule generate in the profile" in summary


def test_requested_time_grows_up_to_the_partitions_limit(tmp_path: Path):
    """Slurm lets a job wait for ever that wants more."""
    sinfo = "echo 'short*|2|8|1024|(null)|30:00|idle'; echo 'long|2|8|1024|(null)|infinite|idle'"
    stand_ins, said = failing(tmp_path, programs={"sinfo": sinfo}, STAND_IN_CODE="1", STAND_IN_STATE="TIMEOUT")
    assert stand_ins.amounts("-t") == [11, 22, 30], said


def test_job_that_was_never_submitted_is_reported(tmp_path: Path):
    """With the profile's retries: nothing came before the last attempt that would say more."""
    error = "Batch job submission failed: invalid partition specified: x"
    _, said = failing(tmp_path, programs={"sbatch": f"echo 'sbatch: error: {error}' >&2; exit 1"})
    summary = said[said.index("What failed:") :]
    assert f"  generate (made=graph, dataset=planted), not submitted\n    sbatch: sbatch: error: {error}" in summary
    assert "Next: correct partition, account, GPU model or numbers" in summary and "A further attempt" not in summary


def started_after(path: Path, left: str, *names: str) -> tuple[Folder, StandIns]:
    """A folder whose lock is what a run has left a moment ago, and stand-ins for a cluster with jobs of those names."""
    folder = Folder(path)
    stand_ins = StandIns(folder)
    folder.results.mkdir()
    (folder.results / ".lock").write_text(left)
    for number, name in enumerate(names):
        (stand_ins.calls / f"{name}.left").write_text(f"{70 + number}1\n{70 + number}2\n")
    return folder, stand_ins


def test_jobs_of_a_killed_run_are_cancelled_first(tmp_path: Path):
    """Those of the run that the lock names, and of no other; a run that ends by itself leaves no name."""
    folder, stand_ins = started_after(tmp_path, KILLED, "dead-1", "alive-2")
    run = folder.run("--until", "generate", env=stand_ins.environment())
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("cancelled: 701, 702\n") == 1
    assert run.stdout.index("cancelled: 701, 702") < run.stdout.index("localrule generate:")
    assert [file.name for file in stand_ins.calls.glob("*.cancelled")] == ["dead-1.cancelled"]
    assert (stand_ins.calls / "dead-1.left").read_text() == ""
    run = stand_ins.run("--until", "generate", "--forceall")
    assert run.returncode == 0 and "SLURM run ID" in run.stdout, run.stdout
    assert (folder.results / ".lock").read_text() == ""


def test_lock_of_another_host_expires_without_a_heartbeat(tmp_path: Path):
    """Where locks hold on one host alone, this one gets a live run's; a killed one's is free three minutes later."""
    folder, stand_ins = started_after(tmp_path, "process 1 on login2\nSlurm run alive-2\n", "alive-2")
    lock, being_made = folder.results / ".lock", folder.results / ".out.login2.1.part"
    being_made.mkdir()
    before = lock.stat().st_mtime_ns, lock.read_text()
    run = folder.run("--until", "generate", env=stand_ins.environment())
    assert run.returncode == 3, run.stdout
    [line] = [line for line in run.stdout.splitlines() if "error:" in line]
    said = r"error: results: process 1 on login2 was working here (\d+) s ago; wait .*, run this again in (\d+) s"
    seconds = re.fullmatch(said, line)
    assert seconds and sum(map(int, seconds.groups())) in (180, 181), line
    assert (lock.stat().st_mtime_ns, lock.read_text()) == before and being_made.exists()
    assert not list(stand_ins.calls.glob("*.cancelled"))
    os.utime(lock, (0, lock.stat().st_mtime - 180))
    run = folder.run("--until", "generate", env=stand_ins.environment())
    assert run.returncode == 0 and "cancelled: 701, 702\n" in run.stdout, run.stdout
    assert not being_made.exists()


def test_job_submitted_by_a_dying_run_is_cancelled(tmp_path: Path):
    """Its sbatch has outlived it, and the job comes into the queue only now."""
    folder, stand_ins = started_after(tmp_path, KILLED)
    made = stand_ins.calls / "dead-1.left"
    late = f"import time; time.sleep(10); open({str(made)!r}, 'w').write('701\\n')"
    sbatch = subprocess.Popen([sys.executable, "-c", late, "sbatch", "--job-name", "dead-1"])
    run = folder.run("--until", "generate", env=stand_ins.environment())
    assert run.returncode == 0 and "cancelled: 701\n" in run.stdout, run.stdout
    assert sbatch.wait() == 0


def test_no_job_starts_until_slurm_answers_for_a_killed_run(tmp_path: Path):
    """The lock keeps the name, so that the next start asks again."""
    folder, stand_ins = started_after(tmp_path, KILLED)
    (stand_ins.programs / "squeue").write_text("#!/bin/sh\necho 'squeue: error: no controller' >&2; exit 1\n")
    run = folder.run("--until", "generate", env=stand_ins.environment())
    assert run.returncode == 3 and "(dead-1) are still there: squeue: error: no controller" in run.stdout, run.stdout
    assert (folder.results / ".lock").read_text().endswith("\nSlurm run dead-1\n")
    assert not (folder.results / "graph").exists()
