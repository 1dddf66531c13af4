"""``mgg clean``: list or remove results of the workflow that no config names any more."""

from __future__ import annotations

from pathlib import Path

import click

from mgg.cli.options import FOLDER, common, say, show
from mgg.errors import InputError


@click.command()
@click.argument("results", type=FOLDER, default="results")
@click.option("--remove", "removes", is_flag=True, help="remove the listed results")
@common
def clean(results: Path, removes: bool, as_json: bool) -> None:
    """List results in RESULTS, the folder of the workflow, that no config names any more, and their bytes.

    A config names what its newest run would make, in each place where it ran, as long as its config files are there.
    """
    from mgg.results import remove, unnamed

    if not results.is_dir():
        raise InputError(f"{results}: no such folder")
    found, gone = remove(results) if removes else unnamed(results)
    if as_json:
        listed = [{"path": str(each.path), "bytes": each.size} for each in found]
        show({"removed": removes, "configs_gone": gone, "unnamed": listed}, True)
        return
    beside = [each for each in found if each.beside]
    for each in found:
        if not each.beside:
            say(f"{each.size / 1e6:10.1f} MB  {each.path}")
    if beside:
        say(f"{sum(each.size for each in beside) / 1e6:10.1f} MB  logs and benchmarks")
    for config in gone:
        say(f"{config} is gone, so what it named does not count")
    total = sum(each.size for each in found) / 1e6
    after = "removed" if removes else "--remove removes it" if found else "nothing to remove"
    say(f"{total:10.1f} MB that no config names: {after}")
