"""GNNAdvisor's parameters swept on one GPU: python benchmarks/gpu_gnnadvisor.py OUT [--scale 0.1].

Every ngs, dw and tpb of ``decider.GRID``, and what the Decider says as printed and as released, on the generated
graphs at each width, with the leader and ordered sums: median of 5 launches after 2, by CUDA events; a setting whose
first launch takes over ``SLOW`` times the best so far has that one launch alone. Products are held against the row-wise
kernel's. OUT gets gpu_gnnadvisor.jsonl, a line a setting; benchmarks/fit_gnnadvisor.py, which runs at the end, fits
the Decider to it and says what its picks are worth on each graph when the fit has not seen that one.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path

import click
import cupy as cp
import numpy as np
from common import Results
from fit_gnnadvisor import read, report
from gpu_graphs import generated
from gpu_local import milliseconds

from mgg.aggregate.techniques.gnnadvisor import decider
from mgg.graph.csr import Csr
from mgg.graph.generators import communities
from mgg.kernel.cuda import CudaOperators
from mgg.kernel.groups import Groups, Setting, groups_of
from mgg.kernel.pitch import row_pitch

DIMS, SLOW = (16, 64, 128), 4.0
#: Of |A| |B|, as the rows of B are below 1: both sums err by less than 1e-6 of it.
BOUND = 2e-6
LIKE = Setting(16, 32, 128)


def settings(lengths: np.ndarray, dim: int) -> dict[Setting, str]:
    """Who asks for each: the grid, the Decider as printed, as released."""
    asked = dict.fromkeys(decider.grid(LIKE), "grid")
    ngs, dw = decider.as_printed(dim)
    printed = replace(LIKE, ngs=ngs, dw=dw)
    ngs, dw, tpb = decider.as_released(lengths, dim)
    released = replace(LIKE, ngs=ngs, dw=dw, tpb=tpb)
    for each, who in ((printed, "paper"), (released, "artifact")):
        asked[each] = " ".join(filter(None, (asked.get(each), who)))
    return asked


def on_device(groups: Groups) -> Groups:
    """With arrays of the GPU."""
    arrays = {key: cp.asarray(value) for key, value in vars(groups).items() if isinstance(value, np.ndarray)}
    return replace(groups, **arrays)


class Bench(Results):
    """Operators, and a file of measurements."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._operators = CudaOperators()

    def sweep(self, name: str, csr: Csr) -> None:
        """All settings of a graph; those that cut it into the same groups follow one another."""
        lengths, indices = np.diff(csr.indptr), cp.asarray(csr.indices)
        bound = BOUND * cp.asarray(lengths).astype(cp.float32)[:, None]
        asked = {(setting, dim): who for dim in DIMS for setting, who in settings(lengths, dim).items()}
        inputs, expected, best = {}, {}, dict.fromkeys(DIMS, np.inf)
        for dim in DIMS:
            inputs[dim] = cp.zeros((csr.columns, row_pitch(dim, 4)), cp.float32)[:, :dim]
            inputs[dim][...] = cp.random.default_rng(dim).random((csr.columns, dim), dtype=cp.float32) * 2 - 1
            expected[dim] = cp.empty((csr.rows, dim), cp.float32)
            self._operators.spmm_rows(cp.asarray(csr.indptr), indices, None, inputs[dim], expected[dim], False)
        groups, cut = None, None
        for setting, dim in sorted(asked, key=lambda each: (-each[0].ngs, each[0].tpb, -each[0].dw, each[1])):
            if cut != (setting.ngs, setting.a_block):
                groups, cut = None, (setting.ngs, setting.a_block)
                groups = on_device(groups_of(csr.indptr, setting))
            out = cp.empty_like(expected[dim])
            ms = self._one(groups, indices, inputs[dim], out, setting, best[dim])
            if ms is not None:
                best[dim] = min(best[dim], ms)
                if not bool(cp.all(cp.abs(out - expected[dim]) <= bound)):
                    self.failed += 1
                    click.echo(f"FAILED {name}, D = {dim}, {setting}")
            self.record(graph=name, dim=dim, by=asked[setting, dim], ms=ms, **asdict(setting))
        for dim in DIMS:
            click.echo(f"{name:<14} D {dim:>3}: best {best[dim]:.3f} ms")

    def _one(
        self, groups: Groups, indices: cp.ndarray, b: cp.ndarray, out: cp.ndarray, setting: Setting, best: float
    ) -> float | None:
        """Milliseconds; None where partial sums do not fit the GPU's memory."""

        def launch() -> None:
            self._operators.gnnadvisor(groups, indices, None, b, out, setting)

        try:
            first = milliseconds(launch, 0, 1)
            return first if first > SLOW * best else milliseconds(launch, 2, 5)
        except cp.cuda.memory.OutOfMemoryError:
            return None
        finally:
            cp.get_default_memory_pool().free_all_blocks()


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--graphs", default=",".join(communities.SHAPES), show_default=True, help="separated by commas")
@click.option("--scale", type=float, default=1.0, show_default=True, help="size as a share of the full graphs")
def main(out: Path, graphs: str, scale: float) -> None:
    """Sweep, then fit."""
    path = out / "gpu_gnnadvisor.jsonl"
    device = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    click.echo(device)
    bench = Bench(path)
    for name in graphs.split(","):
        bench.sweep(name, generated(name, scale))
    click.echo(report(read(path), device))
    sys.exit(4 if bench.failed else 0)


if __name__ == "__main__":
    main()
