"""Fit GNNAdvisor's Decider to a sweep, no GPU needed: python benchmarks/fit_gnnadvisor.py SWEEP --gpu NAME.

SWEEP is the gpu_gnnadvisor.jsonl of benchmarks/gpu_gnnadvisor.py. The fit takes, for each width, the setting of the
grid whose times over each graph's best have the least geometric mean. Printed are, for each graph and width, how many
times as long as the best of the grid the picks of the Decider take: as printed, as released, and fitted to the other
graphs alone; then the entry of ``decider.FITTED`` for the GPU, fitted to all of them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from mgg.aggregate.techniques.gnnadvisor import decider

#: A pick is good within so much of the grid's best.
GOOD = 1.1


@dataclass(frozen=True)
class Sample:
    """A setting that was measured.

    Attributes:
        graph, dim: of what.
        by: who asks for it: grid, paper, artifact, or several.
        ms: milliseconds; None: it did not fit the memory.
        setting: ngs, dw and tpb.
    """

    graph: str
    dim: int
    by: tuple[str, ...]
    ms: float | None
    setting: tuple[int, int, int]


def read(path: Path) -> list[Sample]:
    """The samples of a sweep."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        Sample(
            each["graph"], each["dim"], tuple(each["by"].split()), each["ms"], (each["ngs"], each["dw"], each["tpb"])
        )
        for each in lines
    ]


Cases = dict[tuple[str, int], list[Sample]]


def cases_of(samples: list[Sample]) -> Cases:
    """By graph and width."""
    found: Cases = {}
    for each in samples:
        found.setdefault((each.graph, each.dim), []).append(each)
    return found


def best(samples: list[Sample]) -> float:
    """Milliseconds of the fastest setting of the grid."""
    return min(each.ms for each in samples if each.ms is not None and "grid" in each.by)


def fitted(cases: Cases) -> decider.Fit:
    """For each width the setting that is least behind the best of each graph; one that did not fit somewhere is out."""
    behind: dict[int, dict[tuple[int, int, int], float]] = {}
    for (_, dim), samples in cases.items():
        least, found = best(samples), behind.setdefault(dim, {})
        for each in samples:
            if "grid" in each.by:
                log = np.inf if each.ms is None else float(np.log(each.ms / least))
                found[each.setting] = found.get(each.setting, 0.0) + log
    return decider.Fit({dim: min(found, key=lambda setting: found[setting]) for dim, found in behind.items()})


def picked(samples: list[Sample], fit: decider.Fit) -> Sample:
    """The setting of the grid that the fit takes for the fastest."""
    wanted = fit.picks[samples[0].dim]
    return next(each for each in samples if "grid" in each.by and each.setting == wanted)


def ratios(samples: list[Sample]) -> dict[tuple[str, int], dict[str, float]]:
    """By graph and width and by Decider, times over the grid's best; infinite where what it picks does not fit.

    The fitted one has not seen the graph that it picks for.
    """
    cases, found = cases_of(samples), {}
    for graph in dict.fromkeys(graph for graph, _ in cases):
        fit = fitted({key: each for key, each in cases.items() if key[0] != graph})
        for key in (key for key in cases if key[0] == graph):
            asked = {who: each for each in cases[key] for who in each.by if who != "grid"}
            asked["fitted"] = picked(cases[key], fit)
            least = best(cases[key])
            found[key] = {who: np.inf if each.ms is None else each.ms / least for who, each in asked.items()}
    return found


def report(samples: list[Sample], gpu: str) -> str:
    """The table, how many picks are good, and the entry of the GPU."""
    found, whose = ratios(samples), ("paper", "artifact", "fitted")
    lines = [f"{'times the best':<20}" + "".join(f"{who:>10}" for who in whose)]
    for (graph, dim), row in found.items():
        lines.append(f"{graph:<14} D {dim:>3}" + "".join(f"{row[who]:>10.2f}" for who in whose))
    good = {who: sum(row[who] <= GOOD for row in found.values()) for who in whose}
    lines.append(f"{f'within {GOOD:g}':<19}" + "".join(f"{f'{good[who]}/{len(found)}':>10}" for who in whose))
    words = re.split(r"\W+", gpu.lower())
    name = next((word for word in words if re.search(r"[a-z]\d", word)), words[-1])
    return "\n".join([*lines, f'"{name}": Fit({fitted(cases_of(samples)).picks}),'])


@click.command()
@click.argument("sweep", type=click.Path(path_type=Path, exists=True))
@click.option("--gpu", required=True, help="the driver's name of the model")
def main(sweep: Path, gpu: str) -> None:
    """Fit, and print."""
    click.echo(report(read(sweep), gpu))


if __name__ == "__main__":
    main()
