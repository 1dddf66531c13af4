"""Run command lines as forks of a process that has imported their modules, which saves a second each.

For runs of a single process whose results do not depend on when modules are imported.
"""

import importlib
import json
import os
import runpy
import select
import subprocess
import sys
from functools import cache
from pathlib import Path

#: Program -> the module with its ``main``, then modules that its runs import.
PROGRAMS = {
    "snakemake": (
        "snakemake.cli",
        "snakemake_logger_plugin_rich",
        "mgg.aggregate",
        "mgg.model",
        "mgg.workflow.outputs",
    ),
    "mgg": ("mgg.cli", "mgg.cli.group", "mgg.train", "mgg.layout.build", "mgg.aggregate.job", "mgg.api", "mgg.report"),
}


@cache
def _server(program: str) -> subprocess.Popen:
    """The server of this process; it ends when its standard input does, with this process."""
    command = [sys.executable, __file__, program]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def run(
    program: str, words: list[str], cwd: Path, env: dict[str, str], limit: float, *, merged: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run ``program`` with arguments ``words``, or the script ``words[0]`` after the imports of ``program``.

    ``merged``: errors are part of the output.
    """
    server = _server(program)
    files = [cwd.with_name(f"{cwd.name}.{name}") for name in ("out", "err")]
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps([words, str(cwd), env, [str(file) for file in files], merged]) + "\n")
    server.stdin.flush()
    poller = select.poll()  # select() takes only the first 1,024 file descriptors
    poller.register(server.stdout, select.POLLIN)
    assert poller.poll(1e3 * limit), f"{program} {words}: no end in {limit} s"
    code = int(server.stdout.readline())
    output, errors = (file.read_text() for file in files)
    for file in files:
        file.unlink()
    return subprocess.CompletedProcess([program, *words], code, output, errors)


def _serve(program: str) -> None:
    for name in PROGRAMS[program]:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run_in_child(program, *json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run_in_child(
    program: str, words: list[str], cwd: str, env: dict[str, str], files: list[str], merged: bool
) -> None:
    opened = [os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600) for file in (os.devnull, *files)]
    for number, file in enumerate(opened):
        os.dup2(opened[1] if merged and number == 2 else file, number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    if words[0].endswith(".py"):
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
        sys.exit()
    sys.argv = [program, *words]
    sys.exit(sys.modules[PROGRAMS[program][0]].main())


if __name__ == "__main__":
    _serve(sys.argv[1])
