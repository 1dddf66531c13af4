# On a terminal bars show how far every rule is; logs and continuous integration keep Snakemake's plain lines, and the
# whole of them is in .snakemake/log/ either way.
import copy
import logging

from snakemake_interface_logger_plugins.common import LogEvent

try:
    from snakemake_logger_plugin_rich.handler import RichLogHandler
except ImportError:  # an environment that was made without it
    RichLogHandler = logging.NullHandler


class Bars(RichLogHandler):
    """The plugin's display, but for failed jobs.

    Their whole logs are left out: the summary at the end has what matters of them. And no run ends in green but a finished one.
    """

    def __init__(self, settings):
        super().__init__(settings)
        # Once a second: whoever times a product on CPU cores wants them all.
        self.live_display.refresh_per_second = 1

    def emit(self, record):
        if getattr(record, "event", None) == LogEvent.JOB_INFO:
            record = copy.copy(record)
            record.log = []
        message = record.getMessage()
        if (FAILURES.failed or INTERRUPTION.at is not None) and message.startswith("Complete log"):
            ended, style = ("failed", "red") if FAILURES.failed else ("interrupted", "yellow")
            self.console.rule(f"Workflow {ended}", style=style)
            self.console.print(message, soft_wrap=True, markup=False, highlight=False)
            return
        super().emit(record)


def on_a_terminal():
    """Whether somebody watches, on a terminal that can redraw lines, and asked for neither less nor more nor no color."""
    settings = workflow.output_settings
    asked = settings.quiet or settings.verbose or settings.nocolor or settings.stdout or settings.dryrun
    able = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("CI")
    return able and not asked and workflow.is_main_process


def show_bars():
    """Put the bars in the place of Snakemake's own lines; a --logger that the user chose stays."""
    plain = [handler for handler in logger.handlers if handler.name == "DefaultStreamHandler"]
    if RichLogHandler is not logging.NullHandler and plain and on_a_terminal():
        logger.removeHandler(plain[0])
        logger.addHandler(Bars(workflow.output_settings))


show_bars()
for handler in logger.handlers:
    if isinstance(handler, RichLogHandler) or handler.name == "DefaultStreamHandler":
        handler.addFilter(INTERRUPTION.shown)
