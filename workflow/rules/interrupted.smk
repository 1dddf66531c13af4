# Ctrl-C ends a run with one line and exit code 130, whenever it comes. Jobs hear it from the terminal themselves, or are
# cancelled by their executor; what they had finished is there for the next run.
import atexit
import logging
import signal
import sys
import time

from snakemake_interface_logger_plugins.common import LogEvent

# Exit code of what Ctrl-C ends, as of mgg.
INTERRUPTED = 130


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
            atexit.register(self.tell, lambda line: print(line, file=sys.stderr, flush=True))

    def hear(self, number, frame):
        """Handle the first one. Whoever presses again means the jobs: Snakemake waits for those that still write."""
        self.at = time.time()
        signal.signal(number, lambda *_: None)
        sys.exit(INTERRUPTED)

    def ended(self, record):
        """Whether a job's failure is the end that the interruption made of it."""
        return self.at is not None and record.created >= self.at

    def tell(self, say):
        """What to do next, once."""
        if self.at is not None and not self.told:
            self.told = True
            say("Interrupted: run the same command again, it goes on where it stopped.")

    def shown(self, record):
        """A filter of what is displayed, not of Snakemake's log file: how jobs end that were interrupted says nothing."""
        ends = getattr(record, "event", None) in (LogEvent.JOB_ERROR, LogEvent.ERROR)
        return not (ends and self.ended(record))


INTERRUPTION = Interruption()
INTERRUPTION.listen()
