"""What follows from a failed attempt: its advice, further attempts, and what the next one asks for."""

import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.iocontainers import Wildcards
from snakemake.resources import Resources
from snakemake_interface_logger_plugins.common import LogEvent
from support.workflow import TINY, settings_of

from mgg.errors import memory_error
from mgg.workflow.failures import Failures, advice
from mgg.workflow.interrupted import Interruption
from mgg.workflow.launch import JobLaunch, mpiexec
from mgg.workflow.plan import WorkflowPlan
from mgg.workflow.resources import PROCESS_MB, RANK_MB, ResourceRequests

WILDCARDS = Wildcards(fromdict={"made": "graph", "dataset": "planted"})
JOB = SimpleNamespace(jobid=1, rule=SimpleNamespace(restart_times=2))


class Attempts(Failures):
    """The failed attempts of one Slurm job of rule generate."""

    def __init__(self, path: Path):
        super().__init__(Interruption(SimpleNamespace()), SimpleNamespace(end_unheard=lambda comment: self.gone))
        self.path, self.gone, self.taken = path, True, []
        self.emit(SimpleNamespace(event=LogEvent.JOB_INFO, jobid=1, wildcards=WILDCARDS))

    def fail(self, state: str = "FAILED", code: int = 1, log: str = "", slurm_log: str = "", said: str = ""):
        """Note one as the executor reports it."""
        logs = [self.path / "rule.log", self.path / f"{len(self.failed.get(1, []))}.log"]
        logs[0].write_text(f"{log}\n")
        logs[1].write_text(f"{slurm_log}\nCommand 'mgg' returned non-zero exit status {code}.\n")
        message = said or f"SLURM-job '7' failed, SLURM status is: '{state}'. "
        self.emit(
            SimpleNamespace(
                event=LogEvent.JOB_ERROR, jobid=1, rule_name="generate", rule_msg=message, created=0.0,
                aux={} if said else {"external_jobid": "7"}, log=[str(each) for each in logs],
            )
        )  # fmt: skip
        return self.failed[1][-1]

    def again(self) -> bool:
        """Whether Snakemake would restart it."""
        return self.attempts_left(JOB) > len(self.failed[1]) - 1


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path)


AGAIN = "run the same command again"
KEPT = f"{AGAIN}; what is finished is kept"
ENDED = "somebody or Slurm itself ended it (`sacct -j 7` or `scontrol show job 7` says who and why)"
LACKING = "get what the log names, or a node that has it (partition, gpu_model of rule generate in the profile)"
MORE_TIME = "give it more time: runtime (minutes) of rule generate in the profile"
MORE_MEMORY = "give it more memory: mem_mb of rule generate in the profile"
DIED = f"a process died or stalled: {AGAIN}; a training goes on from its checkpoint"


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        ("TIMEOUT", 1, MORE_TIME),
        ("DEADLINE", 1, MORE_TIME),
        ("OUT_OF_MEMORY", 137, MORE_MEMORY),
        ("CANCELLED", 6, f"{ENDED}; {KEPT}"),
        ("ERROR", 1, f"Slurm gave its nodes to other jobs: {AGAIN}, or take a partition that nobody preempts"),
        ("NODE_FAIL", 6, f"its node went down (`sinfo -R` says why): {AGAIN}"),
        ("BOOT_FAIL", 1, f"its node did not start (`sinfo -R` says why): {AGAIN}"),
        ("TIMEOUT", 5, f"it was told to stop and has a checkpoint: {AGAIN}"),
        ("FAILED", 2, f"correct what the log says, then {KEPT}"),
        ("FAILED", 3, f"{LACKING}, then {KEPT}"),
        ("FAILED", 6, DIED),
        ("FAILED", 137, DIED),
    ],
)
def test_failures_decide_the_next_attempt(attempts: Attempts, state: str, code: int, said: str):
    """By Slurm's state, and by the exit code of mgg where that says more."""
    assert advice(attempts.fail(state, code)).format(rule="generate", job=7) == said
    summary = attempts.summary().splitlines()
    shown = "PREEMPTED" if state == "ERROR" else state
    assert summary[1] == f"  generate (made=graph, dataset=planted), Slurm job 7, {shown}"
    assert summary[-1] == f"    Next: {said}"


