"""Run the real snakemake, with the real mgg, in a folder of its own."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from mgg.config import Config, validate
from support.ranks import forked

ROOT = Path(__file__).resolve().parents[3]

#: So small that all stages take seconds, with every kind of job: generated graph, one PE, several PEs, training.
TINY = {
    "graph": {"datasets": {"planted": {"scale": 0.05}}},
    "partition": {"pes": [1, 2], "quality_pes": [4]},
    "aggregate": {"techniques": ["halo"], "dims": [4], "warmup": 1, "iterations": 2},
    "train": {"datasets": ["planted"], "models": ["gcn"], "pes": [2], "epochs": 3},
}


#: Folders of results with an output per data set; those with one per number of PEs, too.
STAGES = (
    "retrieve", "graph", "graph_natural", "graph_scatter", "graph_shard", "partition", "layout", "tune", "describe",
    "predict", "aggregate", "train",
)  # fmt: skip
SPLIT = ("partition", "layout", "tune", "aggregate", "train")


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
        """An existing working folder."""
        folder = cls.__new__(cls)
        folder.path, folder.results = path, path / "results"
        return folder

    def made(self, output: str) -> Path:
        """The only output that matches a plain name: see ``pattern``."""
        (path,) = made(self.results, output)
        return path

    def names(self, **options: str | Sequence[str] | None) -> dict[str, str]:
        """The outputs of a dry run's jobs: plain name -> path in the working folder."""
        words = Folder.command(self, "--dry-run", **options)[3:]
        text = forked.run("snakemake", words, self.path, self.environment(), self.limit, merged=True).stdout
        paths = [path for line in re.findall(r"^    output: (.*)$", text, re.MULTILINE) for path in line.split(", ")]
        return {plain(path): path for path in paths}

    @property
    def programs(self) -> Path:
        """A folder of programs that comes first on the $PATH of jobs."""
        return self.path / "programs"

    def program(self, name: str, text: str) -> None:
        """Write an executable into ``programs``."""
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
        """The snakemake command line; the last of several overlays takes precedence."""
        base = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--nocolor"]
        overlays = [overlay] if isinstance(overlay, str) else overlay
        files = ["--configfile", *overlays] if overlays else []
        return [*base, "--profile", str(ROOT / "profiles" / profile), *files, *arguments]

    def environment(self, **changes: str) -> dict[str, str]:
        """Variables without a launcher's; $PATH begins with ``programs`` and the installation under test."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PMI_", "SLURM_"))}
        path = os.pathsep.join([str(self.programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        return kept | {"PATH": path} | changes

    def run(self, *arguments: str, env: dict[str, str] | None = None, **options: str | Sequence[str] | None):
        """Run snakemake to its end; output and errors come together, with plain names of outputs."""
        if "--dry-run" in arguments:
            words = self.command(*arguments, **options)[3:]
            run = forked.run("snakemake", words, self.path, env or self.environment(), self.limit, merged=True)
        else:
            run = self.run_command(self.command(*arguments, **options), env or self.environment())
        run.said, run.stdout = run.stdout, plain(run.stdout)
        return run

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


def settings_of(*overlays: Mapping[str, Any] | str) -> Config:
    """The checked config: the default one with overlays, values or files of the checkout; raises InputError."""
    from snakemake.utils import update_config

    from mgg.workflow.checks import check_names
    from mgg.workflow.plan import replace_datasets

    values = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
    read = [yaml.safe_load((ROOT / each).read_text()) if isinstance(each, str) else dict(each) for each in overlays]
    for overlay in read:
        update_config(values, overlay)
    replace_datasets(values, read)
    settings = validate(values)
    check_names(settings)
    return settings


_MEASURED = ("tune", "aggregate", "train")
_RUN = r"[0-9a-f]{8}(?:-n\d+)?"


def pattern(output: str) -> str:
    """The glob pattern of a plain name such as aggregate/digits/p2.jsonl, for any recipe, place and options."""
    words = output.split("/")
    at = next(index for index, word in enumerate(words) if word in STAGES)
    stage, name, *rest = words[at:]
    stem, dot, ending = name.partition(".j" if name.endswith(".jsonl") else ".l" if name.endswith(".log") else "/")
    found = [*words[:at], stage, *["*"][: stage in _MEASURED]]
    if stage == "predict":
        return "/".join([*found, f"{stem}@*", f"*{dot}{ending}"])
    found.append(name if stage == "retrieve" else f"{stem}@*{dot}{ending}")
    if stage in _MEASURED:
        file, dot, ending = rest[0].partition(".")
        rest = [f"{file}-*{dot}{ending}", *rest[1:]]
    return "/".join([*found, *(["*"] if stage in SPLIT and rest else []), *rest])


def made(results: Path, output: str) -> list[Path]:
    """The outputs, logs or benchmarks below ``results`` that match a plain name: see ``pattern``."""
    return sorted(path for path in results.glob(pattern(output)) if path.suffix != ".checkpoint")


def plain(text: str) -> str:
    """``text`` with outputs under their plain names, such as results/aggregate/digits/p2.jsonl."""
    for regex, replacement in (
        (r"env MGG_PLACE=\S+ +", ""),
        (r"\b(?:place|recipe|run)=[\w.@-]+(?:, |$)", ""),
        (r"\b(tune|aggregate|train)/(?:local|slurm)-[\w.-]+/", r"\1/"),
        (r"@(?:[a-z0-9.]+-)*[0-9a-f]{8}\b", ""),
        (r"/[a-z_]+-w\d+-d\d+(?=/)", ""),
        (rf"/[a-z_]+-w\d+-d\d+-{_RUN}(?=\.)", ""),
        (rf"((?:/|-)[ps]\d+)-{_RUN}\b", r"\1"),
    ):
        text = re.sub(regex, replacement, text, flags=re.MULTILINE)
    return text


def job_counts(output: str) -> dict[str, int]:
    """The number of jobs by rule, from snakemake's table."""
    lines = output[output.index("Job stats:") :].splitlines()[3:]
    rows = [line.split() for line in lines[: lines.index("")]]
    return {name: int(count) for name, count in rows}
