"""The command line: one command per stage. The workflow's rules call the same entry points.

Commands import their stages inside their functions, so that `mgg --help` and each stage do not wait for the others.
"""

import sys

from mgg import limits
from mgg.cli import stop
from mgg.errors import MachineError

__all__ = ["main"]


def main() -> None:
    """Run the command line; an error is one line and an exit code (docs/guides/errors.md)."""
    # First, before anything that takes time.
    if sys.argv[1:2] == ["train"]:
        stop.listen()
    else:
        stop.end_on_ctrl_c()
    try:
        limits.prepare()
        from mgg.cli.group import run
    except BaseException as error:
        if stop.interrupted.is_set():
            sys.exit(stop.tell())  # whatever exception the libraries turned it into
        lack = error if isinstance(error, MachineError) else limits.lack_behind(error)
        if lack is None:
            raise
        if stop.speaks():
            print(f"mgg: {lack}", file=sys.stderr, flush=True)
        sys.exit(lack.exit_code)
    run()