@pytest.mark.parametrize(
    ("codes", "state", "minutes"),
    [
        ([2], "FAILED", [11]),
        ([4], "FAILED", [11]),
        ([3, 3, 3], "FAILED", [11, 11, 11]),
        ([5, 5, 5, 6, 6, 6], "FAILED", [11, 22, 44, 88, 88, 88]),
        ([5, 5, 5, 2], "FAILED", [11, 22, 44, 88]),
        ([5, 5, 5], "CANCELLED", [11, 11, 11]),
        ([5, 5, 5, 6, 6, 6], "ERROR", [11, 11, 11, 11, 11, 11]),
        ([1, 1, 1], "TIMEOUT", [11, 22, 44]),
    ],
)
def test_failures_limit_attempts_and_time(attempts: Attempts, codes: list[int], state: str, minutes: list[int]):
    """`retries: 2`, but none after mistakes and wrong results; trainings may stop on time as often as they must."""
    asked, again = [], []
    for code in codes:
        asked.append(11 << attempts.lacked("time", "generate", WILDCARDS))
        attempts.fail(state, code)
        again.append(attempts.again())
    assert asked == minutes and again == [True] * (len(codes) - 1) + [False]


def test_training_stopped_before_its_first_epoch_has_failed(attempts: Attempts):
    """It has come no further; more time may help it."""
    said_so = "mgg: stopped before the first epoch of this run: run the same command again"
    again = []
    for _ in range(3):
        record = attempts.fail(code=5, log=said_so)
        again.append(attempts.again())
    assert again == [True, True, False] and attempts.lacked("time", "generate", WILDCARDS) == 3
    assert advice(record).startswith(
        "it was told to stop before its first epoch; where its time was over, give it more"
    )


LACKS_P2P = "mgg: GPU 0 cannot address GPU 1: P2P is off"
OOM_STEP = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed."


@pytest.mark.parametrize(
    ("lacking", "log", "slurm_log"),
    [
        (True, f"mgg: {memory_error('Unable to allocate 2 GiB')}", ""),
        (True, f"mgg: PE 1: {memory_error('')}\n{LACKS_P2P}", ""),
        (False, LACKS_P2P, ""),
        (False, "mgg: not enough GPU memory: Out of memory allocating 512 bytes", ""),
        (True, "srun: error: gpu07: tasks 0,2-3: Out Of Memory", ""),
        (False, "srun: error: gpu07: task 0: Exited with exit code 3", ""),
        (False, "read oom_kill events: Out Of Memory", ""),
        (True, "", OOM_STEP),
        (True, "", "slurmstepd-n1: error: Detected 2 oom-kill event(s) in step 7.0"),
    ],
)
def test_log_reveals_missing_memory(attempts: Attempts, lacking: bool, log: str, slurm_log: str):
    """An attempt counts as what it said itself: the next one writes the rule's log anew."""
    record = attempts.fail(code=3, log=log, slurm_log=slurm_log)
    attempts.fail(code=3, log=LACKS_P2P)
    assert attempts.lacked("memory", "generate", WILDCARDS) == lacking
    assert (advice(record).format(rule="generate") == MORE_MEMORY) == lacking


REFUSED = "SLURM sbatch failed. The error message was 'sbatch: error: {}'.\n    sbatch call:\n sbatch --comment rule_a"
BUSY = "Unable to contact slurm controller (connect failure)"


@pytest.mark.parametrize(
    ("error", "state", "said", "gone", "again"),
    [
        ("invalid partition specified: x", "not submitted", "correct partition, account, GPU model", True, True),
        (BUSY, "not answered", "Slurm is busy or does not answer: ", True, True),
        (BUSY, "not answered", "Slurm is busy or does not answer: ", False, False),
    ],
)
def test_unsubmitted_job_is_retried_if_slurm_confirms(
    attempts: Attempts, error: str, state: str, said: str, gone: bool, again: bool
):
    """It is tried again only if Slurm confirms that it has not taken the job."""
    attempts.gone = gone
    attempts.fail(said=REFUSED.format(error))
    assert attempts.again() == again
    summary = attempts.summary()
    assert f"(made=graph, dataset=planted), {state}\n    sbatch: sbatch: error: {error}\n" in summary
    assert f"Next: {said}" in summary and "A further attempt" not in summary


