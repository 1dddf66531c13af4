"""The workflow through a real Slurm: a small demo on CPU ranks of two nodes, jobs on GPUs, jobs that fail."""

import csv
import os
import re
import shutil
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from slurm_folder import SlurmFolder
from support.workflow import ROOT, made

from mgg.graph.retrieve import retrieve
from mgg.records import AggregateRecord, read_lines, read_run
from mgg.records.job import JobRecord
from mgg.report.tables.jobs import UNKNOWN

#: A graph that jobs share and renumber goes all the way; 8 PEs, which profiles/slurm-cpu puts on two nodes.
CONFIG = {
    "graph": {"datasets": {"digits": {"order": "rcm"}}, "shards": 2},
    "partition": {"pes": [8], "quality_pes": []},
    "aggregate": {"techniques": ["halo"], "dims": [4], "warmup": 1, "iterations": 2},
    "train": {"models": ["gcn"], "pes": [8], "epochs": 3},
}
AGGREGATE, TRAIN = "aggregate/digits/p8.jsonl", "train/digits/gcn-halo-p8-s0"
#: A name that a shell would take apart, and obey.
ODD_NAME = 'a "b" $(touch obeyed); `touch obeyed` & c'


def site_profile(name: str, folder: Path, changes: dict[str, dict] | None = None) -> str:
    """A profile with the lines for a site filled in, and resources of single rules added."""
    text = (ROOT / f"profiles/{name}/config.yaml").read_text()
    text = re.sub(r"(?m)^( *)# (slurm_partition|gpu_model): ", r"\1\2: ", text).replace(": batch", ": cpu")
    profile = yaml.safe_load(text)
    for rule, resources in (changes or {}).items():
        profile["set-resources"][rule] = profile["set-resources"].get(rule, {}) | resources
    (folder / "profile").mkdir()
    (folder / "profile/config.yaml").write_text(yaml.safe_dump(profile))
    return str(folder / "profile")


