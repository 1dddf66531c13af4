"""Start MPI ranks of this Python."""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def mpiexec(
    ranks: int,
    arguments: list[str],
    *,
    timeout: float = 240,
    under: Sequence[str] = (),
    cwd: Path | None = None,
    **environment: str,
) -> subprocess.CompletedProcess:
    """Run ``python arguments`` on ``ranks`` MPI ranks; the mpiexec beside this Python comes first.

    Each rank is started by the command ``under``, where one is given: a tool that watches it. They work in ``cwd``, by
    default where this process does. Codes of terminals are left out of what they print: Open MPI sets colours back,
    also where there is no terminal.
    """
    done = subprocess.run(
        _command(ranks, arguments, under),
        cwd=cwd,
        env=changed_environment(environment),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    done.stdout = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    return done


def succeeded(ranks: int, arguments: list[str], **given: Any) -> subprocess.CompletedProcess:
    """As ``mpiexec``, for ranks that end with exit code 0."""
    done = mpiexec(ranks, arguments, **given)
    assert done.returncode == 0, done.stderr
    return done


@dataclass(frozen=True)
class Ended:
    """How a job of ranks ended.

    Attributes:
        code: exit code of mpiexec.
        lines: what the ranks said, with the seconds from then to the end of the job.
    """

    code: int
    lines: list[tuple[str, float]]

    @property
    def output(self) -> str:
        """All lines."""
        return "".join(line for line, _ in self.lines)

    def find(self, pattern: str) -> tuple[str, float]:
        """The first line with ``pattern``, and the seconds that the job lasted after it."""
        found = [entry for entry in self.lines if re.search(pattern, entry[0])]
        assert found, f"nobody said {pattern!r}:\n{self.output}"
        return found[0]


def watched(ranks: int, arguments: list[str], *, timeout: float = 90, **environment: str) -> Ended:
    """As ``mpiexec``, for ranks that end with an error: when each line was said is noted."""
    said: list[tuple[str, float]] = []
    job = subprocess.Popen(
        _command(ranks, arguments),
        env=changed_environment(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    def listen() -> None:
        assert job.stdout is not None
        with job.stdout:
            said.extend((line, time.monotonic()) for line in job.stdout)

    # A rank that stays keeps the pipe open: the thread is left to it.
    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        code = job.wait(timeout)
    except subprocess.TimeoutExpired:
        job.terminate()
        raise
    end = time.monotonic()
    listener.join(5)
    return Ended(code, [(line, max(0.0, end - then)) for line, then in said])


def moving(
    ranks: int, arguments: list[str], *, silence: float = 180, under: Sequence[str] = (), before: Sequence[str] = (),
    **environment: str,
) -> tuple[int, str]:  # fmt: skip
    """As ``mpiexec``, for ranks that tell how far they are: ended when they say nothing for ``silence`` seconds.

    However slow the machine is, who makes progress is left to come to an end. The launcher itself is started by the
    command ``before``.

    Returns:
        The exit code, and what the ranks said.

    Raises:
        AssertionError: they said nothing for so long.
    """
    job = subprocess.Popen(
        [*before, *_command(ranks, arguments, under)],
        env=changed_environment(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said: list[str] = []
    assert job.stdout is not None
    lines: queue.Queue[str] = queue.Queue()
    listener = threading.Thread(target=lambda: [*map(lines.put, job.stdout or ()), lines.put("")], daemon=True)
    listener.start()
    try:
        while not said or said[-1]:  # an empty line is the end
            said.append(lines.get(timeout=silence))
    except queue.Empty:
        job.terminate()
        raise AssertionError(f"nothing was said for {silence:g} s after:\n{''.join(said)}") from None
    return job.wait(silence), "".join(said)


def _command(ranks: int, arguments: list[str], under: Sequence[str] = ()) -> list[str]:
    beside = Path(sys.executable).with_name("mpiexec")
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert launcher, "no mpiexec: pip install mpich"
    return [launcher, "-n", str(ranks), *under, sys.executable, *arguments]


def changed_environment(changes: dict[str, str]) -> dict[str, str]:
    """This process's environment for another that imports from ``tests``, with ``changes``.

    Without PYTHONUNBUFFERED: a line would be written in pieces, between which those of other ranks come.
    """
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return kept | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)} | changes
