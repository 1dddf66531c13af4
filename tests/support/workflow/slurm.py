"""What the profiles request from Slurm, and stand-ins for its commands.

The stand-in for sbatch records its arguments and creates the outputs of the job. With ``$STAND_IN_CODE`` the job's
command fails with that code instead, and Slurm's log has the lines that the Snakemake inside a job prints; of several
codes each job takes the next, later ones the last. The rule's log then has ``$STAND_IN_LOG``, and Slurm's log also
``$STAND_IN_SLURM_LOG``; several lines are used up in the same way. The job's state is ``$STAND_IN_STATE`` (FAILED).
``$STAND_IN_CASES`` is a JSON object: data set -> such variables for its jobs. Jobs of more than ``$STAND_IN_MB`` are
refused. Slurm keeps ended jobs for ``$STAND_IN_AGE`` seconds. Jobs of an earlier run are the lines of
``calls/NAME.left``: after scancel each call of squeue removes one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from support.workflow import Folder, plain

#: A Snakemake with short pauses.
STAND_IN = Path(__file__).with_name("stand_in_snakemake.py")
COMMANDS = ("sbatch", "squeue", "sacct", "sacctmgr", "scontrol", "sinfo", "scancel", "sshare")
_SPLIT = "{dataset}@{recipe}/SCHEME-w8-d64"
#: Outputs of the rules that run on a cluster.
OUTPUTS = {
    "graph": "results/{made}/{dataset}@{recipe}/",
    "generate": "results/{made}/{dataset}@{recipe}/",
    "graph_scatter": "results/graph_scatter/{dataset}@{recipe}/",
    "graph_shard": "results/graph_shard/{dataset}@{recipe}/{scatteritem}/",
    "graph_gather": "results/{made}/{dataset}@{recipe}/",
    "order": "results/graph/{dataset}@{recipe}/",
    "partition": f"results/partition/{_SPLIT}/p{{pes}}/",
    "layout": f"results/layout/{_SPLIT}/p{{pes}}/",
    "tune": f"results/tune/{{place}}/{_SPLIT}/p{{pes}}-{{run}}.json",
    "aggregate": f"results/aggregate/{{place}}/{_SPLIT}/p{{pes}}-{{run}}.jsonl",
    "train": f"results/train/{{place}}/{_SPLIT}/{{model}}-{{technique}}-p{{pes}}-s{{seed}}-{{run}}/",
}

#: Requests of the stages without ranks, which are the same with all profiles: minutes, MB, cores.
ALIKE = {
    "graph_scatter digits": "-t 21 --mem 5120 --nodes=1 --ntasks=1 --cpus-per-task=4",
    "graph_shard digits 1-of-2": "-t 21 --mem 5120 --nodes=1 --ntasks=1 --cpus-per-task=4",
    "graph_gather graph_natural digits": "-t 21 --mem 1500 --nodes=1 --ntasks=1 --cpus-per-task=1",
    "order digits": "-t 11 --mem 5120 --nodes=1 --ntasks=1 --cpus-per-task=4",
    "generate graph reddit-like": "-t 16 --mem 4377 --nodes=1 --ntasks=1 --cpus-per-task=1",
    "partition digits 8": "-t 11 --mem 1500 --nodes=1 --ntasks=1 --cpus-per-task=1",
    "partition reddit-like 8": "-t 13 --mem 2078 --nodes=1 --ntasks=1 --cpus-per-task=1",
    "layout digits 16": "-t 11 --mem 5120 --nodes=1 --ntasks=1 --cpus-per-task=4",
    "layout reddit-like 16": "-t 16 --mem 5120 --nodes=1 --ntasks=1 --cpus-per-task=4",
}
RANKS = {
    "dgx": {
        "aggregate digits 1": "-t 31 --mem 3502 --nodes=1 --cpus-per-task=8 --gpus=1",
        "aggregate digits 8": "-t 31 --mem 17502 --nodes=1 --ntasks=8 --cpus-per-task=8 --gpus=8",
        "aggregate reddit-like 8": "-t 31 --mem 21031 --nodes=1 --ntasks=8 --cpus-per-task=8 --gpus=8",
        "tune digits 8": "-t 31 --mem 17502 --nodes=1 --ntasks=8 --cpus-per-task=8 --gpus=8",
        "train digits gcn halo 1 0": "-t 61 --mem 3511 --nodes=1 --cpus-per-task=8 --signal=USR1@120 --gpus=1",
    },
    "dgx-multi": {
        "aggregate digits 1": "-t 31 --mem 3502 --nodes=1 --cpus-per-task=8 --gpus=1",
        "aggregate digits 8": "-t 31 --mem 17502 --nodes=1 --ntasks=8 --cpus-per-task=8 --gpus=8",
        "aggregate reddit-like 16": "-t 31 --mem 19265 --nodes=2 --ntasks=16 --cpus-per-task=8 --ntasks-per-node=8"
        " --gpus-per-node=8 --gpus=16",
        "train digits gcn halo 16 0": "-t 61 --mem 17505 --nodes=2 --ntasks=16 --cpus-per-task=8 --signal=USR1@120"
        " --ntasks-per-node=8 --gpus-per-node=8 --gpus=16",
    },
    "slurm-cpu": {
        "aggregate digits 1": "-t 31 --mem 3502 --nodes=1 --ntasks=1 --cpus-per-task=1",
        "aggregate digits 8": "-t 31 --mem 9501 --nodes=2 --ntasks=8 --cpus-per-task=1 --ntasks-per-node=4",
        "tune digits 8": "-t 31 --mem 9501 --nodes=2 --ntasks=8 --cpus-per-task=1 --ntasks-per-node=4",
        "train digits gcn halo 16 0": "-t 61 --mem 9502 --nodes=4 --ntasks=16 --cpus-per-task=1 --signal=USR1@120"
        " --ntasks-per-node=4",
    },
}
#: Requests for graphs so large that every number depends on nodes, arcs and features (profile slurm-cpu).
LARGE = {
    "graph_scatter ogbn-papers100M": "-t 74 --mem 5120 --nodes=1 --ntasks=1 --cpus-per-task=4",
    "graph_shard ogbn-papers100M 1-of-2": "-t 74 --mem 5120 --nodes=1 --ntasks=1 --cpus-per-task=4",
    "graph_shard ogbn-papers100M 2-of-2": "-t 74 --mem 5120 --nodes=1 --ntasks=1 --cpus-per-task=4",
    "graph_gather graph ogbn-papers100M": "-t 74 --mem 7052 --nodes=1 --ntasks=1 --cpus-per-task=1",
    "partition ogbn-papers100M 8": "-t 91 --mem 330190 --nodes=1 --ntasks=1 --cpus-per-task=1",
    "layout ogbn-papers100M 8": "-t 172 --mem 5120 --nodes=1 --ntasks=1 --cpus-per-task=4",
    # More than a day of work: the longest time that is requested.
    "aggregate ogbn-papers100M 8": "-t 1440 --mem 413362 --nodes=2 --ntasks=8 --cpus-per-task=1 --ntasks-per-node=4",
    "generate graph_natural products-like": "-t 60 --mem 50733 --nodes=1 --ntasks=1 --cpus-per-task=1",
    "order products-like": "-t 35 --mem 50733 --nodes=1 --ntasks=1 --cpus-per-task=4",
    "partition products-like 8": "-t 35 --mem 100964 --nodes=1 --ntasks=1 --cpus-per-task=1",
    "layout products-like 8": "-t 60 --mem 5120 --nodes=1 --ntasks=1 --cpus-per-task=4",
    "aggregate products-like 8": "-t 854 --mem 55693 --nodes=2 --ntasks=8 --cpus-per-task=1 --ntasks-per-node=4",
    "train products-like gcn halo 8 0": "-t 552 --mem 79204 --nodes=2 --ntasks=8 --cpus-per-task=1 --signal=USR1@120"
    " --ntasks-per-node=4",
}
_STAND_IN = """\
#!{python}
import json, os, re, sys
from pathlib import Path
calls = Path({calls!r})
cases = json.loads(os.environ.get("STAND_IN_CASES", "{{}}"))
name = Path(sys.argv[0]).name
options = dict(word.split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)

