"""A working folder whose workflow runs through a Slurm cluster."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar, NamedTuple

from support.programs import fault_program
from support.workflow import Folder

_NOTING = """\
#!{python}
import json, os, sys
from pathlib import Path
words, rank = sys.argv[1:], os.environ.get("PMI_RANK", "0")
out = words[words.index("--out") + 1] if "--out" in words else ""
where = [os.environ.get(name, "") for name in ("SLURMD_NODENAME", "SLURM_CPUS_PER_TASK", "CUDA_VISIBLE_DEVICES")]
with open({ranks!r}, "a") as file:
    file.write(json.dumps([out, int(rank), *where]) + "\\n")
if not {instead}:
    os.execv({real!r}, [{real!r}, *words])
if rank == "0":
    Path(out).touch() if out.endswith(".jsonl") else Path(out).mkdir(parents=True)
"""
_FAULT_LOG = """\
#!{python}
import os, sys
if not os.path.exists({log!r}):
    os.environ["FAULT_PAUSE"] = "{pause}"
os.environ["FAULT_LOG"] = {log!r}
os.execv({python!r}, [{python!r}, {program!r}, *sys.argv[1:]])
"""
_DYING = """\
#!/bin/sh
if [ "$PMI_RANK" = {rank} ] && [ ! -e {died} ]; then
    touch {died}
    {fault}
fi
exec {program} "$@"
"""
_HASTY = """\
#!{python}
import os, re, sys
os.execv({real!r}, ["srun", *(re.sub(r"^--wait=\\d+$", "--wait={seconds}", word) for word in sys.argv[1:])])
"""


class Rank(NamedTuple):
    """Where a rank runs: node, cores that its step gives it, and GPUs that it sees."""

    node: str
    cores: str
    gpus: str


class SlurmFolder(Folder):
    """A working folder whose snakemake looks after its jobs every half second."""

    limit = 900
    #: The Snakemakes that ``start`` has started in any folder.
    started: ClassVar[list[subprocess.Popen]] = []

    @property
    def epochs(self) -> Path:
        """What its trainings noted, see ``note_epochs``."""
        return self.programs / "epochs"

    def command(self, *arguments: str, **options) -> list[str]:
        python, _, _, *rest = super().command(*arguments, **options)
        quick = ("--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "10")
        program = str(Path(__file__).with_name("quick_snakemake.py"))
        return [python, program, *rest, *quick]

    def start(self, *arguments: str, profile: str = "slurm-cpu") -> subprocess.Popen:
        """Start snakemake and leave it running; its output goes to ``run.log``."""
        with (self.path / "run.log").open("w") as log:
            command = self.command(*arguments, profile=profile)
            run = subprocess.Popen(
                command, cwd=self.path, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.started.append(run)
        return run

    def note_ranks(self, instead: bool = False) -> None:
        """Have every ``mgg`` note where it runs, see ``ranks``; with ``instead`` it only makes its output, empty."""
        real = shutil.which("mgg", path=self.environment()["PATH"])
        values = {"ranks": str(self.programs / "ranks"), "real": real, "instead": instead, "python": sys.executable}
        self.program("mgg", _NOTING.format(**values))

    def note_epochs(self, pause: float) -> None:
        """Have every training note its epochs and checkpoints in ``epochs``; the first pauses in each epoch."""
        values = {"log": str(self.epochs), "pause": pause, "program": fault_program.__file__, "python": sys.executable}
        self.program("mgg", _FAULT_LOG.format(**values))

    def lose_rank(self, rank: int) -> None:
        """Have a rank die by SIGKILL once, before MPI starts."""
        self._disturb(rank, "kill -KILL $$")

    def lose_rank_in(self, epoch: int, rank: int, delay: float) -> None:
        """Have a rank die by SIGKILL once, so many seconds after it has begun an epoch; see ``note_epochs``."""
        self._disturb(rank, f"export FAULT='{rank} {epoch} {delay}'")

    def _disturb(self, rank: int, fault: str) -> None:
        """Have a rank run a line of shell once, before its ``mgg``."""
        program = (self.programs / "mgg").rename(self.programs / "living")
        self.program("mgg", _DYING.format(rank=rank, fault=fault, died=self.programs / "died", program=program))

    def hurry(self, seconds: int) -> None:
        """Have srun take so many seconds for the number of every ``--wait`` that it is given."""
        self.program("srun", _HASTY.format(python=sys.executable, real=shutil.which("srun"), seconds=seconds))

    def ranks(self, output: str) -> list[Rank]:
        """Where the ranks that made an output ran, in their order."""
        lines = [json.loads(line) for line in (self.programs / "ranks").read_text().splitlines()]
        return [Rank(*where) for out, _, *where in sorted(lines) if out == output]

    def jobs(self) -> dict[str, list[str]]:
        """What Slurm knows of this folder's jobs, by rule: a line of scontrol each."""
        lines = subprocess.run(
            ["scontrol", "-d", "-o", "show", "jobs"], capture_output=True, text=True, check=True
        ).stdout
        found: dict[str, list[str]] = {}
        for line in lines.splitlines():
            if f"WorkDir={self.path} " in line:
                rule = re.search(r"Comment=rule_(\w+?)(?:_wildcards|\s)", line)[1]
                found.setdefault(rule, []).append(line)
        return found