def test_job_that_grows_until_refused_reports_its_first_cause(attempts: Attempts):
    """What it lacked at first is what its user has to know; thirty refusals of a busy Slurm do not count."""
    attempts.fail("OUT_OF_MEMORY")
    attempts.fail(said=REFUSED.format("Memory specification can not be satisfied"))
    summary = attempts.summary()
    assert (
        ", Slurm job 7, OUT_OF_MEMORY\n    A further attempt was not submitted, sbatch: sbatch: error: Mem" in summary
    )
    assert summary.endswith(f"Next: {MORE_MEMORY}")
    for count in range(1, 33):
        attempts.fail(said=REFUSED.format(BUSY))
        assert attempts.again() == (count <= 30)


class Cluster:
    """Requests of rule generate for a job whose attempts fail, with what a profile gives."""

    def __init__(self, failures: Failures, granted: dict[str, int], **given: object):
        given = Resources.parse([f"{name}={value}" for name, value in given.items()], allow_expressions=True)
        rule = SimpleNamespace(name="generate", resources=Resources.from_mapping({}))
        rule.resources.update(given)
        workflow = SimpleNamespace(
            get_rule=lambda name: rule, rules=[rule], async_run=None, is_main_process=True, non_local_exec=True,
            resource_settings=SimpleNamespace(overwrite_resources={"generate": given}),
        )  # fmt: skip
        plan = WorkflowPlan(settings_of(TINY))
        self.requests = ResourceRequests(workflow, plan, JobLaunch(workflow), failures)
        self.requests.__dict__["granted"] = granted
        self.rule = rule

    def asked(self, name: str, attempt: int) -> int:
        """What the next attempt asks for, of the profile's value."""
        words = {"input": [], "threads": 1, "rulename": "generate", "async_run": None}
        return self.rule.resources[name].evaluate(WILDCARDS, attempt=attempt, **words).value


@pytest.mark.parametrize(
    ("runtime", "state", "minutes", "memory"),
    [
        (60, "TIMEOUT", [60, 120, 240], [3000, 3000, 3000]),
        (1000, "TIMEOUT", [1000, 1440, 1440], [3000, 3000, 3000]),
        (2000, "TIMEOUT", [2000, 2000, 2000], [3000, 3000, 3000]),
        ("min(100, 60 * attempt)", "TIMEOUT", [60, 100, 100], [3000, 3000, 3000]),
        (60, "OUT_OF_MEMORY", [60, 60, 60], [3000, 6000, 12000]),
    ],
)
def test_requests_of_the_profile_double(attempts: Attempts, runtime, state: str, minutes: list, memory: list):
    """Time up to a day or what is given, memory for want of memory alone; an expression with attempt stays as it is."""
    cluster = Cluster(attempts, {}, runtime=runtime, mem_mb="300 * 10")
    cluster.requests.double_what_the_profile_gives()
    found = []
    for attempt in (1, 2, 3):
        found.append((cluster.asked("runtime", attempt), cluster.asked("mem_mb", attempt)))
        attempts.fail(state)
    assert found == list(zip(minutes, memory, strict=True))


@pytest.mark.parametrize(("partition", "minutes"), [({}, [11, 22, 30]), ({"slurm_partition": "long"}, [11, 22, 44])])
def test_requested_time_grows_up_to_the_partitions_limit(
    attempts: Attempts, partition: dict[str, str], minutes: list[int]
):
    """Slurm lets a job wait for ever that wants more."""
    cluster = Cluster(attempts, {"": 30, "short": 30, "long": 1440}, **partition)
    found = []
    for _ in minutes:
        found.append(cluster.requests.minutes["generate"](WILDCARDS, "generate"))
        attempts.fail("TIMEOUT")
    assert found == minutes


def test_every_node_gets_the_memory_of_the_fullest(attempts: Attempts):
    """Of 5 ranks on 2 nodes one has 3."""
    requests = Cluster(attempts, {}, nodes=2).requests
    asked = requests.memory(lambda size: 50e6, ranks=True)(Wildcards(fromdict={"pes": "5"}), "aggregate")
    assert asked == PROCESS_MB + math.floor((5 * RANK_MB + 50) * 3 / 5)
    assert [mpiexec("mpi")(Wildcards(fromdict={"pes": pes})) for pes in "12"] == ["", "mpiexec"]


def test_partitions_for_the_report_are_checked():
    plan = WorkflowPlan(settings_of(TINY | {"predict": {"pes": [16], "techniques": ["halo"]}}))
    assert (plan.judged, plan.partitioned) == ([1, 2, 4], [1, 2, 4, 16])
    assert re.fullmatch(plan.made_by("generate"), "planted") and not re.fullmatch(plan.made_by("graph"), "planted")
