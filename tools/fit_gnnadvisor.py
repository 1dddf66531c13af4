"""Fit GNNAdvisor's Decider to sweeps, no GPU needed: python tools/fit_gnnadvisor.py SWEEP... --gpu NAME.

SWEEPs are records that ``mgg aggregate`` made on one GPU, of all settings of the grid (``decider.GRID``) and of what
the Decider says as printed and as released, on several graphs: ``mgg aggregate LAYOUT --technique gnnadvisor --dim
16,64,128 --launches 1 --variant gnnadvisor:decide=paper,artifact --variant gnnadvisor:ngs=1,2,...:dw=1,...:tpb=...``.
A setting that did not fit the memory has no record. The fit takes, for each width, the setting of the grid whose times
over each graph's best have the least geometric mean. Printed are, for each graph and width, how many times as long as
the best of the grid the picks of the Decider take: as printed, as released, and fitted to the other graphs alone; then
the entry of ``decider.FITTED`` for the GPU, fitted to all of them.
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

#: A pick is good within so much of the grid's best.
GOOD = 1.1
#: ngs, dw and tpb.
Setting = tuple[int, ...]
#: Milliseconds by graph and width: of the settings of the grid, and of what the Decider picks, by its variant.
Cases = dict[tuple[str, int], dict[Setting | str, float]]


def read(paths: Iterable[Path]) -> Cases:
    """What the sweeps measured."""
    found: Cases = {}
    for record in (each for path in paths for each in read_lines(path, AggregateRecord)):
        if record.technique == "gnnadvisor" and record.decided is not None:
            who = record.options["decide"]
            setting = tuple(record.decided[name] for name in decider.GRID)
            case = found.setdefault((record.dataset, record.dim), {})
            case[setting if who == "none" else who] = 1e3 * record.median
    return found


def best(case: dict[Setting | str, float]) -> float:
    """Milliseconds of the fastest setting of the grid."""
    return min(ms for setting, ms in case.items() if not isinstance(setting, str))


def fitted(cases: Cases) -> decider.Fit:
    """For each width the setting that is least behind the best of each graph; one that lacks somewhere is out."""
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
    """By graph and width and by Decider, times over the grid's best; infinite where what it picks has no time.

    The fitted one has not seen the graph that it picks for.
    """
    found = {}
    for (graph, dim), case in cases.items():
        pick = fitted({key: each for key, each in cases.items() if key[0] != graph}).picks[dim]
        asked = {"paper": "paper", "artifact": "artifact", "fitted": pick}
        found[graph, dim] = {who: case.get(setting, np.inf) / best(case) for who, setting in asked.items()}
    return found


def report(cases: Cases, gpu: str) -> str:
    """The table, how many picks are good, and the entry of the GPU."""
    found, whose = ratios(cases), ("paper", "artifact", "fitted")
    lines = [f"{'times the best':<20}" + "".join(f"{who:>10}" for who in whose)]
    for (graph, dim), row in found.items():
        lines.append(f"{graph:<14} D {dim:>3}" + "".join(f"{row[who]:>10.2f}" for who in whose))
    good = {who: sum(row[who] <= GOOD for row in found.values()) for who in whose}
    lines.append(f"{f'within {GOOD:g}':<19}" + "".join(f"{f'{good[who]}/{len(found)}':>10}" for who in whose))
    words = re.split(r"\W+", gpu.lower())
    name = next((word for word in words if re.search(r"[a-z]\d", word)), words[-1])
    return "\n".join([*lines, f'"{name}": Fit({fitted(cases).picks}),'])


@click.command()
@click.argument("sweeps", type=click.Path(path_type=Path, exists=True), nargs=-1, required=True)
@click.option("--gpu", required=True, help="the driver's name of the model")
def main(sweeps: tuple[Path, ...], gpu: str) -> None:
    """Fit, and print."""
    try:
        click.echo(report(read(sweeps), gpu))
    except InputError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
