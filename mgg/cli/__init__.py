"""The command line: one command a stage, the same entry points that the workflow's rules call.

Stages are imported inside their commands: `mgg --help` and one stage must not wait for all the others.
"""

import sys

from mgg.cli import stop

__all__ = ["main"]


def main() -> None:
    """Run the command line; errors are one line and an exit code (README.md, Exit codes)."""
    if sys.argv[1:2] == ["train"]:
        stop.listen()  # before anything that takes time
    from mgg.cli.group import run

    run()
