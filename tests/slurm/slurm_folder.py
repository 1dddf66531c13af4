"""A working folder whose workflow runs through a Slurm cluster."""

import re
import subprocess
from pathlib import Path
from typing import ClassVar

from support.workflow import Folder


class SlurmFolder(Folder):
    """A working folder whose snakemake looks after its jobs every half second."""

    limit = 900
    #: The Snakemakes that ``start`` has started in any folder.
    started: ClassVar[list[subprocess.Popen]] = []

    def command(self, *arguments: str, **options) -> list[str]:
        python, _, _, *rest = super().command(*arguments, **options)
        quick = ("--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "10")
        program = str(Path(__file__).with_name("quick_snakemake.py"))
        return [python, program, *rest, *quick, "--slurm-status-command", "squeue"]

    def start(self, *arguments: str, profile: str = "slurm-cpu") -> subprocess.Popen:
        """Start snakemake and leave it running; its output goes to ``run.log``."""
        with (self.path / "run.log").open("w") as log:
            command = self.command(*arguments, profile=profile)
            run = subprocess.Popen(
                command, cwd=self.path, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.started.append(run)
        return run

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
