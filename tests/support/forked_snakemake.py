"""Snakemake's command line from a process that has loaded it: each run is a fork, which saves a second of imports.

For dry runs alone: those start no other process of Snakemake.
"""

import importlib
import json
import os
import select
import subprocess
import sys
from functools import cache
from pathlib import Path

#: What a dry run loads by itself, beside Snakemake's command line.
LOADED = (
    "snakemake.cli",
    "snakemake_logger_plugin_rich",
    "mgg.config",
    "mgg.aggregate",
    "mgg.model",
    "mgg.layout.build",
)


@cache
def _server() -> subprocess.Popen:
    """One for this process; it ends with it, as its standard input does."""
    return subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def run(words: list[str], cwd: Path, env: dict[str, str], limit: float) -> subprocess.CompletedProcess[str]:
    """Run Snakemake with these words after its name; output and errors come together."""
    server, output = _server(), cwd / ".dry-run"
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps([words, str(cwd), env, str(output)]) + "\n")
    server.stdin.flush()
    assert select.select([server.stdout], [], [], limit)[0], f"snakemake {words}: no end in {limit} s"
    code = int(server.stdout.readline())
    text = output.read_text()
    output.unlink()
    return subprocess.CompletedProcess(["snakemake", *words], code, text)


def _serve() -> None:
    for name in LOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        words, cwd, env, output = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(words, cwd, env, output)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(words: list[str], cwd: str, env: dict[str, str], output: str) -> None:
    from snakemake.cli import main

    for number, file in ((0, os.devnull), (1, output)):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT, 0o600), number)
    os.dup2(1, 2)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["snakemake", *words]
    main()


if __name__ == "__main__":
    _serve()
