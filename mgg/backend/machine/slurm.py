"""Checks what a Slurm cluster offers before a long run, with trial jobs: ``mgg doctor --slurm``."""

from __future__ import annotations

import getpass
import json
import logging
import math
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgg.errors import InputError, MachineError

_log = logging.getLogger(__name__)

#: Limits in seconds: for a question to Slurm, for nodes for the trials, for the ranks of each trial, and for their
#: output to become visible here.
QUESTION, QUEUE, RANKS, SHOWN = 30, 60, 120, 30
#: Advice if sbatch refuses a job.
_CHOICES = "choose another --partition, or name the --account or --qos that your site wants"
#: Messages of Slurm's commands if its controller is busy or away, which is not a refusal.
UNANSWERED = re.compile(
    "Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted"
    "|Connection (refused|timed out|reset)|Unexpected message received"
    "|Message receive failure|Communication (connection|send|shutdown) failure"
    "|Slurm backup controller in standby mode|temporarily (disabled|unable|unavailable)|job queue full",
    re.IGNORECASE,
)
#: Flavours in ``srun --mpi=list`` that current MPI libraries support.
_FLAVOURS = re.compile(r"pmi2|pmix|cray_shasta")
#: GPUs of a node, as ``sinfo -o %G`` prints them: gpu:8, gpu:h200:8(S:0-1).
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)")


