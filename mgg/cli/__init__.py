"""The command line: one command a stage, the same entry points that the workflow's rules call.

Stages are imported inside their commands: `mgg --help` and one stage must not wait for all the others.
"""

import sys

from mgg import limits
from mgg.cli import stop
from mgg.errors import MachineError

__all__ = ["main"]


def main() -> None:
    """Run the command line; errors are one line and an exit code (docs/errors.md)."""
    # Before anything that takes time.
    if sys.argv[1:2] == ["train"]:
        stop.listen()
    else:
        stop.end_on_ctrl_c()
    try:
        limits.prepare()
        from mgg.cli.group import run
    except BaseException as error:
        if stop.interrupted.is_set():
            sys.exit(stop.tell())  # whatever the libraries made of it
        lack = error if isinstance(error, MachineError) else limits.lack_behind(error)
        if lack is None:
            raise
        if stop.speaks():
            print(f"mgg: {lack}", file=sys.stderr, flush=True)
        sys.exit(lack.exit_code)
    run()
