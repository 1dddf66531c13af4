"""``mgg demo``: the whole workflow on two small graphs."""

from __future__ import annotations

import os
import sys
from importlib import resources
from pathlib import Path

import click

from mgg.cli.options import FOLDER
from mgg.errors import InputError


def workflow_files() -> Path:
    """The folder with the Snakefile, ``config`` and ``profiles``: package data in a wheel, otherwise the checkout."""
    packaged = Path(str(resources.files("mgg"))) / "workflow_files"
    return packaged if packaged.is_dir() else Path(__file__).parents[2]


@click.command()
@click.option("--out", type=FOLDER, default="mgg-demo", show_default=True, help="folder to work in")
@click.option("--dry-run", is_flag=True, help="only show the jobs and their commands")
@click.option("--configfile", type=FOLDER, help="an overlay of the config, which changes single fields")
def demo(out: Path, dry_run: bool, configfile: Path | None) -> None:
    """Take two small graphs through every stage, to a report: some minutes on two cores.

    This is the workflow (snakemake) with the config and the profile for one machine that come with MGG. After an
    interruption the same command goes on.
    """
    if configfile and not configfile.is_file():
        raise InputError(f"--configfile {configfile}: no such file")
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: is no folder: name another one")
    root = workflow_files()
    words = ["-s", root / "Snakefile", "--profile", root / "profiles" / "local", "--directory", out]
    words += ["--configfile", configfile] if configfile else []
    # The rules call mgg and the mpiexec beside it, whether or not the environment is activated.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    command = [sys.executable, "-m", "snakemake", *map(str, words), *["--dry-run"] * dry_run]
    sys.stdout.flush()
    # Snakemake replaces this process, so it receives the signals and its exit code counts.
    os.execve(sys.executable, command, os.environ | {"PATH": path})  # nosec B606
