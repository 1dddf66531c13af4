"""The command line: one command a stage, the same entry points that the workflow's rules call.

Stages are imported inside their commands: `mgg --help` and one stage must not wait for all the others.
"""

import sys

from mgg.cli import stop

__all__ = ["main"]


def main() -> None:
    """Run the command line; errors are one line and an exit code (README.md, Exit codes)."""
    # Before anything that takes time.
    if sys.argv[1:2] == ["train"]:
        stop.listen()
    else:
        stop.end_on_ctrl_c()
    try:
        from mgg.cli.group import run
    except BaseException:
        if not stop.interrupted.is_set():
            raise
        sys.exit(stop.tell())  # whatever the libraries made of it
    run()