def setting(variable, job, default=None):
    return cases.get(job[1].get("dataset"), os.environ).get(variable, default)

def setting_line(variable):
    lines = setting(variable, job, "").splitlines() or [""]
    return lines[min(turn, len(lines) - 1)] + "\\n"

def submitted():
    return {{file.stem: json.loads(file.read_text()) for file in calls.glob("*.json")}}

left = calls / (options.get("--name", "") + ".left")
if name == "scancel" and "--name" in options:
    left.with_suffix(".cancelled").touch()
if name == "squeue" and options.get("--format") == "%i":
    jobs = left.read_text().split() if left.exists() else []
    if left.with_suffix(".cancelled").exists():
        jobs = jobs[1:]
        left.write_text("\\n".join(jobs))
    print("\\n".join(jobs))
elif name == "squeue":
    for number, job in submitted().items():
        state = setting("STAND_IN_STATE", job, "FAILED") if setting("STAND_IN_CODE", job) else "COMPLETED"
        print(f"{{number}}|{{state}}")
if name == "scontrol":
    print("MinJobAge =", os.environ.get("STAND_IN_AGE", "3600"), "sec")
if name == "sbatch" and int(sys.argv[sys.argv.index("--mem") + 1]) > int(os.environ.get("STAND_IN_MB", 10**9)):
    sys.exit("sbatch: error: Memory specification can not be satisfied")
