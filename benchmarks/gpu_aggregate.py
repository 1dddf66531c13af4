"""Time distributed products on the benchmark graphs: ``mpiexec -n P python benchmarks/gpu_aggregate.py OUT``.

Before every timing a sample of each PE's rows, the longest among them, is compared with float64. A technique may be
followed by options and the type of the embeddings: ``mgg:ps=32,dist=4``, ``halo:dtype=bf16``. Times are medians of 20
products after 5, the slowest PE of each, by CUDA events. OUT gets gpu_aggregate-pP.jsonl, one line a measurement;
rank 0 prints the table, beside what the released kernels of the papers take on the same graphs and GPUs (H200,
docs/results/gpu.md), and what technique auto picks (fp32), with its time over the least of those measured.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click
import cupy as cp
import numpy as np
import yaml
from common import Results
from gpu_graphs import Inputs, Sample, checked, graphs_of

from mgg.aggregate import oracle, parse_options, prepare
from mgg.aggregate.auto import forecast
from mgg.aggregate.measure import Protocol, parts_alone, timed
from mgg.aggregate.plan import Plan
from mgg.backend import World, job_size, launch
from mgg.errors import MggError
from mgg.graph.generators import communities
from mgg.layout import PeLayout

#: Milliseconds on four H200s: MGG's released kernel, MG-GCN's schedule, CoLa's released kernel; by graph and D.
REFERENCES = {
    "products-like": {16: (3.54, 2.27, 1.52), 64: (4.72, 4.32, 1.28), 128: (5.28, 6.21, 2.50)},
    "reddit-like": {16: (5.20, 1.57, 1.26), 64: (6.22, 1.81, 1.07), 128: (8.99, 2.13, 2.13)},
    "orkut-like": {16: (6.60, 3.99, 3.08), 64: (8.81, 7.46, 2.93), 128: (9.83, 10.25, 5.89)},
    "web-like": {16: (3.20, 2.67, 1.21), 64: (4.60, 4.71, 0.99), 128: (5.67, 7.53, 1.74)},
}
PES_OF_REFERENCES = 4
NAMES = ("MGG", "MG-GCN", "CoLa")


def parsed(spec: str) -> tuple[str, dict[str, Any]]:
    """``name`` or ``name:key=value,...`` -> name and options."""
    name, _, rest = spec.partition(":")
    return name, {
        key: yaml.safe_load(value) for key, _, value in (pair.partition("=") for pair in rest.split(",") if pair)
    }


class Bench(Results):
    """A run on one PE."""

    def __init__(self, world: World, out: Path, specs: list[str], iterations: int, parts: bool):
        super().__init__(out / f"gpu_aggregate-p{world.size}.jsonl", world.rank, "a")
        self.world, self.specs, self.iterations, self.parts = world, specs, iterations, parts
        self.times: dict[tuple[str, int], dict[str, float]] = {}

    def graph(self, name: str, layout: PeLayout, sample: Sample, inputs: Inputs) -> None:
        """Every technique at every width on one graph."""
        remote = sum(layout.manifest.forward.remote_arcs) / layout.manifest.arcs
        self.say(
            f"{name}: {layout.nodes:,} nodes, {layout.manifest.arcs:,} arcs, {remote:.1%} remote, after {self.seconds}"
        )
        for spec in self.specs:
            try:
                self.technique(name, layout, sample, spec, inputs)
            except MggError as error:
                if not error.everywhere:
                    raise
                self.say(f"{name:<14} {spec}: {error}")
            cp.get_default_memory_pool().free_all_blocks()
        self.choice(name, layout, list(inputs))

    def choice(self, name: str, layout: PeLayout, dims: list[int]) -> None:
        """What auto picks, beside the techniques that were measured at their defaults."""
        said = forecast(self.world, layout, "forward")
        for dim in dims:
            plain = {spec: ms for spec, ms in self.times.get((name, dim), {}).items() if ":" not in spec}
            if not plain:
                continue
            costs = {spec: said.seconds(spec, dim) for spec in plain}
            pick, best = said.ranking(dim)[0], min(plain, key=lambda spec: plain[spec])
            over = f"{plain[pick] / plain[best]:.2f} times the fastest, {best}" if pick in plain else "not measured"
            foretold = ", ".join(f"{spec} {1e3 * cost:.3f}" for spec, cost in costs.items() if cost is not None)
            self.say(f"    D = {dim}: auto picks {pick}, {over}; predicted: {foretold}")
            self.record(graph=name, dim=dim, pes=self.world.size, pick=pick, fastest=best, measured=plain, said=costs)

    def technique(self, name: str, layout: PeLayout, sample: Sample, spec: str, inputs: Inputs) -> None:
        """Check and time one technique."""
        technique, options = parsed(spec)
        dtype = options.pop("dtype", "fp32")
        started = time.perf_counter()
        plan = prepare(
            technique, self.world, layout, "forward", max(inputs), parse_options(technique, options).model_dump(),
            dtype,
        )  # fmt: skip
        made = time.perf_counter() - started
        shown, told = [], []
        for dim, error in checked(self.world, plan, sample, inputs):
            wrong = not error <= oracle.TOLERANCE[dtype]
            self.failed += wrong
            values = self.measured(plan, dim)
            self.times.setdefault((name, dim), {})[spec] = values["ms"]
            shown.append(f"{values['ms']:8.3f}" + (f" FAILED {error:.2g}" if wrong else ""))
            if "transfer" in values:
                larger = max(values["transfer"], values["compute"])
                told.append(
                    f"    D = {dim}: transfer alone {values['transfer']:.3f}, arithmetic alone {values['compute']:.3f},"
                    f" all of it {values['ms'] / larger:.2f} times the larger"
                )
            self.record(
                graph=name, technique=technique, options=plan.options.model_dump(), spec=spec, pes=self.world.size,
                dim=dim, dtype=dtype, error=error, prepare_seconds=made, **values,
            )  # fmt: skip
        self.say(f"{name:<14} {spec:<32}" + " ".join(shown) + f"   prepared in {made:.1f} s")
        for line in told:
            self.say(line)

    def measured(self, plan: Plan, dim: int) -> dict[str, float]:
        """Median and quartiles in milliseconds, bytes; with ``--parts`` what parts take alone."""
        protocol = Protocol("forward", 5, self.iterations, True)
        seconds, moved = timed(self.world, plan, dim, protocol)
        q1, median, q3 = (float(x) * 1e3 for x in np.percentile(seconds, [25, 50, 75]))
        alone = parts_alone(self.world, plan, dim, protocol) if self.parts and any(moved) else {}
        times = {"ms": median, "q1": q1, "q3": q3, "bytes": float(sum(moved))}
        return times | {name: value * 1e3 for name, value in alone.items()}

    def summary(self, scale: float) -> None:
        """Ratios to the released kernels, where they were measured on as many PEs."""
        if self.world.size != PES_OF_REFERENCES or scale != 1:
            return
        for spec in self.specs:
            ratios = {
                at: [reference / found[spec] for reference in REFERENCES[at[0]][at[1]]]
                for at, found in self.times.items()
                if spec in found and at[1] in REFERENCES[at[0]]
            }
            if ratios:
                table = np.array(list(ratios.values()))
                means, least = np.exp(np.log(table).mean(axis=0)), table.min(axis=0)
                words = (
                    f"{label} {mean:.2f} x (least {low:.2f})"
                    for label, mean, low in zip(NAMES, means, least, strict=True)
                )
                self.say(f"{spec:<32} {len(ratios)} entries: " + ", ".join(words))


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--techniques", default="mgg;broadcast;broadcast_pipelined;ring;cola;halo", help="separated by ;")
@click.option("--dims", default="16,64,128", show_default=True, help="separated by commas")
@click.option("--graphs", default=",".join(communities.SHAPES), show_default=True, help="separated by commas")
@click.option("--scale", type=float, default=1.0, show_default=True, help="size as a share of the full graphs")
@click.option("--iterations", type=int, default=20, show_default=True, help="timed products")
@click.option("--parts", is_flag=True, help="also time transfers and arithmetic alone, where they can be told apart")
def main(out: Path, techniques: str, dims: str, graphs: str, scale: float, iterations: int, parts: bool) -> None:
    """Check and time, and print tables."""

    def program(world: World) -> int:
        bench = Bench(world, out, techniques.split(";"), iterations, parts)
        bench.say(f"{world.size} x {world.gpu}, milliseconds for D = {dims}")
        for name, layout, sample, inputs in graphs_of(world, graphs, scale, dims):
            bench.graph(name, layout, sample, inputs)
            del layout, sample, inputs
        bench.summary(scale)
        bench.end()
        return bench.failed

    sys.exit(4 if launch("nvshmem", lambda: job_size() or 1, program)[0] else 0)


if __name__ == "__main__":
    main()
