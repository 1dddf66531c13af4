"""The graph folder: Parquet CSR shards and their manifest (docs/reference/format.md)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from mgg.errors import InputError
from mgg.files import replace_folder
from mgg.graph import manifest as manifests
from mgg.graph.check import check_csr, check_ids
from mgg.graph.csr import Csr, has_loops, index_dtype, is_symmetric
from mgg.graph.manifest import KIND, Manifest, Shard
from mgg.graph.store import shards
from mgg.graph.store.nodes import NodeData, write_nodes
from mgg.graph.store.parts import PartWriter, SortedRows
from mgg.graph.store.shards import Kind

__all__ = ["Graph", "Manifest", "Shard", "write_graph"]


class Graph:
    """A graph folder opened for reading; threads may share it.

    Attributes:
        path: the folder.
        manifest: its checked manifest.
        hash: sha256 (hex) of the manifest, which has the hash of every shard, so it identifies the graph.
    """

    def __init__(self, path: Path, manifest: Manifest, digest: str) -> None:
        self.path = path
        self.manifest = manifest
        self.hash = digest
        self._parts: dict[Kind, list[tuple[str, Shard]]] = {kind: manifest.parts(kind) for kind in shards.COLUMNS}
        self._verified: dict[str, tuple[int, int]] = {}

    @classmethod
    def open(cls, path: str | Path) -> Graph:
        """Open a graph folder; if its manifest is wrong, raises InputError with the file and field."""
        path = Path(path)
        return cls(path, *manifests.load(path))

    def offsets(self) -> np.ndarray:
        """Return the start of each row's arcs: int64 [nodes + 1]."""
        return self._offsets(0, self.manifest.nodes)

    def rows(self, lo: int, hi: int) -> Csr:
        """Read rows lo..hi-1 of the adjacency, and only the parts they need; ``indptr`` begins at 0, ids are global.

        Raises:
            InputError: a part is missing, truncated, altered or not what the manifest says.
        """
        self._range(lo, hi)
        offsets = self._offsets(lo, hi)
        begin, arcs = int(offsets[0]), int(offsets[-1] - offsets[0])
        indices = np.empty(arcs, self.manifest.index_dtype)
        weights = np.empty(arcs, np.float32) if self.manifest.weighted else None
        self._fill_arcs("adjacency", begin, indices)
        if weights is not None:
            self._fill_arcs("weights", begin, weights)
        types = np.empty(arcs, np.int32) if self.manifest.relations else None
        if types is not None:
            self._fill_arcs("arc_types", begin, types)
        return Csr(offsets - begin, indices, weights, self.manifest.nodes, types)

    def blocks(self) -> Iterator[tuple[int, Csr]]:
        """Yield all rows in order, one part of the adjacency at a time: its first row, and its rows as a Csr.

        A part has a few million arcs or a single row, so it fits in memory; each part is read once.
        """
        for _, shard in self._parts["adjacency"]:
            yield shard.first, self.rows(shard.first, shard.first + shard.rows)

    def features(self, lo: int, hi: int) -> np.ndarray | None:
        """Return the features of nodes lo..hi-1: float32 [hi - lo, features], or None if the graph has none."""
        width = self.manifest.features
        return self._nodes("features", lo, hi, np.empty((hi - lo, width), np.float32)) if width else None

    def labels(self, lo: int, hi: int) -> np.ndarray | None:
        """Return the labels of nodes lo..hi-1: int32 [hi - lo], -1: unlabeled, or None if the graph has none."""
        return self._nodes("labels", lo, hi, np.empty(hi - lo, np.int32)) if self.manifest.classes else None

    def splits(self, lo: int, hi: int) -> np.ndarray | None:
        """Return the splits of nodes lo..hi-1: uint8 [hi - lo] (0 none, 1 train, 2 validation, 3 test), or None."""
        return self._nodes("splits", lo, hi, np.empty(hi - lo, np.uint8)) if self._parts["splits"] else None

    def tasks(self, lo: int, hi: int) -> np.ndarray | None:
        """Return the tasks of nodes lo..hi-1: uint8 [hi - lo, tasks] (0, 1, 255: unknown), or None if it has none."""
        width = self.manifest.tasks
        return self._nodes("tasks", lo, hi, np.empty((hi - lo, width), np.uint8)) if width else None

    def ids(self, lo: int, hi: int) -> np.ndarray | None:
        """Return the source's ids of nodes lo..hi-1: int64 [hi - lo], or None if they equal the graph's ids."""
        return self._nodes("ids", lo, hi, np.empty(hi - lo, np.int64)) if self._parts["ids"] else None

    def _range(self, lo: int, hi: int) -> None:
        if not 0 <= lo <= hi <= self.manifest.nodes:
            raise ValueError(f"rows {lo}..{hi} of a graph of {self.manifest.nodes} nodes")

    def _offsets(self, lo: int, hi: int) -> np.ndarray:
        out = np.zeros(hi - lo + 1, np.int64)
        for name, shard in self._overlapping("offsets", lo, hi):
            block = self._read(name, "offsets", shard)
            a, b = max(lo, shard.first), min(hi, shard.first + shard.rows)
            out[a - lo : b - lo + 1] = block[a - shard.first : b - shard.first + 1]
        if (np.diff(out) < 0).any() or out[0] < 0 or out[-1] > self.manifest.arcs:
            raise InputError(f"{self.path}/offsets: offsets of nodes {lo}..{hi} do not ascend within the arcs")
        if (lo == 0 and out[0] != 0) or (hi == self.manifest.nodes and out[-1] != self.manifest.arcs):
            raise InputError(f"{self.path}/offsets: do not go from 0 to the {self.manifest.arcs} arcs of the manifest")
        return out

    def _fill_arcs(self, kind: Kind, begin: int, out: np.ndarray) -> None:
        """Fill ``out`` with the values of arcs begin..begin+len(out)-1 (arc numbers of the whole graph)."""
        end, start = begin + len(out), 0
        for name, shard in self._parts[kind]:
            stop = start + (shard.arcs or 0)
            a, b = max(begin, start), min(end, stop)
            if a < b:
                block = self._read(name, kind, shard)
                if kind == "adjacency":
                    check_ids(block, self.manifest.nodes, str(self.path / name))
                out[a - begin : b - begin] = block[a - start : b - start]
            start = stop

    def _nodes(self, kind: Kind, lo: int, hi: int, out: np.ndarray) -> np.ndarray:
        self._range(lo, hi)
        for name, shard in self._overlapping(kind, lo, hi):
            a, b = max(lo, shard.first), min(hi, shard.first + shard.rows)
            out[a - lo : b - lo] = self._read(name, kind, shard)[a - shard.first : b - shard.first]
        return out

    def _overlapping(self, kind: Kind, lo: int, hi: int) -> Iterator[tuple[str, Shard]]:
        for name, shard in self._parts[kind]:
            if shard.first < hi and lo < shard.first + shard.rows:
                yield name, shard

    def _read(self, name: str, kind: Kind, shard: Shard) -> np.ndarray:
        """Read a part; its hash is checked once, and again only if the file changes."""
        path = self.path / name
        try:
            status = path.stat()
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; make the graph again") from None
        state = (status.st_ino, status.st_mtime_ns)
        dtype = self.manifest.index_dtype if kind == "adjacency" else shards.DTYPES[kind]
        fresh = self._verified.get(name) != state
        width = {"features": self.manifest.features, "tasks": self.manifest.tasks}.get(kind, 0)
        values = shards.read_part(path, kind, shard, dtype, width, verify=fresh)
        self._verified[name] = state
        return values


