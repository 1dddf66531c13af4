"""Run programs on MPI ranks of this Python."""

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
    """Run ``python arguments`` on ``ranks`` MPI ranks, by the mpiexec beside this Python, else the one on $PATH.

    Args:
        ranks: number of ranks.
        arguments: of Python.
        timeout: seconds.
        under: a command that starts each rank, such as a tool that watches it.
        cwd: working folder, by default that of this process.
        environment: variables.

    Returns:
        The ended job; its output has no escape sequences, which Open MPI prints even without a terminal.
    """
    done = subprocess.run(
        mpi_command(ranks, arguments, under),
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


def succeeded(ranks: int, arguments: list[str], **options: Any) -> subprocess.CompletedProcess:
    """As ``mpiexec``, and check that the job ends with exit code 0."""
    done = mpiexec(ranks, arguments, **options)
    assert done.returncode == 0, done.stderr
    return done


@dataclass(frozen=True)
class TimedOutput:
    """The output and exit code of a job of ranks.

    Attributes:
        code: exit code of mpiexec.
        lines: the output by line, with the seconds from the line to the end of the job.
    """

    code: int
    lines: list[tuple[str, float]]

    @property
    def output(self) -> str:
        """All lines."""
        return "".join(line for line, _ in self.lines)

    def find(self, pattern: str) -> tuple[str, float]:
        """The first line with ``pattern``, and the seconds that the job lasted after it."""
        matches = [entry for entry in self.lines if re.search(pattern, entry[0])]
        assert matches, f"no line with {pattern!r}:\n{self.output}"
        return matches[0]


def run_timed(ranks: int, arguments: list[str], *, timeout: float = 90, **environment: str) -> TimedOutput:
    """As ``mpiexec``, for ranks that end with an error: records when each line was printed."""
    lines: list[tuple[str, float]] = []
    job = _start(mpi_command(ranks, arguments), environment)

    def listen() -> None:
        assert job.stdout is not None
        with job.stdout:
            lines.extend((line, time.monotonic()) for line in job.stdout)

    # A rank that does not end keeps the pipe open, and this thread alive.
    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        code = job.wait(timeout)
    except subprocess.TimeoutExpired:
        job.terminate()
        raise
    end = time.monotonic()
    listener.join(5)
    return TimedOutput(code, [(line, max(0.0, end - then)) for line, then in lines])


def run_with_progress(
    ranks: int, arguments: list[str], *, silence: float = 180, under: Sequence[str] = (), before: Sequence[str] = (),
    **environment: str,
) -> tuple[int, str]:  # fmt: skip
    """As ``mpiexec``, for ranks that report progress: ended only if they print nothing for ``silence`` seconds.

    So a job that makes progress may take as long as a slow machine needs. The command ``before`` starts the launcher.

    Returns:
        The exit code, and the output.

    Raises:
        AssertionError: nothing was printed for so long.
    """
    job = _start([*before, *mpi_command(ranks, arguments, under)], environment)
    output: list[str] = []
    assert job.stdout is not None
    lines: queue.Queue[str] = queue.Queue()
    listener = threading.Thread(target=lambda: [*map(lines.put, job.stdout or ()), lines.put("")], daemon=True)
    listener.start()
    try:
        while not output or output[-1]:  # an empty line is the end
            output.append(lines.get(timeout=silence))
    except queue.Empty:
        job.terminate()
        raise AssertionError(f"no output for {silence:g} s after:\n{''.join(output)}") from None
    return job.wait(silence), "".join(output)


def _start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start a command whose output and errors come together."""
    return subprocess.Popen(
        command, env=changed_environment(environment), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def mpi_command(ranks: int, arguments: list[str], under: Sequence[str] = ()) -> list[str]:
    """The command line by which ``mpiexec`` runs ``python arguments`` on ranks."""
    beside = Path(sys.executable).with_name("mpiexec")
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert launcher, "no mpiexec: pip install mpich"
    return [launcher, "-n", str(ranks), *under, sys.executable, *arguments]


def changed_environment(changes: dict[str, str]) -> dict[str, str]:
    """This process's environment with ``changes``, for a process that imports from ``tests``.

    PYTHONUNBUFFERED is left out: lines would be written in pieces, mixed with those of other ranks.
    """
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return kept | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)} | changes
