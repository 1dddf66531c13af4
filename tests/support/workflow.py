"""Runs the real snakemake, with the real mgg, in a folder of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import yaml

from support import forked

ROOT = Path(__file__).resolve().parents[2]

# Small enough that all stages take seconds, and with every kind of job: generated, one PE, several PEs, training.
TINY = {
    "graph": {"datasets": {"planted": {"scale": 0.05}}},
    "partition": {"pes": [1, 2], "quality_pes": [4]},
    "aggregate": {"techniques": ["halo"], "dims": [4], "warmup": 1, "iterations": 2},
    "train": {"datasets": ["planted"], "models": ["gcn"], "pes": [2], "epochs": 3},
}


class Folder:
    """A working folder with the default config and an overlay, ``tiny.yaml``."""

    #: Seconds after which a run counts as stuck.
    limit = 240

    def __init__(self, path: Path):
        self.path = path
        self.results = path / "results"
        shutil.copytree(ROOT / "config", path / "config")
        self.overlay(TINY)

    @classmethod
    def at(cls, path: Path) -> Self:
        """One that is there already."""
        there = cls.__new__(cls)
        there.path, there.results = path, path / "results"
        return there

    @property
    def programs(self) -> Path:
        """Programs that its jobs find first."""
        return self.path / "programs"

    def program(self, name: str, text: str) -> None:
        """Write one of ``programs``."""
        self.programs.mkdir(exist_ok=True)
        program = self.programs / name
        program.write_text(text)
        program.chmod(0o755)

    def overlay(self, values: dict, name: str = "tiny.yaml") -> Path:
        """Write a config file."""
        file = self.path / name
        file.write_text(yaml.safe_dump(values), encoding="utf-8")
        return file

    def command(
        self, *arguments: str, profile: str = "local", overlay: str | Sequence[str] | None = "tiny.yaml"
    ) -> list[str]:
        """The snakemake command line; of several overlays the last one counts."""
        base = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--nocolor"]
        overlays = [overlay] if isinstance(overlay, str) else overlay
        files = ["--configfile", *overlays] if overlays else []
        return [*base, "--profile", str(ROOT / "profiles" / profile), *files, *arguments]

    def environment(self, **changes: str) -> dict[str, str]:
        """No launcher's variables; ``programs`` first, then the installation under test."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PMI_", "SLURM_"))}
        path = os.pathsep.join([str(self.programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        return kept | {"PATH": path} | changes

    def run(self, *arguments: str, env: dict[str, str] | None = None, **options: str | Sequence[str] | None):
        """Run snakemake to its end; output and errors come together."""
        if "--dry-run" in arguments:
            words = self.command(*arguments, **options)[3:]
            return forked.run("snakemake", words, self.path, env or self.environment(), self.limit, merged=True)
        return self.run_command(self.command(*arguments, **options), env or self.environment())

    def run_command(self, command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command here to its end; output and errors come together."""
        return subprocess.run(
            command,
            cwd=self.path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=self.limit,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen:
        """Start snakemake and leave it running; its output goes to ``run.log``."""
        with (self.path / "run.log").open("w") as log:
            return subprocess.Popen(
                self.command(*arguments),
                cwd=self.path,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


def job_counts(output: str) -> dict[str, int]:
    """The table of jobs that snakemake prints."""
    lines = output[output.index("Job stats:") :].splitlines()[3:]
    rows = [line.split() for line in lines[: lines.index("")]]
    return {name: int(count) for name, count in rows}