def write_graph(
    path: str | Path,
    csr: Csr,
    *,
    name: str,
    source: dict[str, Any],
    features: np.ndarray | None = None,
    labels: np.ndarray | None = None,
    tasks: np.ndarray | None = None,
    splits: np.ndarray | None = None,
    classes: int | None = None,
    symmetric: bool | None = None,
) -> Manifest:
    """Write a graph in memory to a folder, replacing any graph there; the same input gives the same bytes.

    Args:
        path: the folder.
        csr: the whole square adjacency matrix.
        name: name of the graph.
        source: the graph's origin; plain YAML values that do not depend on the machine.
        features: [nodes, columns], stored as float32.
        labels: integers [nodes], -1: unlabeled.
        tasks: uint8 [nodes, tasks], yes-or-no labels: 0, 1, or 255: unknown.
        splits: [nodes], 0 none, 1 train, 2 validation, 3 test.
        classes: number of classes; None: the largest label + 1.
        symmetric: whether the matrix equals its transpose; None: transpose it to find out.

    Raises:
        InputError: names the wrong node, arc or column; nothing is written then.
    """
    check_csr(csr, name)
    data = NodeData(features, labels, splits, classes, tasks).checked(csr.rows, name)
    with replace_folder(path, KIND) as folder:
        parts = dict(_write_arcs(folder, csr))
        parts.update(write_nodes(folder, data, csr.rows, name))
        manifest = Manifest(
            name=name,
            nodes=csr.rows,
            arcs=csr.arcs,
            symmetric=is_symmetric(csr) if symmetric is None else symmetric,
            weighted=csr.weights is not None,
            index_dtype=index_dtype(csr.rows).name,
            features=data.width,
            classes=data.classes or 0,
            tasks=0 if tasks is None else tasks.shape[1],
            relations=0 if csr.types is None else int(csr.types.max(initial=0)) + 1,
            loops="keep" if has_loops(csr) else "drop",
            source=source,
            shards=parts,
        )
        manifests.save(folder, manifest)
    return manifest