@pytest.fixture(scope="module")
def finished(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> SlurmFolder:
    """A folder in which profiles/slurm-cpu has made everything."""
    path = tmp_path_factory.mktemp("slurm") / ODD_NAME
    path.mkdir()
    folder = SlurmFolder(path)
    folder.overlay(CONFIG | {"results": ODD_NAME})
    folder.note_ranks()
    profile = site_profile("slurm-cpu", path)
    # One after the other: 16 ranks at once wait for one another on a machine of few cores.
    named = folder.names(profile=profile)[f"{ODD_NAME}/{AGGREGATE}"]
    for target in ([named], []):
        run = folder.run("--printshellcmds", *target, profile=profile)
        assert run.returncode == 0, run.stdout
    return folder


def check_size(line: str, ranks: int = 1) -> None:
    """What profiles/slurm-cpu asks for: so many tasks, four a node, in its partition."""
    assert " Partition=cpu " in line and " Requeue=0 " in line
    assert f" NumTasks={ranks} " in line and " GRES=gpu" not in line
    assert (" NodeList=node[1-2] " if ranks == 8 else " NumNodes=1 ") in line


def test_every_compute_rule_is_a_job_of_the_right_size(finished: SlurmFolder):
    """All but generate and graph, which the failing run has."""
    jobs = finished.jobs()
    assert {rule: len(lines) for rule, lines in jobs.items()} == {
        "graph_scatter": 1, "graph_shard": 2, "graph_gather": 1, "order": 1,
        "partition": 1, "layout": 1, "aggregate": 1, "train": 1,
    }  # fmt: skip
    for rule, lines in jobs.items():
        for line in lines:
            assert " JobState=COMPLETED " in line
            check_size(line, ranks=8 if rule in ("aggregate", "train") else 1)


def test_eight_ranks_on_two_nodes_compute_together(finished: SlurmFolder):
    results = finished.path / ODD_NAME
    [record] = read_lines(made(results, AGGREGATE)[0], AggregateRecord)
    assert (record.pes, record.backend) == (8, "mpi") and record.bytes_wire > 0
    run, epochs = read_run(made(results, TRAIN)[0])
    assert run.pes == 8 and len(epochs) == 3
    for output in (AGGREGATE, TRAIN):
        ranks = finished.ranks(str(made(results, output)[0].relative_to(finished.path)))
        assert ranks == [("node1", "1", "")] * 4 + [("node2", "1", "")] * 4


@pytest.mark.parametrize(
    ("profile", "nodes", "ranks"),
    [
        ("dgx", 1, {8: ("8", "0,1,2,3,4,5,6,7")}),
        ("dgx-multi", 2, {12: ("8", "0,1,2,3,4,5"), 16: ("8", "0,1,2,3,4,5,6,7")}),
        ("slurm-cpu", 2, {8: ("", "")}),
    ],
)
def test_ranks_run_on_the_expected_nodes_and_cores(
    cluster: Path, tmp_path: Path, profile: str, nodes: int, ranks: dict[int, tuple[str, str]]
):
    """With a stand-in for mgg: as many ranks on each node, with all their cores; GPUs of its own for each on its node.

    slurm-cpu has mpiexec here, which knows its nodes from what the plugin takes away.
    """
    folder = SlurmFolder(tmp_path)
    datasets, partition = {"datasets": {"digits": {}}}, {"pes": list(ranks), "quality_pes": []}
    folder.overlay({"graph": datasets, "partition": partition, "train": {"models": []}})
    folder.note_ranks(instead=True)
    gpus = profile != "slurm-cpu"
    site = site_profile(profile, tmp_path, {} if gpus else {"aggregate": {"mpi": "'mpiexec'"}})
    named = folder.names(profile=site)
    layouts = [f"{stage}/digits/p{pes}" for stage in ("partition", "layout") for pes in ranks]
    for there in ("retrieve/digits", "graph/digits", *layouts):
        (folder.path / named[f"results/{there}"]).mkdir(parents=True)
    outputs = {named[f"results/aggregate/digits/p{pes}.jsonl"]: pes for pes in ranks}
    run = folder.run("--printshellcmds", *outputs, profile=site)
    assert run.returncode == 0, run.stdout
    for output, pes in outputs.items():
        where = folder.ranks(output)
        used = ("node1", "node2") if nodes == 2 else (where[0].node,)
        assert where == [(node, *ranks[pes]) for node in used for _ in range(pes // nodes)]
        [job] = [line for line in folder.jobs()["aggregate"] if f" NumTasks={pes} " in line]
        assert f" Partition={'gpu' if gpus else 'cpu'} " in job and f" NumNodes={nodes} " in job
        assert (f"TresPerJob=gres:gpu:h200:{pes}" in job) == gpus


def test_report_has_slurms_job_data(finished: SlurmFolder):
    """Slurm's numbers and times. Its ranks are children of Slurm's daemons and tell themselves what they used."""
    records = {record.slurm_job: record for record in read_lines(finished.path / ODD_NAME / "jobs.jsonl", JobRecord)}
    reported = Counter(row["rule"] for row in rows_of(finished, "jobs"))
    for rule, lines in finished.jobs().items():
        assert reported[rule] == len(lines)
        for line in lines:
            facts = dict(re.findall(r"(\w+)=(\S+)", line))
            record = records[facts["JobId"]]
            submitted, start, end = (
                datetime.fromisoformat(facts[name]).timestamp() for name in ("SubmitTime", "StartTime", "EndTime")
            )
            assert record.rule == rule and record.granted
            # Slurm tells whole seconds; the folder's clock is its own.
            assert submitted - 2 <= record.submitted <= start + 2
            assert start - 2 <= record.ended - record.seconds <= record.ended <= end + 2
            ranks = rule in ("aggregate", "train")
            # Threads are lowered to the cores that the machine really has.
            assert (
                record.cores_asked == record.ranks == 8 if ranks else 1 <= record.cores_asked <= int(facts["NumCPUs"])
            )
            # A Python with NumPy and MPI takes more than 20 MB, and four ranks share a node.
            assert (4 * 20e6 if ranks else 0) < record.memory < record.memory_asked
            if ranks:
                assert record.seen == record.seconds and 0 < record.cpu_seconds < record.seconds * os.cpu_count()


def test_report_compares_requests_of_ranks_with_usage(finished: SlurmFolder):
    rows = {(row["rule"], row["resource"]): row for row in rows_of(finished, "requests")}
    for rule in ("aggregate", "train"):
        for resource in ("memory", "cores"):
            row = rows[rule, resource]
            assert row["known"] == row["jobs"] == "1" and 0 < float(row["share"]) < 1 and row["verdict"] != UNKNOWN
        assert rows[rule, "cores"]["asked"] == "1"


def rows_of(finished: SlurmFolder, table: str) -> list[dict[str, str]]:
    """The rows of a table of the report."""
    with (finished.path / ODD_NAME / f"report/{table}.csv").open(newline="") as opened:
        return list(csv.DictReader(opened))


def test_no_name_is_executed_as_a_command(finished: SlurmFolder):
    assert not list(finished.path.parent.rglob("obeyed"))


def test_failed_and_refused_jobs_name_the_way_out(cluster: Path, tmp_path: Path):
    """One has a broken input, so the profile's retries are left out; the other wants a partition that is not there."""
    folder = SlurmFolder(tmp_path)
    datasets = {"digits": {}, "planted": {"scale": 0.05}}
    folder.overlay(CONFIG | {"graph": {"datasets": datasets}, "train": {"models": []}})
    broken = folder.results / "retrieve/digits"
    broken.mkdir(parents=True)
    (broken / "digits.csv.gz").write_bytes(b"no gzip")
    profile = site_profile("slurm-cpu", tmp_path, {"partition": {"slurm_partition": "large"}})
    run = folder.run(profile=profile)
    assert run.returncode == 1
    [failed], [generated] = (folder.jobs()[rule] for rule in ("graph", "generate"))
    check_size(failed)
    check_size(generated)
    assert " JobState=COMPLETED " in generated
    summary = run.stdout[run.stdout.index("What failed:") :]
    number = re.search("JobId=(.*?) ", failed)[1]
    assert f"  graph (made=graph, dataset=digits), Slurm job {number}, FAILED\n" in summary
    assert "    results/logs/graph/digits.log ends:\n    | mgg: results/retrieve/digits" in summary
    assert "    Next: correct what the log says, then run the same command again" in summary
    assert "  partition (dataset=planted, pes=8), not submitted\n" in summary
    assert "    sbatch: sbatch: error: invalid partition specified: large" in summary
    assert "Next: correct partition, account, GPU model or numbers in the profile" in summary
    shutil.rmtree(broken)
    retrieve("digits", broken)
    again = folder.run(profile=profile)
    _, corrected = folder.jobs()["graph"]
    assert " JobState=COMPLETED " in corrected and folder.made("graph/digits/manifest.yaml").is_file()
    check_size(corrected)
    # What has not been corrected is all that fails now, of both.
    assert again.returncode == 1 and again.stdout.count(", not submitted\n") == 2
    assert "FAILED" not in again.stdout[again.stdout.index("What failed:") :]
