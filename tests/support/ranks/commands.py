"""Run ``mgg`` in the process of the tests, which has loaded the libraries and compiled the loops."""

import contextlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mgg.cli import group


def ended(*words: object) -> int:
    """The exit code of ``mgg`` with these arguments, in the folder and with the variables of this process."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setattr(signal, "signal", lambda *_: None)
        patch.setattr(sys, "argv", ["mgg", *map(str, words)])
        group.run()
    return end.value.code


def mgg(*words: object, cwd: Path, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``mgg`` in folder ``cwd`` with these variables, check its exit code, and return its output.

    The output lacks warnings of loggers, which pytest captures. For one PE pass ``--backend simulated``: otherwise MPI
    would start.
    """
    output, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        for name, value in environment.items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            exit_code = ended(*words)
    stdout, stderr = (stream.buffer.getvalue().decode() for stream in (output, errors))
    assert exit_code == code, stderr
    return subprocess.CompletedProcess(["mgg", *words], exit_code, stdout, stderr)


def files(folder: Path) -> list[str]:
    """Everything below a folder, as relative paths."""
    return sorted(os.path.relpath(path, folder) for path in folder.rglob("*"))
