"""What a job of a workflow costs beside its own work: python benchmarks/jobs.py [--jobs 200] -- OPTIONS.

Snakemake runs, with these options, so many jobs that do nothing but write a file. Prints the seconds, how many outputs
there are and how often they were made; ends with code 4 unless each was made once. On the cluster of
``tests/system/slurm/slurm_cluster.py``:
``--program tests/system/slurm/quick_snakemake.py -- --profile profiles/slurm-cpu --slurm-status-command squeue``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click
from common import run

from mgg.errors import CheckError, MggError

_SNAKEFILE = """\
rule all:
    input: expand("out/{{number}}", number=range({jobs}))
rule tiny:
    output: "out/{{number}}"
    resources: mem_mb=100, runtime=5
    shell: "echo $$ >> runs/{{wildcards.number}}; echo done > {{output}}"
"""


def overhead(jobs: int, options: list[str]) -> str:
    """Seconds of a workflow of ``jobs`` tiny jobs.

    Raises:
        CheckError: an output is missing, or a job ran twice or not at all.
    """
    with tempfile.TemporaryDirectory(prefix="mgg-jobs-", dir=Path.cwd()) as name:
        folder = Path(name)
        (folder / "runs").mkdir()
        (folder / "Snakefile").write_text(_SNAKEFILE.format(jobs=jobs))
        started = time.perf_counter()
        command = [*options, "--directory", name, "--snakefile", str(folder / "Snakefile")]
        code = subprocess.run(command, check=False).returncode
        seconds = time.perf_counter() - started
        made = {file.name for file in folder.glob("out/*")}
        runs = Counter({file.name: len(file.read_text().splitlines()) for file in folder.glob("runs/*")})
    found = f"{len(made)} outputs, {runs.total()} runs"
    if code:
        raise MggError(f"Snakemake ended with code {code}: {found}")
    wanted = {str(number) for number in range(jobs)}
    wrong = sorted((wanted ^ made) | {number for number in wanted | set(runs) if runs[number] != 1}, key=int)
    if wrong:
        raise CheckError(f"{jobs} jobs, but {found}; not made once: {', '.join(wrong[:5])}")
    return f"{jobs} jobs: {seconds:.1f} s, {seconds / jobs:.2f} s a job; {found}"


@click.command()
@click.option("--jobs", type=click.IntRange(1), default=200, show_default=True)
@click.option("--program", default="", help="a script in place of python -m snakemake")
@click.argument("options", nargs=-1, required=True, metavar="SNAKEMAKE_OPTIONS...")
def main(jobs: int, program: str, options: tuple[str, ...]) -> None:
    """Time so many tiny jobs under OPTIONS of snakemake."""
    command = [sys.executable, *([program] if program else ["-m", "snakemake"])]
    click.echo(overhead(jobs, [*command, "--quiet", "all", "--nocolor", *options]))


if __name__ == "__main__":
    run(main)
