"""Stand-ins for Slurm's commands: sbatch writes down how it was called and makes what the job would have made."""

from __future__ import annotations

import json
import sys

from support.workflow import Folder

COMMANDS = ("sbatch", "squeue", "sacct", "sacctmgr", "scontrol", "sinfo", "scancel", "sshare")
#: Outputs of the rules that run on a cluster.
OUTPUTS = {
    "graph": "results/{made}/{dataset}/",
    "generate": "results/{made}/{dataset}/",
    "graph_scatter": "results/graph_scatter/{dataset}/",
    "graph_shard": "results/graph_shard/{dataset}/{scatteritem}/",
    "graph_gather": "results/{made}/{dataset}/",
    "order": "results/graph/{dataset}/",
    "partition": "results/partition/{dataset}/p{pes}/",
    "layout": "results/layout/{dataset}/p{pes}/",
    "aggregate": "results/aggregate/{dataset}/p{pes}.jsonl",
    "train": "results/train/{dataset}/{model}-{technique}-p{pes}-s{seed}/",
}

_STAND_IN = """\
#!{python}
import json, re, sys
from pathlib import Path
calls = Path({calls!r})
name = Path(sys.argv[0]).name
if name == "squeue":
    print("\\n".join(f"{{file.stem}}|COMPLETED" for file in calls.glob("*.json")))
if name == "scontrol":
    print("MinJobAge = 3600 sec")
if name == "sbatch":
    script = sys.stdin.read()
    rule, _, given = re.search(r"--target-jobs '?([^' ]+)", script)[1].partition(":")
    wildcards = dict(pair.split("=") for pair in given.split(",") if pair)
    output = {outputs!r}[rule].format(**wildcards)
    name = output.removeprefix("results/").rstrip("/").removesuffix(".jsonl")
    benchmark = Path("results/benchmarks", name + ".jsonl")
    for path in (Path(output), benchmark):
        path.parent.mkdir(parents=True, exist_ok=True)
    Path(output).mkdir(exist_ok=True) if output.endswith("/") else Path(output).touch()
    benchmark.touch()
    number = 1000 + len(list(calls.glob("*.json")))
    while True:
        try:
            with (calls / f"{{number}}.json").open("x") as file:
                json.dump([rule, wildcards, sys.argv[1:], script], file)
            break
        except FileExistsError:
            number += 1
    print(number)
"""


class StandIns:
    """A folder of stand-ins, and what they were called with."""

    def __init__(self, folder: Folder):
        self.folder = folder
        self.calls = folder.path / "calls"
        self.programs = folder.path / "bin"
        for made in (self.calls, self.programs):
            made.mkdir()
        text = _STAND_IN.format(python=sys.executable, calls=str(self.calls), outputs=OUTPUTS)
        for name in COMMANDS:
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)

    def environment(self) -> dict[str, str]:
        """That of a login node of a cluster."""
        found = self.folder.environment()
        return found | {"PATH": f"{self.programs}:{found['PATH']}"}

    def submitted(self) -> dict[tuple[str, tuple[str, ...]], tuple[list[str], str]]:
        """Arguments of sbatch and the job's script, by the rule and the values of its wildcards."""
        read = [json.loads(file.read_text()) for file in sorted(self.calls.glob("*.json"))]
        return {(rule, tuple(wildcards.values())): (arguments, script) for rule, wildcards, arguments, script in read}


def asked(arguments: list[str]) -> str:
    """What a job asks of Slurm: the arguments of sbatch without names, places and other things of the single run."""
    words, skip = [], False
    for word in arguments:
        if skip or word in ("--parsable", "--export=ALL", "--no-requeue", "/dev/stdin"):
            skip = False
        elif word in ("--job-name", "--output", "--comment", "-D"):
            skip = True
        else:
            words.append(word)
    return " ".join(words)
