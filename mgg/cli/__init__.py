"""The command line: one command a stage, the same entry points that the workflow's rules call.

Stages are imported inside their commands: `mgg --help` and one stage must not wait for all the others.
"""

from mgg.cli.group import cli, main

__all__ = ["cli", "main"]
