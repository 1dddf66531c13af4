"""Ctrl-C at every step of writing an output: what was there or what comes in its place is there, and nothing else."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from mgg import files

KIND = files.Kind("marker", ("*.bin",))
#: Where Ctrl-C comes: before any of their lines.
TRACED = {files.__file__, contextlib.__file__, shutil.__file__}


def write_folder(path: Path) -> None:
    with files.replace_folder(path, KIND) as folder:
        files.write_file(folder / "new.bin", b"new")
        files.write_file(folder / "marker", b"")


def fail_folder(path: Path) -> None:
    with contextlib.suppress(RuntimeError), files.replace_folder(path, KIND) as folder:
        files.write_file(folder / "new.bin", b"half")
        raise RuntimeError


def write_text(path: Path) -> None:
    files.write_text(path / "new.bin", "new")


def check(path: Path) -> None:
    files.check_output(path, KIND)


#: What a command does, and what its output then holds beside what was there.
WAYS = {
    write_folder: {"marker", "new.bin"},
    fail_folder: None,
    write_text: {"marker", "old.bin", "new.bin"},
    check: None,
}


def pressed_at(step: int, write: Callable[[Path], None], path: Path) -> int:
    """Exit code of a process that writes and hears Ctrl-C before its STEP-th line: 130, or 0 where it has fewer."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = [step]

    def tracer(frame, event, argument):
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                signal.raise_signal(signal.SIGINT)
        return tracer

    code = 0
    try:
        sys.settrace(tracer)
        write(path)
        sys.settrace(None)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
        code = 1
    files._discard_all()  # as the end of the process does; pytest's is no matter here
    os._exit(code)


@pytest.mark.slow
@pytest.mark.parametrize("write", WAYS)
def test_ctrl_c_leaves_the_old_or_the_new_folder(write, tmp_path):
    old, new = {"marker", "old.bin"}, WAYS[write]
    seen = set()
    for step in count(1):
        folder = tmp_path / str(step)
        (folder / "out").mkdir(parents=True)
        for name in old:
            (folder / "out" / name).write_bytes(b"")
        code = pressed_at(step, write, folder / "out")
        assert [entry.name for entry in folder.iterdir()] == ["out"], step
        found = {entry.name for entry in (folder / "out").iterdir()}
        assert found in (old, new), step
        seen.add((code, found == old))
        if code == 0:
            break
    assert step > 30 and {each for each, _ in seen} == {0, 130}
    # Early ones keep what was there.
    assert {kept for each, kept in seen if each == 130} == ({True, False} if new else {True})


#: A process that hears Ctrl-C once more before the first one's cleaning has begun.
TWICE = """
import sys
from pathlib import Path
from mgg import files
real, calls = files._undisturbed, []
def interrupted():
    calls.append(1)
    if len(calls) == 1:
        raise KeyboardInterrupt
    return real()
files._undisturbed = interrupted
try:
    with files.replace_folder("out", files.Kind("marker")) as folder:
        (folder / "half").touch()
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print([path.name.endswith(".part") for path in Path().iterdir()])
"""


def test_leftovers_of_a_second_ctrl_c_are_removed_at_exit(tmp_path):
    done = subprocess.run([sys.executable, "-c", TWICE], check=False, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("[True]\n", "")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def default_handler():
    """Python's own, whatever commands that ran in this process have left."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_for_the_rename(default_handler):
    done = []
    with pytest.raises(KeyboardInterrupt), files._undisturbed():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append(True)
    assert done and signal.getsignal(signal.SIGINT) is signal.default_int_handler
