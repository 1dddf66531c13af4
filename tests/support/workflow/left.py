"""What a run left behind: processes that work in its folder, and unfinished files."""

from __future__ import annotations

import time
from pathlib import Path


def processes(folder: Path) -> dict[int, str]:
    """Live processes that work in a folder, with their command lines."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            here = (process / "cwd").readlink()
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            if here == folder and state != "Z":
                found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return found


def wait_until_quiet(folder: Path, seconds: float = 30) -> None:
    """Wait until no process works in a folder."""
    deadline = time.monotonic() + seconds
    while left := processes(folder):
        assert time.monotonic() < deadline, f"still running: {list(left.values())}"
        time.sleep(0.05)


def half_written(folder: Path) -> list[Path]:
    """Files that a completed run must not leave: parts, replaced files, checkpoints."""
    return [path for path in folder.rglob("*") if path.name.endswith((".part", ".old", ".checkpoint"))]
