"""Compare options of a command by turns: python benchmarks/compare.py OUT --way "..." --way "..." -- COMMAND.

Every round runs COMMAND with the options of each ``--way`` and an ``--out`` of its own, so that other load on the
machine affects all of them: ``--way "--side mgg" --way "--side pyg" -- mgg train LAYOUT --model gcn --epochs 9``, or
``mpiexec -n 2 mgg aggregate ...``, or ``--way "--order rabbit" --way "--order rcm" -- mgg graph FILE``. The output:
seconds, processor seconds and peak memory of the whole command (the largest of its processes), with ``mgg train`` also
the median milliseconds per epoch after ``--skip`` epochs, and with ``mgg aggregate`` those of each product: median,
least and most of the rounds, and the median of the rounds' ratios to the first way. Trainings must begin with the same
loss, as all sides do with the same seed. OUT gets compare.jsonl, a line per run, and the outputs of the last round.
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


def figures(out: Path, skip: int) -> tuple[dict[str, float], float | None]:
    """Milliseconds from the records in a command's ``--out``, and the first loss of a training."""
    if (out / "run.json").exists():
        _, epochs = read_run(out)
        return {"epoch, ms": 1e3 * float(np.median([each.seconds for each in epochs[skip:]]))}, epochs[0].loss
    if out.is_dir():
        return {}, None
    records = enumerate(read_lines(out, AggregateRecord), 1)  # by number: ways may be techniques or types
    return {f"product {number}, D={each.dim}, ms": 1e3 * each.median for number, each in records}, None


def measured(command: list[str], out: Path, skip: int) -> tuple[dict[str, float], float | None]:
    """Run a command; returns its figures and first loss. Raises MggError if it fails."""
    started = time.perf_counter()
    child = subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - started
    if code := os.waitstatus_to_exitcode(status):
        raise MggError(f"{shlex.join(command)}: ended with code {code}")
    resources = {
        "seconds": seconds,
        "processor, s": used.ru_utime + used.ru_stime,
        "peak, MB": used.ru_maxrss * 1024 / 1e6,
    }
    times, loss = figures(out, skip)
    return resources | times, loss


def table(runs: dict[str, list[dict[str, float]]]) -> str:
    """A row per figure and way: median, least and most, and the median ratio to the first way."""
    lines = [head("figure", "way", "median", "least", "most", "ratio")]
    first = next(iter(runs.values()))
    for name in first[0]:
        for way, rounds in runs.items():
            values = np.array([each.get(name, np.nan) for each in rounds])
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
    words = [*command[:at], sys.executable, "-m", "mgg.cli", *command[at + 1 :]] if at >= 0 else list(command)
    results, runs = Results(out / "compare.jsonl"), {way: list[dict[str, float]]() for way in ways}
    first_loss: float | None = None
    for number in range(rounds):
        for way in ways:
            path = out / str(ways.index(way))
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            values, loss = measured([*words, *shlex.split(way)], path, skip)
            runs[way].append(values)
            results.record(way=way, round=number, loss=loss, **values)
            first_loss = loss if first_loss is None else first_loss
            if loss is not None and first_loss is not None and not abs(loss / first_loss - 1) <= tolerance:
                raise CheckError(f"{way}: the first loss is {loss}, that of {ways[0]} {first_loss}")
    click.echo(table(runs))


if __name__ == "__main__":
    run(main)
