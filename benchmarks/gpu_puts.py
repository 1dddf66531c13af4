"""Time messages between workgroups of one GPU each: ``mpiexec -n P python benchmarks/gpu_puts.py OUT``.

Each product is timed as it is, where a message that is alone is a put on the stream, and with all messages put without
waiting (``put_nbi``). Launches of both, each on a plan prepared anew, take turns in one job. Before every timing a
sample of each PE's rows is compared with float64. Times are medians of 20 products after 5, the slowest PE of each, by
CUDA events. OUT gets gpu_puts-pP.json, an entry a launch, and gpu_puts-pP.txt, the table that rank 0 prints.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from unittest import mock

import click
import numpy as np
from common import OUT, SCALE
from gpu_graphs import Inputs, Sample, checked, graphs_of, on_gpus

from mgg.aggregate import oracle, parse_options, prepare
from mgg.aggregate.measure import TimingProtocol, timed
from mgg.backend import World
from mgg.backend.api import DEFAULT_TIMEOUT, SymmetricArray
from mgg.backend.nvshmem import NvshmemWorld
from mgg.layout import PeLayout

_SEND = NvshmemWorld._send_rows


def _beside(world: NvshmemWorld, target: SymmetricArray, pe: int, first: int, values: Any, alone: bool) -> None:
    _SEND(world, target, pe, first, values, False)


WAYS = {"as it is": _SEND, "nbi": _beside}


def measured(
    world: World, layout: PeLayout, sample: Sample, technique: str, way: str, inputs: Inputs
) -> list[dict[str, Any]]:
    """An entry for each width, of one launch (collective)."""
    options, entries = parse_options(technique, {"workgroup": 1}).model_dump(), []
    with mock.patch.object(NvshmemWorld, "_send_rows", WAYS[way]):
        plan = prepare(technique, world, layout, "forward", max(inputs), options)
        for dim, error in checked(world, plan, sample, inputs):
            seconds, moved = timed(world, plan, dim, TimingProtocol("forward", 5, 20, True))
            q1, median, q3 = (1e3 * float(each) for each in np.percentile(seconds, [25, 50, 75]))
            entries.append({"dim": dim, "error": error, "ms": median, "q1": q1, "q3": q3, "bytes": sum(moved)})
    return entries


def keep(out: Path, pes: int, entries: list[dict[str, Any]]) -> None:
    """Write down what there is so far."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"gpu_puts-p{pes}.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def table(entries: list[dict[str, Any]]) -> str:
    """Medians over launches, least and most, and the ratio of the two ways' medians."""
    lines = [f"{'graph':<14} {'product':<8} {'D':>4} {'as it is, ms':>24} {'nbi, ms':>24} {'nbi / as it is':>15}"]
    for graph, technique, dim in dict.fromkeys((e["graph"], e["technique"], e["dim"]) for e in entries):
        shown, medians = "", {}
        for way in WAYS:
            at = (graph, technique, dim, way)
            of = [e["ms"] for e in entries if (e["graph"], e["technique"], e["dim"], e["way"]) == at]
            medians[way] = float(np.median(of))
            shown += f" {medians[way]:8.3f} ({min(of):.3f}-{max(of):.3f})".rjust(25)
        ratio = medians["nbi"] / medians["as it is"]
        lines.append(f"{graph:<14} {technique:<8} {dim:>4}{shown} {ratio:15.3f}")
    return "\n".join(lines)


@click.command()
@OUT
@click.option("--graphs", default="products-like,reddit-like", show_default=True, help="separated by commas")
@click.option("--techniques", default="halo,cola", show_default=True, help="separated by commas")
@click.option("--dims", default="16,64,128", show_default=True, help="separated by commas")
@click.option("--launches", type=click.IntRange(1), default=3, show_default=True, help="of each way, in turns")
@SCALE
def main(out: Path, graphs: str, techniques: str, dims: str, launches: int, scale: float) -> None:
    """Check, time, print."""

    def program(world: World) -> int:
        entries: list[dict[str, Any]] = []
        started = time.perf_counter()
        for graph, layout, sample, inputs in graphs_of(world, graphs, scale, dims):
            for number in range(launches):
                for technique in techniques.split(","):
                    for way in list(WAYS) if number % 2 else reversed(WAYS):
                        described = {
                            "graph": graph,
                            "technique": technique,
                            "way": way,
                            "launch": number,
                            "pes": world.size,
                        }
                        described |= {"gpu": world.gpu, "scale": scale}
                        found = measured(world, layout, sample, technique, way, inputs)
                        entries += [described | entry for entry in found]
                        if world.rank == 0:
                            keep(out, world.size, entries)
        failed = sum(not entry["error"] <= oracle.TOLERANCE["fp32"] for entry in entries)
        if world.rank == 0:
            text = f"{table(entries)}\n{failed} failures, {time.perf_counter() - started:.0f} s, {world.gpu}\n"
            (out / f"gpu_puts-p{world.size}.txt").write_text(text, encoding="utf-8")
            click.echo(text)
        return failed

    on_gpus(program, DEFAULT_TIMEOUT)


if __name__ == "__main__":
    main()
