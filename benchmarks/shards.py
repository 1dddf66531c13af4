"""Time and memory of making shards: python benchmarks/shards.py OUT --parts binary,matrix-market,ogb.

Every measurement is a process of its own, which compiles its loops on a tiny graph before the clock starts; its memory
is the most that it ever held, interpreter and libraries included. What is compared takes turns in one run. OUT gets
shards.jsonl, a line a measurement after one on the machine. Files are generated under --scratch and removed at the end.

binary         random 32-bit pairs, from an eighth of the arcs to all, and a straight line through the times
matrix-market  text of random entries: mgg graph to shards, beside scipy.io.mmread plus tocsr, which write nothing
ogb            edge.csv.gz as OGB has it: reading the arcs, and mgg graph to shards, beside ogb's own reader
"""

from __future__ import annotations

import gzip
import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv
from common import OUT, SCALE, Results, measured, run

from mgg.graph.budget import parse_size

SEED = 2026
CHUNK = 2**22
#: Arcs for each node of the generated graphs.
DEGREE = 20
#: Compile what will be used, on a graph of two nodes of the same kind, and let the memory go.
WARM = """
import shutil, tempfile
from mgg.graph.build import build
from mgg.graph.external import Memory
warm = Path(tempfile.mkdtemp())
build(paths[0], warm / "graph", loader={loader!r})
shutil.rmtree(warm)
"""
BUILD = "build(paths[1], paths[2], loader={loader!r}, memory=Memory({memory}, {workers}))"
READ = """
chunks = find_loader('ogb')(paths[1]).arcs.read()
arcs = np.concatenate([np.stack([chunk.sources, chunk.targets]) for chunk in chunks], axis=1)
"""
MMREAD = "matrix = scipy.io.mmread(paths[1]).tocsr()"
#: OGB's own reader where the package is installed, else the line of it that reads the arcs.
OGB = (
    "from ogb.io.read_graph_raw import read_csv_graph_raw",
    "arcs = read_csv_graph_raw(str(paths[1] / 'raw'))[0]['edge_index']",
)
PANDAS = (
    "import numpy as np, pandas as pd",
    "arcs = pd.read_csv(paths[1] / 'raw' / 'edge.csv.gz', compression='gzip', header=None).values.T.astype(np.int64)",
)


def pairs(arcs: int, nodes: int) -> Iterator[np.ndarray]:
    """int32 [chunk, 2] random pairs."""
    rng = np.random.default_rng(SEED)
    for lo in range(0, arcs, CHUNK):
        yield rng.integers(0, nodes, (min(CHUNK, arcs - lo), 2), dtype=np.int32)


