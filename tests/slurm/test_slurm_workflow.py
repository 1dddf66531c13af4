"""The workflow through a real Slurm: a small demo on CPU ranks of two nodes, a job on GPUs, jobs that fail."""

import re
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from slurm_folder import SlurmFolder
from support.workflow import ROOT

from mgg.record import AggregateRecord, JobRecord, read_lines, read_run

#: Both kinds of graphs, of which one goes all the way; 8 PEs, which profiles/slurm-cpu puts on two nodes.
CONFIG = {
    "graph": {"datasets": {"digits": {}, "planted": {"scale": 0.05}}},
    "partition": {"pes": [8], "quality_pes": []},
    "aggregate": {"techniques": ["halo"], "dims": [4], "warmup": 1, "iterations": 2},
    "train": {"datasets": ["planted"], "models": ["gcn"], "pes": [8], "epochs": 3},
}
#: A name that a shell would take apart, and obey.
ODD_NAME = 'a "b" $(touch obeyed); `touch obeyed` & c'


#: Every compute rule once: each job starts two more Snakemakes, which is what takes the time here.
TARGETS = ("graph/digits", "aggregate/planted/p8.jsonl", "train/planted/gcn-halo-p8-s0")


@pytest.fixture(scope="module")
def finished(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> SlurmFolder:
    """A folder in which profiles/slurm-cpu has made everything."""
    path = tmp_path_factory.mktemp("slurm") / ODD_NAME
    path.mkdir()
    made = SlurmFolder(path)
    made.overlay(CONFIG | {"results": ODD_NAME})
    made.note_ranks()
    run = made.run("--printshellcmds", *(f"{ODD_NAME}/{target}" for target in TARGETS), profile="slurm-cpu")
    assert run.returncode == 0, run.stdout
    return made


def test_every_compute_rule_was_a_job_of_the_right_size(finished: SlurmFolder):
    jobs = finished.jobs()
    assert {rule: len(lines) for rule, lines in jobs.items()} == {
        "generate": 1, "graph": 1, "partition": 1, "layout": 1, "aggregate": 1, "train": 1,
    }  # fmt: skip
    for rule, lines in jobs.items():
        ranks = 8 if rule in ("aggregate", "train") else 1
        for line in lines:
            assert " JobState=COMPLETED " in line and " Partition=cpu " in line and " Requeue=0 " in line
            assert f" NumTasks={ranks} " in line and " GRES=gpu" not in line
            assert (" NodeList=node[1-2] " if ranks == 8 else " NumNodes=1 ") in line


def test_eight_ranks_of_two_nodes_computed_together(finished: SlurmFolder):
    results = finished.path / ODD_NAME
    [record] = read_lines(results / "aggregate/planted/p8.jsonl", AggregateRecord)
    assert (record.pes, record.backend) == (8, "mpi") and record.bytes_wire > 0
    run, epochs = read_run(results / "train/planted/gcn-halo-p8-s0")
    assert run.pes == 8 and len(epochs) == 3
    for output in ("aggregate/planted/p8.jsonl", "train/planted/gcn-halo-p8-s0"):
        ranks = finished.ranks(f"{ODD_NAME}/{output}")
        assert ranks == [("node1", "1", "")] * 4 + [("node2", "1", "")] * 4


@pytest.mark.parametrize(
    ("profile", "ranks"),
    [
        ("dgx-multi", {12: ("8", "0,1,2,3,4,5"), 16: ("8", "0,1,2,3,4,5,6,7")}),
        ("slurm-cpu", {8: ("", "")}),
    ],
)
def test_where_ranks_really_run(cluster: Path, tmp_path: Path, profile: str, ranks: dict[int, tuple[str, str]]):
    """With a stand-in for mgg: as many ranks on each node, with all their cores; GPUs of its own for each on its node.

    slurm-cpu has mpiexec here, which knows its nodes from what the plugin takes away.
    """
    folder = SlurmFolder(tmp_path)
    datasets, partition = {"datasets": {"digits": {}}}, {"pes": list(ranks), "quality_pes": []}
    folder.overlay({"graph": datasets, "partition": partition, "train": {"models": []}})
    folder.note_ranks(instead=True)
    layouts = [f"{stage}/digits/p{pes}" for stage in ("partition", "layout") for pes in ranks]
    for made in ("retrieve/digits", "graph/digits", *layouts):
        (folder.results / made).mkdir(parents=True)
    text = (ROOT / f"profiles/{profile}/config.yaml").read_text()
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile/config.yaml").write_text(text.replace("srun --mpi=pmi2'\"", "mpiexec'\""))
    outputs = {f"results/aggregate/digits/p{pes}.jsonl": pes for pes in ranks}
    run = folder.run("--printshellcmds", *outputs, profile=str(tmp_path / "profile"))
    assert run.returncode == 0, run.stdout
    for output, pes in outputs.items():
        assert folder.ranks(output) == [(node, *ranks[pes]) for node in ("node1", "node2") for _ in range(pes // 2)]


def test_the_report_is_told_what_slurm_knows_of_the_jobs(finished: SlurmFolder):
    """Slurm's numbers and times. What its ranks use is not seen: they are children of Slurm's daemons."""
    records = {record.rule: record for record in read_lines(finished.path / ODD_NAME / "jobs.jsonl", JobRecord)}
    for rule, lines in finished.jobs().items():
        facts = dict(re.findall(r"(\w+)=(\S+)", lines[-1]))
        record = records[rule]
        submitted, start, end = (
            datetime.fromisoformat(facts[name]).timestamp() for name in ("SubmitTime", "StartTime", "EndTime")
        )
        assert record.slurm_job == facts["JobId"] and record.granted
        # Slurm tells whole seconds; the folder's clock is its own.
        assert submitted - 2 <= record.submitted <= start + 2
        assert start - 2 <= record.ended - record.seconds <= record.ended <= end + 2
        ranks = rule in ("aggregate", "train")
        # Threads are lowered to the cores that the machine really has.
        assert record.cores_asked == 8 if ranks else 1 <= record.cores_asked <= int(facts["NumCPUs"])
        assert (record.memory is None) == ranks


def test_no_name_was_taken_for_a_command(finished: SlurmFolder):
    assert not list(finished.path.parent.rglob("obeyed"))


def test_a_job_on_gpus_gets_them_from_the_partition_that_has_them(finished: SlurmFolder, tmp_path: Path):
    """profiles/dgx with the lines for a site filled in."""
    text = (ROOT / "profiles/dgx/config.yaml").read_text()
    text = re.sub(r"(?m)^( *)# (slurm_partition|gpu_model): ", r"\1\2: ", text).replace(": batch", ": cpu")
    (tmp_path / "config.yaml").write_text(text)
    before = len(finished.jobs()["aggregate"])
    target = f"{ODD_NAME}/aggregate/planted/p8.jsonl"
    run = finished.run("--force", target, profile=str(tmp_path))
    assert run.returncode == 0, run.stdout
    [line] = finished.jobs()["aggregate"][before:]
    assert " Partition=gpu " in line and " NumNodes=1 " in line and " NumTasks=8 " in line
    assert "TresPerJob=gres:gpu:h200:8" in line


def test_a_failed_job_says_what_to_do(cluster: Path, tmp_path: Path):
    """Its input is broken, so the profile's retries are left out."""
    folder = SlurmFolder(tmp_path)
    folder.overlay(CONFIG | {"graph": {"datasets": {"digits": {}}}, "train": {"models": []}})
    broken = folder.results / "retrieve/digits"
    broken.mkdir(parents=True)
    (broken / "digits.csv.gz").write_bytes(b"no gzip")
    run = folder.run(profile="slurm-cpu")
    assert run.returncode == 1
    [job] = folder.jobs()["graph"]
    summary = run.stdout[run.stdout.index("What failed:") :]
    assert f"  graph (made=graph, dataset=digits), Slurm job {re.search('JobId=(.*?) ', job)[1]}, FAILED\n" in summary
    assert "    results/logs/graph/digits.log ends:\n    | mgg: results/retrieve/digits" in summary
    assert "    Next: correct what the log says, then run the same command again" in summary


def test_a_refused_job_says_what_slurm_said(cluster: Path, tmp_path: Path):
    folder = SlurmFolder(tmp_path)
    folder.overlay(CONFIG | {"graph": {"datasets": {"planted": {"scale": 0.05}}}})
    profile = yaml.safe_load((ROOT / "profiles/slurm-cpu/config.yaml").read_text())
    profile["default-resources"]["slurm_partition"] = "large"
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile/config.yaml").write_text(yaml.safe_dump(profile))
    run = folder.run("--retries", "0", profile=str(tmp_path / "profile"))
    assert run.returncode == 1
    summary = run.stdout[run.stdout.index("What failed:") :]
    assert "  generate (made=graph, dataset=planted), not submitted\n" in summary
    assert "    sbatch: sbatch: error: invalid partition specified: large" in summary
    assert "Next: correct partition, account, GPU model or numbers in the profile" in summary