@dataclass
class SlurmPartition:
    """One partition: whether it is the default, its time limit, nodes by state, kinds of nodes, nodes by GPUs."""

    default: bool
    limit: str
    states: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, None] = field(default_factory=dict)
    gpus: dict[int, int] = field(default_factory=dict)

    def spread(self) -> tuple[int, int]:
        """Return the number of nodes for two ranks, and of GPUs per node for its ranks, at most one per rank."""
        with_gpus = {gpus: nodes for gpus, nodes in self.gpus.items() if gpus}
        nodes = min(2, sum((with_gpus or self.gpus).values()))
        return nodes, min(2 // max(nodes, 1), max(with_gpus, default=0))

    def gpus_per_node(self) -> int:
        """Return the largest number of GPUs of a node, 0 if no node has any."""
        return max(self.gpus, default=0)

    def minutes(self) -> float:
        """Return the time limit of jobs in minutes, infinite if the partition has none."""
        found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", self.limit)
        days, hours, minutes, seconds = (int(each or 0) for each in found.groups()) if found else (0, 0, 0, 0)
        return (days * 24 + hours) * 60 + minutes + seconds / 60 if found else math.inf

    def described(self) -> str:
        """Return the partition's line of ``mgg doctor``."""
        states = ", ".join(f"{count} {state}" for state, count in self.states.items())
        name = "default, " if self.default else ""
        return f"{name}nodes: {states}; each {' or '.join(self.kinds)}; jobs of at most {self.limit}"


@dataclass(frozen=True)
class Trial:
    """The result of starting two ranks with one launcher.

    Attributes:
        launcher: the value for the profile's ``mpi``.
        works: whether both ranks were in one MPI world and summed a number.
        said: the result in one phrase.
        nodes: node that ran a rank -> whether it saw the file in the shared folder.
    """

    launcher: str
    works: bool
    said: str
    nodes: dict[str, bool] = field(default_factory=dict)


def report(
    folder: Path, partition: str | None = None, account: str | None = None, qos: str | None = None
) -> tuple[dict[str, str], bool]:
    """Return facts about this login node's cluster, tested with trial jobs if possible; takes a minute or two.

    Args:
        folder: the workflow's folder, which every node must see; checked on the one or two nodes of the trials.
        partition: the partition to try; None: the cluster's default.
        account: the account to charge; None: the user's default.
        qos: the quality of service of the trials; None: the user's default.

    Returns:
        The facts, and whether two ranks started with at least one launcher and every node that ran one saw ``folder``.

    Raises:
        MachineError: there is no Slurm here, or its controller does not answer.
        InputError: no such partition, or ``folder`` cannot be written.
    """
    for program in ("sinfo", "srun", "sbatch"):
        if shutil.which(program) is None:
            raise MachineError(f"no Slurm here: {program} is not on PATH; run this on a login node of the cluster")
    partitions = _partitions()
    chosen = _choose(partitions, partition)
    spread, gpus = partitions[chosen].spread()
    asked = {"partition": chosen, "account": account, "qos": qos, "gpus-per-node": gpus}
    where = [f"--{name}={value}" for name, value in asked.items() if value]
    trials = _try_launchers(folder, where, spread, gpus > 0)
    nodes = {node: seen for trial in trials for node, seen in trial.nodes.items()}
    working = [trial.launcher for trial in trials if trial.works]
    facts = {
        "Slurm": _ask("sinfo", "--version").strip(),
        **{f"partition {name}": each.described() for name, each in partitions.items()},
        "accounting": _accounting(),
        **{f"two ranks by {trial.launcher}, partition {chosen}": trial.said for trial in trials},
        f"folder {folder}": _visibility(nodes),
        "mpi in the profile": f"'{working[0]}'" if working else "nothing that was tried works",
    }
    return facts, bool(working) and all(nodes.values())


def cluster(partition: str | None = None) -> tuple[str, SlurmPartition, list[str]] | None:
    """Return a partition's name, the partition, and srun's flavours of MPI; None if there is no Slurm here.

    Raises:
        MachineError: Slurm does not answer.
        InputError: ``partition`` does not exist or has no Slurm, or it is None and the cluster has no default.
    """
    if shutil.which("sinfo") is None:
        if partition:
            raise InputError("--partition: there is no Slurm here (no sinfo on PATH)")
        return None
    partitions = _partitions()
    chosen = _choose(partitions, partition)
    return chosen, partitions[chosen], parse_flavours(_ask("srun", "--mpi=list"))


def time_limits() -> dict[str, int]:
    """Return partition -> time limit of jobs in whole minutes; "" has the limit of the default partition.

    Partitions without a limit are left out. Raises MachineError if Slurm does not answer.
    """
    partitions = _partitions()
    named = [*partitions.items(), *(("", each) for each in partitions.values() if each.default)]
    return {name: int(each.minutes()) for name, each in named if math.isfinite(each.minutes())}


def _partitions() -> dict[str, SlurmPartition]:
    return parse_partitions(_ask("sinfo", "-h", "-o", "%P|%D|%c|%m|%G|%l|%T"))


def parse_partitions(text: str) -> dict[str, SlurmPartition]:
    """Parse the output of ``sinfo -h -o "%P|%D|%c|%m|%G|%l|%T"``: one line per partition, state and kind of node."""
    found: dict[str, SlurmPartition] = {}
    for line in text.splitlines():
        if line.count("|") != 6:
            continue
        name, nodes, cores, memory, gres, limit, state = line.split("|")
        made = found.setdefault(name.removesuffix("*"), SlurmPartition(name.endswith("*"), limit))
        made.states[state] = made.states.get(state, 0) + int(nodes)
        each = max(map(int, _GPUS.findall(gres)), default=0)
        made.gpus[each] = made.gpus.get(each, 0) + int(nodes)
        gpus = "no GPUs" if gres in ("(null)", "") else gres
        made.kinds[f"{cores} cores, {int(memory.rstrip('+')) / 1024:.0f} GiB, {gpus}"] = None
    return found


def parse_flavours(text: str) -> list[str]:
    """Return the flavours worth trying from the output of ``srun --mpi=list``, one or many per line."""
    return list(dict.fromkeys(word for word in re.split(r"[\s,:]+", text) if _FLAVOURS.fullmatch(word)))


def parse_ranks(text: str) -> tuple[dict[str, bool], list[tuple[int, int]]]:
    """Parse the output of :mod:`.two_ranks`: node -> whether it saw the file; (size, sum) of each rank."""
    nodes: dict[str, bool] = {}
    for node, said in _of_nodes(text):
        nodes[node] = said["seen"] and nodes.get(node, True)
    return nodes, [(said["size"], said["sum"]) for said in _objects(text) if "size" in said]


def _of_nodes(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the name of each rank's node, and the rank's output before MPI started."""
    entries = [said for said in _objects(text) if "node" in said]
    # A launcher that passes on its own environment gives every rank the first node's SLURMD_NODENAME.
    name = max(("node", "host"), key=lambda key: len({said.get(key) for said in entries}))
    return [(said[name], said) for said in entries]


def _with_gpus(text: str) -> str:
    """Return the ranks' nodes in words, each with the GPUs that its ranks see."""
    gpus = {node: said.get("gpus") for node, said in _of_nodes(text)}
    return ", ".join(f"{node} (GPU {seen})" if seen else f"{node} (no GPU)" for node, seen in sorted(gpus.items()))


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in ``text``: launchers may join the output of two ranks, and sites add their own lines."""
    decoder, place = json.JSONDecoder(), text.find("{")
    while place >= 0:
        try:
            found, place = decoder.raw_decode(text, place)
            yield found
        except ValueError:
            place += 1
        place = text.find("{", place)


def _ask(*command: str) -> str:
    """Return the output of a Slurm command, both streams; raises MachineError if it fails."""
    asked = _run(*command)
    if asked.returncode:
        raise MachineError(f"{command[0]}: {_last_line(asked.stderr)}")
    return asked.stdout + asked.stderr


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a Slurm command; raises MachineError if it does not answer."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=QUESTION, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise MachineError(f"{command[0]} did not answer within {QUESTION} s: is slurmctld up?") from None
    except OSError as error:
        raise MachineError(f"{command[0]}: {error.strerror}") from None


def _choose(partitions: dict[str, SlurmPartition], wanted: str | None) -> str:
    if wanted is not None and wanted not in partitions:
        raise InputError(f"--partition {wanted}: the cluster has {', '.join(partitions) or 'none'}")
    chosen = wanted or next((name for name, each in partitions.items() if each.default), None)
    if chosen is None:
        raise InputError(f"the cluster has no default partition: name one with --partition ({', '.join(partitions)})")
    return chosen


def _accounting() -> str:
    """Return in words whether sacct works, and the user's accounts."""
    try:
        _ask("sacct", "--allocations", "--noheader")
        accounts = _ask("sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={getpass.getuser()}",
                        "format=account")  # fmt: skip
    except MachineError as error:
        return f"none ({error}): the workflow asks squeue how jobs are"
    names = ", ".join(dict.fromkeys(accounts.split()))
    return f"sacct answers; your accounts: {names or 'none'}"


def _try_launchers(folder: Path, where: list[str], spread: int, gpus: bool) -> list[Trial]:
    """Start two ranks on ``spread`` nodes with plain srun, with srun and each of its flavours, and with mpiexec.

    One batch job runs all trials, in the environment of the workflow's jobs. ``gpus``: whether ``where`` requests GPUs.
    """
    flavours = [f"srun --mpi={name}" for name in parse_flavours(_ask("srun", "--mpi=list"))]
    launchers = ["srun", *flavours, *(["mpiexec"] if shutil.which("mpiexec") else [])]
    text = secrets.token_hex(8)
    try:
        with (
            tempfile.NamedTemporaryFile("w", prefix=".mgg-doctor-", dir=folder) as file,
            tempfile.NamedTemporaryFile("r", prefix=".mgg-doctor-", dir=folder) as output,
        ):
            file.write(text)
            file.flush()
            ranks = [sys.executable, "-m", "mgg.backend.machine.two_ranks", file.name, text]
            commands = [[*_start(launcher, spread), *ranks] for launcher in launchers]
            inside = [sys.executable, "-m", "mgg.backend.machine.slurm_job", str(RANKS), json.dumps(commands)]
            request = [*where, f"--nodes={spread}", "--ntasks=2", f"--time={len(commands) * RANKS // 60 + 1}"]
            lack, first = _run_job([*request, "--output", output.name], inside)
            answers = [] if lack else _answers(Path(output.name), len(commands))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from None
    if not answers and not lack:
        # The output file was written on that node but is not here: the folder is not shared.
        return [Trial("any launcher", False, f"not known: {first} has written nothing into {folder}", {first: False})]
    if lack:
        return [Trial("any launcher", False, f"not tried: {lack}")]
    unsaid = {"code": None, "out": "", "err": "not tried: the job has ended"}
    return [
        _judge(launcher, spread, gpus, **(answers[index] if index < len(answers) else unsaid))
        for index, launcher in enumerate(launchers)
    ]


def _start(launcher: str, nodes: int) -> list[str]:
    """Return the command with which the workflow starts two ranks, see mgg/workflow/launch.py."""
    if launcher == "mpiexec":
        return ["mpiexec", "-n", "2"]
    return [*launcher.split(), f"--nodes={nodes}", "--ntasks=2", f"--ntasks-per-node={2 // nodes}", "--cpus-per-task=1"]


def _run_job(request: list[str], command: list[str]) -> tuple[str, str]:
    """Run a command as a batch job to its end; return why it did not start ('': it did), and its first node."""
    first = "its node"
    sent = _run("sbatch", "--parsable", *request, "--wrap", shlex.join(command))
    if sent.returncode:
        # Keep the whole message: the violated policy comes before the line that reports a violation.
        words = " ".join(sent.stderr.split())[:600] or f"exit code {sent.returncode}, no reason given"
        if UNANSWERED.search(words):
            return f"sbatch gets no answer, try again later: {words}", first
        asked = " ".join(word for word in request if word.startswith("--") and word != "--output")
        return f"sbatch refuses a job with {asked}: {words}; {_CHOICES}", first
    job, submitted = sent.stdout.split(";")[0].split()[-1], time.monotonic()
    try:
        while True:
            found = _state_of(job)
            if found is None:
                return "", first
            state, node, reason = found
            if state == "PENDING" and time.monotonic() - submitted > QUEUE:
                return f"no nodes within {QUEUE} s ({reason})", first
            first = first if state == "PENDING" else node
            time.sleep(1)
    finally:
        try:
            subprocess.run(["scancel", job], capture_output=True, timeout=QUESTION, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            _log.warning("job %s may be there still; scancel %s: %s", job, job, error)


def _state_of(job: str, looks: int = 3) -> list[str] | None:
    """Return state, first node and reason of a job in the queue; None once it has ended.

    Raises:
        MachineError: Slurm does not answer in ``looks`` attempts.
    """
    try:
        asked = _run("squeue", "-h", "-j", job, "-o", "%T|%B|%r")
        if asked.returncode and "Invalid job id" not in asked.stderr:
            raise MachineError(f"squeue: {_last_line(asked.stderr)}")
    except MachineError:
        if looks == 1:
            raise
        time.sleep(1)
        return _state_of(job, looks - 1)
    found = asked.stdout.strip().split("|")
    return found if len(found) == 3 else None


def _answers(file: Path, wanted: int) -> list[dict[str, Any]]:
    """Read the output of :mod:`mgg.backend.machine.slurm_job`; from another node it may take a while to arrive."""
    for _ in range(SHOWN):
        found = [said for said in _objects(file.read_text(encoding="utf-8", errors="replace")) if "code" in said]
        if len(found) == wanted:
            break
        time.sleep(1)
    return found


def _judge(launcher: str, spread: int, gpus: bool, code: int | None, out: str, err: str) -> Trial:
    """Judge a launcher by the output of its two ranks; ``gpus``: whether they were given GPUs."""
    nodes, worlds = parse_ranks(out)
    if code is None:
        return Trial(launcher, False, err)
    if worlds == [(2, 3)] * 2 and code == 0:
        if len(nodes) < spread:
            return Trial(launcher, False, f"both run on {', '.join(nodes)}, although the job has {spread} nodes", nodes)
        return Trial(launcher, True, f"work on {_with_gpus(out) if gpus else ', '.join(sorted(nodes))}", nodes)
    if worlds == [(1, 1)] * 2:
        return Trial(
            launcher, False, "are two worlds of one rank: this Python's MPI does not speak that flavour", nodes
        )
    return Trial(launcher, False, f"fail: {_last_line(err)}", nodes)


def _visibility(nodes: dict[str, bool]) -> str:
    if not nodes:
        return "not known: no rank started"
    seen, unseen = ([node for node, sees in sorted(nodes.items()) if sees == wanted] for wanted in (True, False))
    parts = [f"the same on {', '.join(seen)}"] if seen else []
    return "; ".join(
        parts + ([f"not on {', '.join(unseen)}: run from a folder that all nodes share"] if unseen else [])
    )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # srun prints how the ranks ended after the cause of the failure.
    causes = [line for line in lines if not re.search(r"task \d|job \d+ (queued|has been)|STEP|Relinquishing", line)]
    return (causes or lines or ["no reason given"])[-1][:300]
