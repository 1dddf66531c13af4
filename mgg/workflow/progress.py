"""On a terminal, bars show each rule's progress; logs and continuous integration keep Snakemake's plain lines.

Either way .snakemake/log/ has all of them.
"""

from __future__ import annotations

import copy
import logging
import os
import sys
from typing import Any

from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent

from mgg.workflow.failures import Failures
from mgg.workflow.interrupted import Interruption

try:
    from snakemake_logger_plugin_rich.handler import RichLogHandler
except ImportError:  # an environment that was made without it
    RichLogHandler = logging.NullHandler


class ProgressBars(RichLogHandler):
    """The plugin's display, except for failed jobs.

    Whole logs of failed jobs are left out: the final summary has what matters. Only a finished run ends in green.
    """

    def __init__(self, settings: Any, failures: Failures, interruption: Interruption):
        super().__init__(settings)
        self.failures, self.interruption = failures, interruption
        # Once per second, because timed products need the CPU cores.
        self.live_display.refresh_per_second = 1

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record."""
        if getattr(record, "event", None) == LogEvent.JOB_INFO:
            record = copy.copy(record)
            record.log = []
        message, failed = record.getMessage(), self.failures.failed
        if (failed or self.interruption.at is not None) and message.startswith("Complete log"):
            ended, style = ("failed", "red") if failed else ("interrupted", "yellow")
            self.console.rule(f"Workflow {ended}", style=style)
            self.console.print(message, soft_wrap=True, markup=False, highlight=False)
            return
        super().emit(record)


def on_a_terminal(workflow: Any) -> bool:
    """Return whether output goes to a terminal that can redraw lines, with default verbosity and color."""
    settings = workflow.output_settings
    asked = settings.quiet or settings.verbose or settings.nocolor or settings.stdout or settings.dryrun
    able = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("CI")
    return bool(able and not asked and workflow.is_main_process)


def show_progress(workflow: Any, failures: Failures, interruption: Interruption) -> None:
    """Replace Snakemake's own lines by the bars; a --logger that the user chose stays."""
    plain = [handler for handler in logger.handlers if handler.name == "DefaultStreamHandler"]
    if RichLogHandler is not logging.NullHandler and plain and on_a_terminal(workflow):
        logger.removeHandler(plain[0])
        logger.addHandler(ProgressBars(workflow.output_settings, failures, interruption))
    for handler in logger.handlers:
        if isinstance(handler, RichLogHandler) or handler.name == "DefaultStreamHandler":
            handler.addFilter(interruption.shown)
