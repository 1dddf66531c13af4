"""One command of mgg in several ways, by turns: python benchmarks/compare.py OUT --way "..." --way "..." -- COMMAND.

Every round runs COMMAND with the options of each ``--way`` and an ``--out`` of its own, so that what else the machine
does meets all of them: ``--way "--side mgg" --way "--side pyg" -- mgg train LAYOUT --model gcn --epochs 9``, or
``mpiexec -n 2 mgg aggregate ...``, or ``--way "--order rabbit" --way "--order rcm" -- mgg graph FILE``. Told are the
seconds, processor seconds and peak memory of the whole command (the largest of its processes), with ``mgg train`` also
the median milliseconds of an epoch after ``--skip`` ones, and with ``mgg aggregate`` those of each product: medians
over the rounds, least and most, and the median of the rounds' ratios to the first way. Trainings have to begin with the
same loss, as those of any side do from the same seed. OUT gets compare.jsonl, a line a run, and what the last round
made.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
from common import OUT, Results, head, row, run

from mgg.errors import CheckError, MggError
from mgg.records import AggregateRecord, read_lines, read_run


def figures(made: Path, skip: int) -> tuple[dict[str, float], float | None]:
    """Milliseconds of what a command says in its ``--out``, and the first loss of a training."""
    if (made / "run.json").exists():
        _, epochs = read_run(made)
        return {"epoch, ms": 1e3 * float(np.median([each.seconds for each in epochs[skip:]]))}, epochs[0].loss
    if made.is_dir():
        return {}, None
    records = enumerate(read_lines(made, AggregateRecord), 1)  # by number: ways may be techniques or types
    return {f"product {number}, D={each.dim}, ms": 1e3 * each.median for number, each in records}, None


def once(command: list[str], made: Path, skip: int) -> tuple[dict[str, float], float | None]:
    """Run it, and say what it took; raises MggError where it fails."""
    started = time.perf_counter()
    child = subprocess.Popen([*command, "--out", str(made)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - started
    if code := os.waitstatus_to_exitcode(status):
        raise MggError(f"{shlex.join(command)}: ended with code {code}")
    taken = {"seconds": seconds, "processor, s": used.ru_utime + used.ru_stime, "peak, MB": used.ru_maxrss * 1024 / 1e6}
    described, loss = figures(made, skip)
    return taken | described, loss


def table(runs: dict[str, list[dict[str, float]]]) -> str:
    """A row a figure and way: median, least and most, and the median ratio to the first way."""
    lines = [head("figure", "way", "median", "least", "most", "ratio")]
    first = next(iter(runs.values()))
    for name in first[0]:
        for way, taken in runs.items():
            values = np.array([each.get(name, np.nan) for each in taken])
            ratio = float(np.median(values / [each[name] for each in first]))
            cells = (f"{each:.4g}" for each in (np.median(values), values.min(), values.max(), ratio))
            lines.append(row(name, way, *cells))
    return "\n".join(lines)


@click.command()
@OUT
@click.option("--way", "ways", multiple=True, required=True, help="options of one way; may be repeated")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="runs of each way")
@click.option("--skip", type=click.IntRange(0), default=2, show_default=True, help="first epochs that are not timed")
@click.option("--tolerance", default=1e-4, show_default=True, help="of first losses, relative")
@click.argument("command", nargs=-1, required=True)
def main(out: Path, ways: tuple[str, ...], rounds: int, skip: int, tolerance: float, command: tuple[str, ...]) -> None:
    """Run COMMAND in each way by turns, and print a table."""
    at = command.index("mgg") if "mgg" in command else -1
    given = [*command[:at], sys.executable, "-m", "mgg.cli", *command[at + 1 :]] if at >= 0 else list(command)
    results, runs = Results(out / "compare.jsonl"), {way: list[dict[str, float]]() for way in ways}
    begun: float | None = None
    for number in range(rounds):
        for way in ways:
            made = out / str(ways.index(way))
            shutil.rmtree(made) if made.is_dir() else made.unlink(missing_ok=True)
            taken, loss = once([*given, *shlex.split(way)], made, skip)
            runs[way].append(taken)
            results.record(way=way, round=number, loss=loss, **taken)
            begun = loss if begun is None else begun
            if loss is not None and begun is not None and not abs(loss / begun - 1) <= tolerance:
                raise CheckError(f"{way}: the first loss is {loss}, that of {ways[0]} {begun}")
    click.echo(table(runs))


if __name__ == "__main__":
    run(main)
