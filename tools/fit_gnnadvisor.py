"""Fit GNNAdvisor's Decider to sweeps, no GPU needed: python tools/fit_gnnadvisor.py SWEEP... --gpu NAME.

SWEEPs are records of ``mgg aggregate`` on one GPU, of all settings of the grid (``decider.GRID``) and of the Decider's
choices, as printed in the paper and as released, on several graphs: ``mgg aggregate LAYOUT --technique gnnadvisor --dim
16,64,128 --launches 1 --variant gnnadvisor:decide=paper,artifact --variant gnnadvisor:ngs=1,2,...:dw=1,...:tpb=...``.
A setting that did not fit the memory has no record. For each width the fit takes the setting whose times relative to
each graph's best have the least geometric mean. The output: for each graph and width the time of the Decider's picks
relative to the best of the grid, as printed, as released, and fitted to the other graphs; then the entry of
``decider.FITTED`` for the GPU, fitted to all graphs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import click
import numpy as np

from mgg.aggregate.techniques.gnnadvisor import decider
from mgg.errors import InputError
from mgg.records import AggregateRecord, read_lines

#: A pick is good if it takes at most so many times as long as the grid's best.
GOOD = 1.1
#: ngs, dw and tpb.
Setting = tuple[int, ...]
#: (graph, width) -> milliseconds by setting of the grid, and by variant of the Decider.
Cases = dict[tuple[str, int], dict[Setting | str, float]]


def read(paths: Iterable[Path]) -> Cases:
    """The times of the sweeps."""
    found: Cases = {}
    for record in (each for path in paths for each in read_lines(path, AggregateRecord)):
        if record.technique == "gnnadvisor" and record.decided is not None:
            variant = record.options["decide"]
            setting = tuple(record.decided[name] for name in decider.GRID)
            case = found.setdefault((record.dataset, record.dim), {})
            case[setting if variant == "none" else variant] = 1e3 * record.median
    return found


def best(case: dict[Setting | str, float]) -> float:
    """Milliseconds of the fastest setting of the grid."""
    return min(ms for setting, ms in case.items() if not isinstance(setting, str))


def fitted(cases: Cases) -> decider.Fit:
    """For each width the setting nearest to the best of each graph; settings without a time on all graphs are out."""
    behind: dict[int, dict[Setting, list[float]]] = {}
    for (_, dim), case in cases.items():
        for setting, ms in case.items():
            if not isinstance(setting, str):
                behind.setdefault(dim, {}).setdefault(setting, []).append(float(np.log(ms / best(case))))
    picks = {}
    for dim, found in behind.items():
        graphs = sum(width == dim for _, width in cases)
        picks[dim] = min((sum(logs), setting) for setting, logs in found.items() if len(logs) == graphs)[1]
    return decider.Fit(picks)


def ratios(cases: Cases) -> dict[tuple[str, int], dict[str, float]]:
    """By (graph, width) and variant, time over the grid's best; infinite if the pick was not measured.

    The variant ``fitted`` is fitted to the other graphs.
    """
    found = {}
    for (graph, dim), case in cases.items():
        pick = fitted({key: each for key, each in cases.items() if key[0] != graph}).picks[dim]
        picks = {"paper": "paper", "artifact": "artifact", "fitted": pick}
        found[graph, dim] = {variant: case.get(key, np.inf) / best(case) for variant, key in picks.items()}
    return found


def report(cases: Cases, gpu: str) -> str:
    """The table, the number of good picks, and the entry for the GPU."""
    found, variants = ratios(cases), ("paper", "artifact", "fitted")
    lines = [f"{'times the best':<20}" + "".join(f"{name:>10}" for name in variants)]
    for (graph, dim), row in found.items():
        lines.append(f"{graph:<14} D {dim:>3}" + "".join(f"{row[name]:>10.2f}" for name in variants))
    good = {name: sum(row[name] <= GOOD for row in found.values()) for name in variants}
    lines.append(f"{f'within {GOOD:g}':<19}" + "".join(f"{f'{good[name]}/{len(found)}':>10}" for name in variants))
    words = re.split(r"\W+", gpu.lower())
    name = next((word for word in words if re.search(r"[a-z]\d", word)), words[-1])
    return "\n".join([*lines, f'"{name}": Fit({fitted(cases).picks}),'])


@click.command()
@click.argument("sweeps", type=click.Path(path_type=Path, exists=True), nargs=-1, required=True)
@click.option("--gpu", required=True, help="the GPU's name by its driver")
def main(sweeps: tuple[Path, ...], gpu: str) -> None:
    """Fit, and print."""
    try:
        click.echo(report(read(sweeps), gpu))
    except InputError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