if name == "sbatch":
    script = sys.stdin.read()
    rule, _, pairs = re.search(r"--target-jobs '?([^' ]+)", script)[1].partition(":")
    wildcards = dict(pair.split("=") for pair in pairs.split(",") if pair)
    output = {outputs!r}[rule].format(**wildcards)
    name = output.removeprefix("results/").rstrip("/").removesuffix(".jsonl").removesuffix(".json")
    benchmark = Path("results/benchmarks", name + ".jsonl")
    job, before = [rule, wildcards, sys.argv[1:], script], submitted()
    failing, turn = setting("STAND_IN_CODE", job), sum(earlier[:2] == job[:2] for earlier in before.values())
    for path in (Path(output), benchmark) if not failing else ():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(exist_ok=True) if path == Path(output) and output.endswith("/") else path.touch()
    number, part = 1000 + len(before), calls / f"{{os.getpid()}}.part"
    part.write_text(json.dumps(job))
    while True:
        try:
            os.link(part, calls / f"{{number}}.json")  # atomically, for a concurrent squeue
            break
        except FileExistsError:
            number += 1
    part.unlink()
    if failing:
        codes = failing.split()
        failing = codes[min(turn, len(codes) - 1)]
        log = Path(sys.argv[sys.argv.index("--output") + 1].replace("%j", str(number)))
        log.parent.mkdir(parents=True, exist_ok=True)
        text = f"Command 'mgg' returned non-zero exit status {{failing}}.\\nat least one job failed\\n"
        log.write_text(text + setting_line("STAND_IN_SLURM_LOG"))
        if setting("STAND_IN_LOG", job) is not None:
            log = Path("results/logs", name + ".log")
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(setting_line("STAND_IN_LOG"))
    print(number)
"""


class StandIns:
    """Stand-ins for Slurm's commands in a folder, and the calls of them."""

    def __init__(self, folder: Folder, scheme: str = "edge_balanced"):
        self.folder = folder
        self.calls = folder.path / "calls"
        self.programs = folder.path / "bin"
        for path in (self.calls, self.programs):
            path.mkdir()
        outputs = {rule: output.replace("SCHEME", scheme) for rule, output in OUTPUTS.items()}
        text = _STAND_IN.format(python=sys.executable, calls=str(self.calls), outputs=outputs)
        for name in COMMANDS:
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)

    def environment(self) -> dict[str, str]:
        """The variables of a login node of a cluster."""
        variables = self.folder.environment()
        return variables | {"PATH": f"{self.programs}:{variables['PATH']}"}

    def run(
        self,
        *arguments: str,
        profile: str = "slurm-cpu",
        overlay: str = "tiny.yaml",
        status: str | None = "squeue",
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run snakemake to its end, with short pauses; ``status``: the command for job states, None for the default."""
        options = ("--slurm-status-command", status) if status else ()
        command = self.folder.command(*arguments, *options, profile=profile, overlay=overlay)
        python, _, _, *rest = command
        run = self.folder.run_command([python, str(STAND_IN), *rest], self.environment() | (env or {}))
        run.said, run.stdout = run.stdout, plain(run.stdout)
        return run

    def submitted(self) -> dict[tuple[str, tuple[str, ...]], tuple[list[str], str]]:
        """Arguments of sbatch and the job's script, by rule and ``shown`` wildcards."""
        calls = [json.loads(file.read_text()) for file in sorted(self.calls.glob("*.json"))]
        return {(rule, shown(wildcards)): (arguments, script) for rule, wildcards, arguments, script in calls}

    def numbered(self, dataset: str | None = None) -> dict[int, list[str]]:
        """Arguments of sbatch by job number; only of jobs of ``dataset``, if given."""
        calls = {int(file.stem): json.loads(file.read_text()) for file in sorted(self.calls.glob("*.json"))}
        return {
            number: words
            for number, (_, wildcards, words, _) in calls.items()
            if dataset in (None, wildcards.get("dataset"))
        }

    def amounts(self, option: str, dataset: str | None = None) -> list[int]:
        """The values of an option of sbatch, by job in order."""
        return [int(words[words.index(option) + 1]) for words in self.numbered(dataset).values()]

    def memory(self, dataset: str | None = None) -> list[int]:
        """The requested MB, by job in order."""
        return self.amounts("--mem", dataset)


def shown(wildcards: Mapping[str, str]) -> tuple[str, ...]:
    """The wildcards of a job, except recipe, place and run."""
    return tuple(value for name, value in wildcards.items() if name not in ("recipe", "place", "run"))


def asked(arguments: list[str]) -> str:
    """The resources that a job requests: sbatch's arguments without names, paths and constants."""
    words, skip = [], False
    for word in arguments:
        if skip or word in ("--parsable", "--export=ALL", "--no-requeue", "/dev/stdin"):
            skip = False
        elif word in ("--job-name", "--output", "--comment", "-D"):
            skip = True
        else:
            words.append(word)
    return " ".join(words)
