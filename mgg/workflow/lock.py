"""Only one live run per results folder. It ends the jobs of killed runs and removes their half-written files.

Snakemake's own lock outlives a killed run, so the profiles switch it off.
"""

from __future__ import annotations

import atexit
import fcntl
import math
import os
import socket
import threading
from pathlib import Path
from typing import IO

from snakemake.logging import logger

from mgg import heartbeat
from mgg.errors import MggError
from mgg.files import check_writable, remove_leftovers
from mgg.workflow import refuse
from mgg.workflow.slurm import end_jobs_of, end_own_jobs

#: Prefix in the lock's file before the name of the holder's Slurm jobs.
SLURM_RUN = "Slurm run "


def claim(folder: str, slurm_run: str) -> IO[str]:
    """Hold FOLDER/.lock until this process ends in any way; refuse if another process holds it.

    ``slurm_run`` is the name of this run's Slurm jobs, '' without any. The caller keeps the file: closing it would
    release the lock.

    A POSIX record lock belongs to this process alone: no child inherits it, and the system drops it with the process.
    """
    path = Path(folder, ".lock")
    file = opened(path)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        holder = file.readline().strip() or "unknown process"
        refuse(f"{folder}: another run is working here ({holder}); wait for it or end it, then run this again")
    except OSError as error:
        logger.warning(f"{path}: this file system has no locks ({error.strerror}): start one run at a time")
        return file
    holder, *lines = file.read().splitlines() or [""]
    refuse_live(folder, file, holder)
    left = [line.removeprefix(SLURM_RUN) for line in lines if line.startswith(SLURM_RUN)]
    sign(file, *left)
    beating = heartbeat.beat(file, owner())
    for run in left:
        end_jobs_of(run, folder)
    remove_leftovers(folder)
    sign(file, slurm_run)
    atexit.register(leave, folder, file, slurm_run, beating)
    return file


def opened(path: Path) -> IO[str]:
    """Open the lock's file; refuse a results folder where it cannot be made, which a dry run does not check."""
    try:
        check_writable(path.absolute())
        # Do not touch it: its age shows whether its last holder lives.
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+", encoding="utf-8")
    except MggError as error:
        refuse(f"results: {error}", error.exit_code)
    except OSError as error:
        refuse(f"results: {path}: cannot be written: {error.strerror}")


def refuse_live(folder: str, file: IO[str], holder: str) -> None:
    """Refuse if a process of another host touched the file recently: locks may work on one host only."""
    _, on, host = holder.partition(" on ")
    if not on or host == socket.gethostname():
        return
    try:
        silent = heartbeat.silence(file, folder)
    except OSError as error:
        refuse(f"{folder}: cannot be written: {error.strerror}", 3)
    if silent < heartbeat.SILENT:
        refuse(
            f"{folder}: {holder} was working here {max(0, silent):.0f} s ago; wait for that run or end it there, and if"
            f" it was killed or its host is down, run this again in {math.ceil(heartbeat.SILENT - silent)} s",
            3,
        )


def owner() -> str:
    """Return the first line of the lock's file while this process holds it."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def sign(file: IO[str], *runs: str) -> None:
    """Write the holder into the lock's file, and the names of the Slurm jobs left behind if this process is killed."""
    lines = [owner(), *(f"{SLURM_RUN}{run}" for run in runs if run)]
    file.seek(0)
    file.write("".join(f"{line}\n" for line in lines))
    file.flush()
    file.truncate()  # last, so that a full disk does not erase the previous name
    os.fsync(file.fileno())


def leave(folder: str, file: IO[str], run: str, beating: threading.Event) -> None:
    """At the end of a run that is not killed, clean up after its jobs on other nodes and remove its name."""
    beating.set()
    if heartbeat.first_line(file) != owner():
        return  # a run that considered this one dead has taken over
    if not run or end_own_jobs(run):
        remove_leftovers(folder)
        file.truncate(0)
