"""Loops of a model's vertex programs with one thread and with several: python benchmarks/cpu_threads.py LAYOUT.

An epoch on the one PE of LAYOUT, a layout folder, shows which loops run, with what; then each runs again with every
number of threads in turn, and must give the same bits. Times are the lowest of all rounds, summed over the loops. The
last line is what the machine gives threads at that time: the same of sums in registers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numba
import numpy as np

import mgg
from mgg.kernel.threads import deal, threads_per_pe
from mgg.vertex.cpu import host


@numba.njit(nogil=True)
def spin(steps: int) -> float:
    """A sum in registers."""
    total = 0.1
    for _ in range(steps):
        total = total * 1.0000001 + 1e-9
    return total


def loops_of(layout: Path, model: str) -> list[Callable[[], Any]]:
    """The loops of an epoch: those of its step and of its evaluation."""
    calls: list[Callable[[], Any]] = []
    run = host.run

    def kept(*given: Any) -> list[np.ndarray]:
        calls.append(lambda: run(*given))
        return run(*given)

    with patch.object(host, "run", kept):
        mgg.train(layout, model=model, epochs=1, technique="local", backend="simulated")
    return calls


def idle() -> list[np.ndarray]:
    """Hand out sums in registers."""
    deal(np.arange(257), lambda first, last: spin(31_250 * (last - first)) and None)
    return []


def lowest(calls: list[Callable[[], Any]], threads: int, rounds: int) -> np.ndarray:
    """Lowest seconds of each call with one thread and with ``threads``, which take turns, [2, calls]."""
    least = np.full((2, len(calls)), np.inf)
    for _ in range(rounds):
        for place, call in enumerate(calls):
            found = []
            for way, count in enumerate((1, threads)):
                with threads_per_pe(count, 1):
                    start = time.perf_counter()
                    found.append(call())
                    least[way, place] = min(least[way, place], time.perf_counter() - start)
            for one, several in zip(*found, strict=True):
                np.testing.assert_array_equal(one, several)
    return least


@click.command()
@click.argument("layout", type=click.Path(path_type=Path))
@click.option("--model", default="gat", show_default=True)
@click.option("--threads", type=click.IntRange(2), default=2, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=100, show_default=True)
def main(layout: Path, model: str, threads: int, rounds: int) -> None:
    """Run, compare bits, time, and print milliseconds and ratios."""
    spin(1)
    least = 1e3 * lowest([*loops_of(layout, model), idle], threads, rounds)
    for name, (one, several) in ((model, least[:, :-1].sum(1)), ("machine", least[:, -1])):
        click.echo(f"{name}: {one:.2f} ms, {threads} threads {several:.2f}, ratio {one / several:.2f}")


if __name__ == "__main__":
    main()