def write_offsets(folder: Path, degrees: Iterator[np.ndarray]) -> Iterator[tuple[str, Shard]]:
    """Write the parts of a graph's offsets, and yield their names and manifest entries.

    Args:
        folder: the new graph folder.
        degrees: blocks of integers [VERTICES_PER_PART] (the last block: the rest), the number of arcs per row.
    """
    first, arcs = 0, 0
    for number, block in enumerate(degrees):
        values = np.empty(len(block) + 1, np.int64)
        values[0] = arcs
        np.cumsum(block, out=values[1:])
        values[1:] += arcs
        yield shards.write_part(folder, "offsets", number, values, first=first, rows=len(block))
        first, arcs = first + len(block), int(values[-1])


def _write_arcs(folder: Path, csr: Csr) -> Iterator[tuple[str, Shard]]:
    step = shards.VERTICES_PER_PART
    degrees = np.diff(csr.indptr)
    yield from write_offsets(folder, (degrees[lo : lo + step] for lo in range(0, csr.rows, step)))
    with ThreadPoolExecutor(1) as pool:
        writer = PartWriter(folder, 0, pool.submit, waiting=1)
        for lo in range(0, csr.rows, step):
            block = degrees[lo : lo + step]
            writer.add(SortedRows(block, _arcs(csr, lo, lo + len(block))))
        yield from writer.finish().items()


def _arcs(csr: Csr, lo: int, hi: int) -> dict[Kind, np.ndarray]:
    """Return the stored arrays of the arcs of rows lo..hi-1, by kind."""
    arcs = slice(int(csr.indptr[lo]), int(csr.indptr[hi]))
    dtypes = shards.DTYPES | {"adjacency": index_dtype(csr.rows).name}
    given: dict[Kind, np.ndarray | None] = {"adjacency": csr.indices, "weights": csr.weights, "arc_types": csr.types}
    return {kind: block[arcs].astype(dtypes[kind], copy=False) for kind, block in given.items() if block is not None}
