"""What a job of a workflow costs beside its own work: python benchmarks/jobs.py [--jobs 200] -- OPTIONS.

Snakemake runs, with these options, so many jobs that do nothing but write a file. Prints the seconds, how many outputs
there are and how often they were made. On the cluster of ``tests/slurm/slurm_cluster.py``:
``--program tests/slurm/quick_snakemake.py -- --profile profiles/slurm-cpu --slurm-status-command squeue``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

_SNAKEFILE = """\
rule all:
    input: expand("out/{{number}}", number=range({jobs}))
rule tiny:
    output: "out/{{number}}"
    resources: mem_mb=100, runtime=5
    shell: "echo $$ >> runs/{{wildcards.number}}; echo done > {{output}}"
"""


def overhead(jobs: int, options: list[str]) -> str:
    """Seconds of a workflow of ``jobs`` tiny jobs, and whether each ran once."""
    with tempfile.TemporaryDirectory(prefix="mgg-jobs-", dir=Path.cwd()) as name:
        folder = Path(name)
        (folder / "runs").mkdir()
        (folder / "Snakefile").write_text(_SNAKEFILE.format(jobs=jobs))
        started = time.perf_counter()
        subprocess.run([*options, "--directory", name, "--snakefile", str(folder / "Snakefile")], check=True)
        seconds = time.perf_counter() - started
        made = len(list((folder / "out").iterdir()))
        runs = sum(len(file.read_text().splitlines()) for file in (folder / "runs").iterdir())
    return f"{jobs} jobs: {seconds:.1f} s, {seconds / jobs:.2f} s a job; {made} outputs, {runs} runs"


@click.command()
@click.option("--jobs", type=click.IntRange(1), default=200, show_default=True)
@click.option("--program", default="", help="a script in place of python -m snakemake")
@click.argument("options", nargs=-1, required=True, metavar="SNAKEMAKE_OPTIONS...")
def main(jobs: int, program: str, options: tuple[str, ...]) -> None:
    """Time so many tiny jobs under OPTIONS of snakemake."""
    command = [sys.executable, *([program] if program else ["-m", "snakemake"])]
    click.echo(overhead(jobs, [*command, "--quiet", "all", "--nocolor", *options]))


if __name__ == "__main__":
    main()
