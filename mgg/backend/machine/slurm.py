"""What a Slurm cluster offers, tried out before a long run: ``mgg doctor --slurm``."""

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

#: Seconds that a question to Slurm may take, that the trials wait for nodes, that the ranks of each may take after
#: that, and that what they have said may take to show up here.
QUESTION, QUEUE, RANKS, SHOWN = 30, 60, 120, 30
#: What helps where sbatch says no.
_CHOICES = "choose another --partition, or name the --account or --qos that your site wants"
#: What Slurm's commands say where its controller is busy or away, in whatever words: it has not refused anything.
UNANSWERED = re.compile(
    "Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted"
    "|Connection (refused|timed out|reset)|Unexpected message received"
    "|Message receive failure|Communication (connection|send|shutdown) failure"
    "|Slurm backup controller in standby mode|temporarily (disabled|unable|unavailable)|job queue full",
    re.IGNORECASE,
)
#: Flavours of ``srun --mpi=list`` that MPI libraries of today speak.
_FLAVOURS = re.compile(r"pmi2|pmix|cray_shasta")
#: GPUs of a node, as ``sinfo -o %G`` has them: gpu:8, gpu:h200:8(S:0-1).
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)")


@dataclass
class Partition:
    """One partition: if it is the cluster's default, nodes by state, kinds of nodes in words, nodes by their GPUs."""

    default: bool
    limit: str
    states: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, None] = field(default_factory=dict)
    gpus: dict[int, int] = field(default_factory=dict)

    def spread(self) -> tuple[int, int]:
        """Over how many nodes two ranks go, and how many GPUs each of these has for its ranks, at most one a rank."""
        with_gpus = {gpus: nodes for gpus, nodes in self.gpus.items() if gpus}
        nodes = min(2, sum((with_gpus or self.gpus).values()))
        return nodes, min(2 // max(nodes, 1), max(with_gpus, default=0))

    def gpus_per_node(self) -> int:
        """GPUs of the nodes that have most of them; 0: none has any."""
        return max(self.gpus, default=0)

    def minutes(self) -> float:
        """The most that a job may take, infinite where the partition has no limit."""
        found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", self.limit)
        days, hours, minutes, seconds = (int(each or 0) for each in found.groups()) if found else (0, 0, 0, 0)
        return (days * 24 + hours) * 60 + minutes + seconds / 60 if found else math.inf

    def described(self) -> str:
        """A line of ``doctor``."""
        states = ", ".join(f"{count} {state}" for state, count in self.states.items())
        name = "default, " if self.default else ""
        return f"{name}nodes: {states}; each {' or '.join(self.kinds)}; jobs of at most {self.limit}"


@dataclass(frozen=True)
class Trial:
    """Two ranks that were started in one way.

    Attributes:
        launcher: what the profile's ``mpi`` would be.
        works: both ranks were one MPI world and added up a number.
        said: one phrase about it.
        nodes: for each node that ran a rank, whether it saw the file in the shared folder.
    """

    launcher: str
    works: bool
    said: str
    nodes: dict[str, bool] = field(default_factory=dict)


def report(
    folder: Path, partition: str | None = None, account: str | None = None, qos: str | None = None
) -> tuple[dict[str, str], bool]:
    """Facts about the cluster that this login node belongs to, tried out where they can be; takes a minute or two.

    Args:
        folder: where the workflow will run, which every node must see; the one or two nodes of the trials are asked.
        partition: the one whose nodes are tried; the cluster's default without one.
        account: the one that is charged; the user's default without one.
        qos: the quality of service of the trials; the user's default without one.

    Returns:
        The facts, and whether two ranks started in at least one way and every node that ran one saw ``folder``.

    Raises:
        MachineError: no Slurm here, or its controller does not answer.
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


def cluster(partition: str | None = None) -> tuple[str, Partition, list[str]] | None:
    """The name of a partition, what it is, and the flavours of MPI that srun has; None: there is no Slurm here.

    Raises:
        MachineError: Slurm does not answer.
        InputError: no such ``partition``, or none is the default and none is named.
    """
    if shutil.which("sinfo") is None:
        if partition:
            raise InputError("--partition: there is no Slurm here (no sinfo on PATH)")
        return None
    partitions = _partitions()
    chosen = _choose(partitions, partition)
    return chosen, partitions[chosen], parse_flavours(_ask("srun", "--mpi=list"))


def time_limits() -> dict[str, int]:
    """By partition the most whole minutes that a job may take; that of the default one stands under "", too.

    Partitions without a limit are left out. Raises MachineError where Slurm does not answer.
    """
    partitions = _partitions()
    named = [*partitions.items(), *(("", each) for each in partitions.values() if each.default)]
    return {name: int(each.minutes()) for name, each in named if math.isfinite(each.minutes())}


def _partitions() -> dict[str, Partition]:
    return parse_partitions(_ask("sinfo", "-h", "-o", "%P|%D|%c|%m|%G|%l|%T"))


def parse_partitions(text: str) -> dict[str, Partition]:
    """The partitions that ``sinfo -h -o "%P|%D|%c|%m|%G|%l|%T"`` prints, a line a state and kind of node."""
    found: dict[str, Partition] = {}
    for line in text.splitlines():
        if line.count("|") != 6:
            continue
        name, nodes, cores, memory, gres, limit, state = line.split("|")
        made = found.setdefault(name.removesuffix("*"), Partition(name.endswith("*"), limit))
        made.states[state] = made.states.get(state, 0) + int(nodes)
        each = max(map(int, _GPUS.findall(gres)), default=0)
        made.gpus[each] = made.gpus.get(each, 0) + int(nodes)
        gpus = "no GPUs" if gres in ("(null)", "") else gres
        made.kinds[f"{cores} cores, {int(memory.rstrip('+')) / 1024:.0f} GiB, {gpus}"] = None
    return found


def parse_flavours(text: str) -> list[str]:
    """Of what ``srun --mpi=list`` prints, one or many a line, the flavours worth trying."""
    return list(dict.fromkeys(word for word in re.split(r"[\s,:]+", text) if _FLAVOURS.fullmatch(word)))


def parse_ranks(text: str) -> tuple[dict[str, bool], list[tuple[int, int]]]:
    """What the ranks of :mod:`.two_ranks` said: nodes and whether they saw the file; (size, sum) by rank."""
    nodes: dict[str, bool] = {}
    for node, said in _of_nodes(text):
        nodes[node] = said["seen"] and nodes.get(node, True)
    return nodes, [(said["size"], said["sum"]) for said in _objects(text) if "size" in said]


def _of_nodes(text: str) -> list[tuple[str, dict[str, Any]]]:
    """What each rank said before MPI started, and the name of its node."""
    told = [said for said in _objects(text) if "node" in said]
    # A launcher that takes its own environment along gives every rank the first node's SLURMD_NODENAME.
    name = max(("node", "host"), key=lambda key: len({said.get(key) for said in told}))
    return [(said[name], said) for said in told]


def _with_gpus(text: str) -> str:
    """The nodes of the ranks, each with the GPUs that its ranks see."""
    gpus = {node: said.get("gpus") for node, said in _of_nodes(text)}
    return ", ".join(f"{node} (GPU {seen})" if seen else f"{node} (no GPU)" for node, seen in sorted(gpus.items()))


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in ``text``: launchers may join what two ranks print, and sites print lines of their own."""
    decoder, place = json.JSONDecoder(), text.find("{")
    while place >= 0:
        try:
            found, place = decoder.raw_decode(text, place)
            yield found
        except ValueError:
            place += 1
        place = text.find("{", place)


def _ask(*command: str) -> str:
    """What a command of Slurm prints, on either stream."""
    asked = _run(*command)
    if asked.returncode:
        raise MachineError(f"{command[0]}: {_last_line(asked.stderr)}")
    return asked.stdout + asked.stderr


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm; raises MachineError where it does not answer."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=QUESTION, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise MachineError(f"{command[0]} did not answer within {QUESTION} s: is slurmctld up?") from None
    except OSError as error:
        raise MachineError(f"{command[0]}: {error.strerror}") from None


def _choose(partitions: dict[str, Partition], wanted: str | None) -> str:
    if wanted is not None and wanted not in partitions:
        raise InputError(f"--partition {wanted}: the cluster has {', '.join(partitions) or 'none'}")
    chosen = wanted or next((name for name, each in partitions.items() if each.default), None)
    if chosen is None:
        raise InputError(f"the cluster has no default partition: name one with --partition ({', '.join(partitions)})")
    return chosen


def _accounting() -> str:
    """Whether sacct can tell how jobs ended, and the user's accounts."""
    try:
        _ask("sacct", "--allocations", "--noheader")
        accounts = _ask("sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={getpass.getuser()}",
                        "format=account")  # fmt: skip
    except MachineError as error:
        return f"none ({error}): the workflow asks squeue how jobs are"
    names = ", ".join(dict.fromkeys(accounts.split()))
    return f"sacct answers; your accounts: {names or 'none'}"


def _try_launchers(folder: Path, where: list[str], spread: int, gpus: bool) -> list[Trial]:
    """Two ranks on ``spread`` nodes by plain srun, by srun with each flavour that it has, and by mpiexec.

    All of them in one batch job, with what the workflow's jobs find there. ``gpus``: ``where`` asks for some.
    """
    flavours = [f"srun --mpi={name}" for name in parse_flavours(_ask("srun", "--mpi=list"))]
    launchers = ["srun", *flavours, *(["mpiexec"] if shutil.which("mpiexec") else [])]
    text = secrets.token_hex(8)
    try:
        with (
            tempfile.NamedTemporaryFile("w", prefix=".mgg-doctor-", dir=folder) as file,
            tempfile.NamedTemporaryFile("r", prefix=".mgg-doctor-", dir=folder) as told,
        ):
            file.write(text)
            file.flush()
            ranks = [sys.executable, "-m", "mgg.backend.machine.two_ranks", file.name, text]
            commands = [[*_start(launcher, spread), *ranks] for launcher in launchers]
            inside = [sys.executable, "-m", "mgg.backend.machine.slurm_job", str(RANKS), json.dumps(commands)]
            request = [*where, f"--nodes={spread}", "--ntasks=2", f"--time={len(commands) * RANKS // 60 + 1}"]
            lack, first = _run_job([*request, "--output", told.name], inside)
            answers = [] if lack else _answers(Path(told.name), len(commands))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from None
    if not answers and not lack:
        # The output file is a file of that node, too: its folder is not the one here.
        return [Trial("any launcher", False, f"not known: {first} has written nothing into {folder}", {first: False})]
    if lack:
        return [Trial("any launcher", False, f"not tried: {lack}")]
    unsaid = {"code": None, "out": "", "err": "not tried: the job has ended"}
    return [
        _judge(launcher, spread, gpus, **(answers[index] if index < len(answers) else unsaid))
        for index, launcher in enumerate(launchers)
    ]


def _start(launcher: str, nodes: int) -> list[str]:
    """How the workflow starts two ranks, workflow/rules/launch.smk."""
    if launcher == "mpiexec":
        return ["mpiexec", "-n", "2"]
    return [*launcher.split(), f"--nodes={nodes}", "--ntasks=2", f"--ntasks-per-node={2 // nodes}", "--cpus-per-task=1"]


def _run_job(request: list[str], command: list[str]) -> tuple[str, str]:
    """Run a command as a batch job to its end; returns why it did not start, '' if it did, and its first node."""
    first = "its node"
    sent = _run("sbatch", "--parsable", *request, "--wrap", shlex.join(command))
    if sent.returncode:
        # All that it says: the policy that a job violates stands before the line that it violates one.
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
    """State, first node and reason of a job that is in the queue; None once it has ended.

    Raises:
        MachineError: Slurm does not answer, at that many ``looks``.
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
    """What :mod:`mgg.backend.machine.slurm_job` has printed into ``file``; from another node that may take a while."""
    for _ in range(SHOWN):
        found = [said for said in _objects(file.read_text(encoding="utf-8", errors="replace")) if "code" in said]
        if len(found) == wanted:
            break
        time.sleep(1)
    return found


def _judge(launcher: str, spread: int, gpus: bool, code: int | None, out: str, err: str) -> Trial:
    """What the output of two ranks, which were given GPUs or not, says of their launcher."""
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
    # srun reports how the ranks ended after what went wrong.
    causes = [line for line in lines if not re.search(r"task \d|job \d+ (queued|has been)|STEP|Relinquishing", line)]
    return (causes or lines or ["no reason given"])[-1][:300]
