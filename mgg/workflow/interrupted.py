"""Ctrl-C always ends a run with one line and exit code 130; finished work is kept for the next run.

The terminal signals local jobs, and executors cancel theirs.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

from snakemake_interface_logger_plugins.common import LogEvent

from mgg.workflow import internals

#: Exit code after Ctrl-C, as in mgg.
INTERRUPTED = 130
# Raising inside these is unsafe. A just-started thread would be unknown to its pool, so Snakemake would stop the event
# loop that its job uses; and a loop keeps an exception from one of its steps and raises it again later.
UNBROKEN = {ThreadPoolExecutor.submit.__code__, asyncio.Handle._run.__code__}
#: Seconds until the next try.
POSTPONED = 0.02


class Interruption:
    """Notes whether and when Ctrl-C was pressed in this run."""

    def __init__(self, workflow: Any):
        self.workflow = workflow
        self.at: float | None = None
        self.reported = False

    def listen(self) -> None:
        """Make Ctrl-C end this process like an exit; for a KeyboardInterrupt Snakemake prints a traceback."""
        # Programs started in the background ignore it.
        if self.workflow.is_main_process and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self.hear)
            # The handler waits for the main thread; a separate thread notes the time of the signal at once.
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
            threading.Thread(target=self.note, args=[reader], daemon=True).start()
            atexit.register(self.tell, lambda line: print(line, file=sys.stderr, flush=True))

    def note(self, reader: int) -> None:
        """Note the time of the first signal: Python writes each signal's number to the pipe."""
        while self.at is None:
            if signal.SIGINT in os.read(reader, 1):
                self.at = time.time()

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Handle the first Ctrl-C. A second one is meant for the jobs: Snakemake waits for those still writing."""
        self.at = self.at or time.time()
        if unbroken(frame):
            signal.signal(signal.SIGALRM, self.hear)
            signal.setitimer(signal.ITIMER_REAL, POSTPONED)
            return
        for each in (signal.SIGINT, signal.SIGALRM):
            signal.signal(each, lambda *_: None)
        sys.exit(INTERRUPTED)

    def ended(self, record: logging.LogRecord) -> bool:
        """Return whether the interruption caused a job's failure."""
        return self.at is not None and record.created >= self.at

    def tell(self, say: Callable[[str], object]) -> None:
        """Print the next step once, after the jobs of this host have ended."""
        if self.at is not None and not self.reported:
            self.reported = True
            if here := internals.local_executor(self.workflow):
                here.cancel()
            say("Interrupted: run the same command again, it goes on where it stopped.")

    def shown(self, record: logging.LogRecord) -> bool:
        """Hide interrupted jobs' failures, which say nothing, from the display but not from Snakemake's log file."""
        ends = getattr(record, "event", None) in (LogEvent.JOB_ERROR, LogEvent.ERROR)
        return not (ends and self.ended(record))


def unbroken(frame: FrameType | None) -> bool:
    """Return whether this frame is inside a function that no exception may interrupt."""
    while frame is not None and frame.f_code not in UNBROKEN:
        frame = frame.f_back
    return frame is not None
