# Ctrl-C ends a run with one line and exit code 130, whenever it comes. Jobs hear it from the terminal themselves, or are
# cancelled by their executor; what they had finished is there for the next run.
import asyncio
import atexit
import logging
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from snakemake_interface_logger_plugins.common import LogEvent

# Exit code of what Ctrl-C ends, as of mgg.
INTERRUPTED = 130
# Nothing may be raised inside of these. A thread that was just started would be unknown to its pool, so that Snakemake took
# its job's event loop down while that runs; and a loop keeps what one of its steps raised, and raises it again later.
UNBROKEN = {ThreadPoolExecutor.submit.__code__, asyncio.Handle._run.__code__}
# Seconds until it is tried again.
POSTPONED = 0.02


class Interruption:
    """Whether and when Ctrl-C was pressed in this run."""

    def __init__(self):
        self.at = None
        self.told = False

    def listen(self):
        """From here on Ctrl-C ends this process as an exit does: Snakemake prints a traceback of a KeyboardInterrupt."""
        # Programs that were started in the background ignore it.
        if workflow.is_main_process and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self.hear)
            # The handler is called once the main thread gets to it; when the signal came, a thread notes at once.
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
            threading.Thread(target=self.note, args=[reader], daemon=True).start()
            atexit.register(self.tell, lambda line: print(line, file=sys.stderr, flush=True))

    def note(self, reader):
        """Note when the first one comes: Python writes the number of each signal there."""
        while self.at is None:
            if signal.SIGINT in os.read(reader, 1):
                self.at = time.time()

    def hear(self, number, frame):
        """Handle the first one. Whoever presses again means the jobs: Snakemake waits for those that still write."""
        self.at = self.at or time.time()
        if unbroken(frame):
            signal.signal(signal.SIGALRM, self.hear)
            signal.setitimer(signal.ITIMER_REAL, POSTPONED)
            return
        for each in (signal.SIGINT, signal.SIGALRM):
            signal.signal(each, lambda *_: None)
        sys.exit(INTERRUPTED)

    def ended(self, record):
        """Whether a job's failure is the end that the interruption made of it."""
        return self.at is not None and record.created >= self.at

    def tell(self, say):
        """What to do next, once, when the jobs of this host have ended."""
        if self.at is not None and not self.told:
            self.told = True
            # Beside an executor of a cluster, which is the one that Snakemake cancels.
            here = getattr(workflow.scheduler, "_local_executor", None)
            if here is not None:
                here.cancel()
            say("Interrupted: run the same command again, it goes on where it stopped.")

    def shown(self, record):
        """A filter of what is displayed, not of Snakemake's log file: how jobs end that were interrupted says nothing."""
        ends = getattr(record, "event", None) in (LogEvent.JOB_ERROR, LogEvent.ERROR)
        return not (ends and self.ended(record))


def unbroken(frame):
    """Whether this frame is inside of something that no exception may break off."""
    while frame is not None and frame.f_code not in UNBROKEN:
        frame = frame.f_back
    return frame is not None


INTERRUPTION = Interruption()
INTERRUPTION.listen()
