"""Time technique halo with other tunings of its pull: ``mpiexec -n P python benchmarks/gpu_halo.py OUT``.

A tuning is blocks a multiprocessor x loads x chunks (mgg/kernel/cuda/halo.py) x arcs from which on a row is cut
(mgg/kernel/halo.py). Before every timing a sample of each PE's rows is compared with float64. Times are medians of 20
products after 5, the slowest PE of each, by CUDA events: the whole product, the pull and the arithmetic alone, and the
whole over the larger of the two. OUT gets gpu_halo-pP.jsonl, one line a measurement; rank 0 prints the table.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import click
import numpy as np
from common import Results
from gpu_graphs import Inputs, Sample, checked, graphs_of

from mgg.aggregate import oracle, parse_options, prepare
from mgg.aggregate.measure import Protocol, parts_alone, timed
from mgg.backend import World, job_size, launch
from mgg.kernel import halo
from mgg.kernel.cuda import halo as cuda_halo
from mgg.kernel.cuda.halo import HaloTuning
from mgg.layout import PeLayout

TUNINGS = ";".join(f"1x{loads}x32x{cut}" for cut in (512, 256, 128) for loads in (4, 8)) + ";1x12x32x512;2x4x32x512"


def tuned(spec: str) -> tuple[HaloTuning, int]:
    """``1x8x32x512``: blocks a multiprocessor, loads, chunks; arcs from which on rows are cut."""
    *pull, cut = map(int, spec.split("x"))
    return HaloTuning(*pull), cut


def measured(
    world: World, layout: PeLayout, sample: Sample, spec: str, dtype: str, inputs: Inputs
) -> list[dict[str, Any]]:
    """One line for each width (collective)."""
    tuning, cut = tuned(spec)
    with mock.patch.object(cuda_halo, "TUNING", tuning), mock.patch.object(halo, "CUT_FROM", cut):
        options = parse_options("halo", {}).model_dump()
        plan = prepare("halo", world, layout, "forward", max(inputs), options, dtype)
    protocol, lines = Protocol("forward", 5, 20, True), []
    for dim, error in checked(world, plan, sample, inputs):
        seconds, _ = timed(world, plan, dim, protocol)
        alone = parts_alone(world, plan, dim, protocol)
        times = {"ms": 1e3 * float(np.median(seconds))} | {name: 1e3 * value for name, value in alone.items()}
        lines.append({"dim": dim, "dtype": dtype, "error": error, **times, **asdict(tuning), "cut": cut})
    return lines


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--graphs", default="orkut-like", show_default=True, help="separated by commas")
@click.option("--dims", default="16,64,128", show_default=True, help="separated by commas")
@click.option("--dtypes", default="fp32,bf16", show_default=True, help="separated by commas")
@click.option("--tunings", default=TUNINGS, show_default=True, help="blocks x loads x chunks x cut, separated by ;")
@click.option("--scale", type=float, default=1.0, show_default=True, help="size as a share of the full graphs")
def main(out: Path, graphs: str, dims: str, dtypes: str, tunings: str, scale: float) -> None:
    """Check, time, print."""

    def program(world: World) -> int:
        results = Results(out / f"gpu_halo-p{world.size}.jsonl", world.rank, "a")
        for graph, layout, sample, inputs in graphs_of(world, graphs, scale, dims):
            for dtype in dtypes.split(","):
                for spec in tunings.split(";"):
                    for line in measured(world, layout, sample, spec, dtype, inputs):
                        results.failed += not line["error"] <= oracle.TOLERANCE[dtype]
                        results.record(graph=graph, pes=world.size, **line)
                        results.say(f"{graph:<14} {shown(spec, line)}")
        results.end()
        return results.failed

    sys.exit(4 if launch("nvshmem", lambda: job_size() or 1, program)[0] else 0)


def shown(spec: str, line: dict[str, Any]) -> str:
    """A line of the table."""
    parts = {name: line.get(name, 0.0) for name in ("transfer", "compute")}
    return (
        f"D = {line['dim']:<4} {line['dtype']} {spec:<14} {line['ms']:8.3f} ms, pull alone"
        f" {parts['transfer']:.3f}, arithmetic alone {parts['compute']:.3f}, whole"
        f" {line['ms'] / max(*parts.values(), 1e-9):.2f} times the larger, error {line['error']:.1g}"
    )


if __name__ == "__main__":
    main()
