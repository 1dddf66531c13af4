"""The table of faults and what a job of the workflow costs beside its own work: python benchmarks/faults.py RECORD.

RECORD is what the fault tests wrote (`make test-faults`), JSON lines: fault and case of each that was injected; then,
once weights and tables were those of an undisturbed run, the same with the seconds of the command that recovered and
what it had to compute again. Rows of Markdown go to standard output.

``--jobs N -- OPTIONS`` measures instead what Snakemake takes, with these options, for N jobs that do nothing but write
a file, and counts their outputs and how often they ran. On the cluster of ``tests/slurm/slurm_cluster.py``:
``--jobs 200 --program tests/slurm/quick_snakemake.py -- --profile profiles/slurm-cpu --slurm-status-command squeue``.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
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


def rows(records: Sequence[Path]) -> list[str]:
    """A row a fault: injected and recovered, the slowest recovery, the most that was lost."""
    found: dict[str, list[dict]] = defaultdict(list)
    for line in [line for record in records for line in record.read_text(encoding="utf-8").splitlines()]:
        each = json.loads(line)
        found[each["fault"]].append(each)
    table = ["| fault | injected | recovered | slowest, s | median, s | most work lost |", "| --- " * 6 + "|"]
    for fault, each in found.items():
        done = [one for one in each if "seconds" in one]
        seconds = [one["seconds"] for one in done] or [math.nan]
        lost = max((one["lost"] for one in done), key=lost_seconds, default="")
        times = f"{len(each) - len(done)} | {len(done)} | {max(seconds):.1f} | {statistics.median(seconds):.1f}"
        table.append(f"| {fault} | {times} | {lost or '-'} |")
    return table


def lost_seconds(lost: str) -> float:
    """Seconds in ``3 epochs, 0.12 s`` or ``0.5 s``; 0 where it says no number."""
    words = lost.removesuffix(" s").split()
    try:
        return float(words[-1])
    except (IndexError, ValueError):
        return 0.0


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
@click.option("--jobs", type=click.IntRange(1), help="measure the overhead of so many tiny jobs instead")
@click.option("--program", default="", help="a script in place of python -m snakemake")
@click.argument("arguments", nargs=-1, required=True)
def main(jobs: int | None, program: str, arguments: tuple[str, ...]) -> None:
    """Rows of Markdown of a RECORD; or with --jobs a line of what options of snakemake make of tiny jobs."""
    if jobs:
        command = [sys.executable, *([program] if program else ["-m", "snakemake"])]
        click.echo(overhead(jobs, [*command, "--quiet", "all", "--nocolor", *arguments]))
    else:
        click.echo("\n".join(rows([Path(name) for name in arguments])))


if __name__ == "__main__":
    main()