def write_binary(path: Path, arcs: int) -> None:
    """An .npy file of pairs."""
    out = np.lib.format.open_memmap(path, "w+", np.int32, (arcs, 2))
    for k, block in enumerate(pairs(arcs, max(2, arcs // DEGREE))):
        out[k * CHUNK : k * CHUNK + len(block)] = block


def write_text(file: pa.NativeFile | gzip.GzipFile, arcs: int, delimiter: str, first: int) -> None:
    """Lines of two numbers; ``first`` is the lowest id."""
    options = pa.csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style="none")
    for block in pairs(arcs, max(2, arcs // DEGREE)):
        table = pa.table({"a": block[:, 0] + first, "b": block[:, 1] + first})
        pa.csv.write_csv(table, file, options)


def write_matrix_market(path: Path, arcs: int) -> None:
    """A pattern general file."""
    nodes = max(2, arcs // DEGREE)
    with path.open("wb") as file:
        file.write(f"%%MatrixMarket matrix coordinate pattern general\n{nodes} {nodes} {arcs}\n".encode())
        write_text(file, arcs, " ", 1)


def write_ogb(path: Path, arcs: int) -> None:
    """A folder as OGB's archives unpack to, without node data."""
    (path / "raw").mkdir(parents=True)
    with gzip.open(path / "raw" / "edge.csv.gz", "wb", compresslevel=6) as file:
        write_text(file, arcs, ",", 0)
    for name, count in (("num-node-list", max(2, arcs // DEGREE)), ("num-edge-list", arcs)):
        with gzip.open(path / "raw" / f"{name}.csv.gz", "wt", encoding="ascii") as file:
            file.write(f"{count}\n")


class Bench:
    """A part of a run: its settings, and the measurements that it has made."""

    def __init__(self, part: str, results: Results, scratch: Path, memory: int, workers: int, repeat: int) -> None:
        self.part, self.results, self.scratch, self.repeat = part, results, scratch, repeat
        self._memory, self._workers = memory, workers
        self.made: list[dict[str, Any]] = []

    def prepared(self, write: Callable[[Path, int], None], name: str, arcs: int) -> tuple[Path, Path]:
        """The tiny file and the one to measure."""
        tiny, whole = self.scratch / f"tiny-{name}", self.scratch / name
        write(tiny, 40)
        write(whole, arcs)
        return tiny, whole

    def run(self, what: str, arcs: int, turn: int, prepare: str, timed: str, *paths: Path) -> None:
        """Measure once and keep it."""
        out = self.scratch / "out"
        shutil.rmtree(out, ignore_errors=True)
        found = measured(prepare, timed, *paths, out)
        self.made.append({"part": self.part, "what": what, "arcs": arcs, "turn": turn, **found})
        self.results.record(**self.made[-1], memory=self._memory, workers=self._workers)
        shown = f"{self.part:<14} {what:<8} {arcs / 1e6:>6.1f} M arcs  {found['seconds']:>7.2f} s"
        speed = f"{arcs / found['seconds'] / 1e6:>6.1f} M arcs/s"
        self.results.say(f"{shown}  {speed}  {found['peak_bytes'] / 2**20:>7.0f} MiB")

    def shards(self, loader: str, arcs: int, turn: int, *paths: Path) -> None:
        """Measure mgg graph."""
        timed = BUILD.format(loader=loader, memory=self._memory, workers=self._workers)
        self.run("mgg", arcs, turn, WARM.format(loader=loader), timed, *paths)

    def ratio(self, what: str, other: str, field: str) -> float:
        """Median over the turns of one's figure over another's in the same turn."""
        values = {(each["what"], each["turn"]): each[field] for each in self.made}
        return float(np.median([values[what, k] / values[other, k] for k in range(self.repeat)]))


def binary(bench: Bench, arcs: int) -> None:
    """Time against arcs, and a straight line through them."""
    sizes = [arcs // 8, arcs // 4, arcs // 2, arcs]
    files = [bench.prepared(write_binary, f"edges-{size}.npy", size) for size in sizes]
    for turn in range(bench.repeat):
        for size, paths in zip(sizes, files, strict=True):
            bench.shards("edges", size, turn, *paths)
    x, y = (np.array([each[field] for each in bench.made]) for field in ("arcs", "seconds"))
    slope, start = np.polyfit(x, y, 1)
    explained = 1 - ((y - slope * x - start) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    click.echo(f"fit: {start:.2f} s + {slope * 1e9:.1f} ns an arc, R^2 = {explained:.4f}")


def matrix_market(bench: Bench, arcs: int) -> None:
    """Shards beside mmread plus tocsr."""
    paths = bench.prepared(write_matrix_market, "matrix.mtx", arcs)
    for turn in range(bench.repeat):
        bench.run("scipy", arcs, turn, "import scipy.io", MMREAD, *paths)
        bench.shards("matrix_market", arcs, turn, *paths)
    time, peak = bench.ratio("mgg", "scipy", "seconds"), bench.ratio("mgg", "scipy", "peak_bytes")
    click.echo(f"mgg / scipy: {time:.2f} of the time, {peak:.2f} of the peak memory")


def ogb(bench: Bench, arcs: int) -> None:
    """Arcs read, and shards, beside what ogb does."""
    paths = bench.prepared(write_ogb, "ogbn-random", arcs)
    other, commands = ("ogb", OGB) if importlib.util.find_spec("ogb") else ("pandas", PANDAS)
    for turn in range(bench.repeat):
        bench.run(other, arcs, turn, *commands, *paths)
        reader = WARM.format(loader="ogb") + "\nimport numpy as np\nfrom mgg.graph.sources import find_loader"
        bench.run("read", arcs, turn, reader, READ, *paths)
        bench.shards("ogb", arcs, turn, *paths)
    read, made = bench.ratio(other, "read", "seconds"), bench.ratio(other, "mgg", "seconds")
    click.echo(f"{other} / mgg: reading {read:.2f} times as fast, shards written {made:.2f} times as fast")


PARTS = {"binary": (binary, 200_000_000), "matrix-market": (matrix_market, 50_000_000), "ogb": (ogb, 20_000_000)}


@click.command()
@OUT
@click.option("--parts", default=",".join(PARTS), show_default=True, help="separated by commas")
@SCALE
@click.option("--memory", default="1GiB", show_default=True, help="budget of mgg graph")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="threads of mgg graph")
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="turns")
@click.option("--scratch", type=click.Path(path_type=Path), help="folder for the generated files")
def main(out: Path, parts: str, scale: float, memory: str, workers: int, repeat: int, scratch: Path | None) -> None:
    """Measure each part and print a table."""
    results = Results(out / "shards.jsonl")
    results.about()
    for part in parts.split(","):
        measure, arcs = PARTS[part]
        with tempfile.TemporaryDirectory(prefix="mgg-", dir=scratch) as folder:
            measure(Bench(part, results, Path(folder), parse_size(memory), workers, repeat), int(arcs * scale))


if __name__ == "__main__":
    run(main)
