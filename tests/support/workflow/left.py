"""What a run left behind: processes that work in its folder, and unfinished files."""

from __future__ import annotations

import time
from pathlib import Path

import psutil


def processes(folder: Path) -> dict[int, str]:
    """Live processes that work in a folder, with their command lines."""
    return {
        process.pid: " ".join(process.info["cmdline"] or ())
        for process in psutil.process_iter(["cwd", "cmdline", "status"])
        if process.info["cwd"] == str(folder) and process.info["status"] != psutil.STATUS_ZOMBIE
    }


def wait_until_quiet(folder: Path, seconds: float = 30) -> None:
    """Wait until no process works in a folder."""
    deadline = time.monotonic() + seconds
    while left := processes(folder):
        assert time.monotonic() < deadline, f"still running: {list(left.values())}"
        time.sleep(0.05)


def half_written(folder: Path) -> list[Path]:
    """Files that a completed run must not leave: parts, replaced files, checkpoints."""
    return [path for path in folder.rglob("*") if path.name.endswith((".part", ".old", ".checkpoint"))]
