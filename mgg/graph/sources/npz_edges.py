"""Lists of edges and node data in ``.npz`` files of other programs.

The names of the members tell the programs apart: heterophilous graphs (O. Platonov et al., "A critical look at the
evaluation of GNNs under heterophily", ICLR 2023), GNNAdvisor (OSDI'21), and PyTorch Geometric's ``Data``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mgg.errors import InputError
from mgg.graph.check import SPLITS, check_ids, check_labels, finite_rows
from mgg.graph.io.columns import what_is_read
from mgg.graph.io.npz import Npz
from mgg.graph.sources import CHUNK_ARCS, Arcs, ArcStream, FeatureStream, StreamedGraph
from mgg.graph.sources.scipy_npz import finite_weights

#: float32 values per block of features: 16 MiB.
_BLOCK_VALUES = 2**22
MOST_COLUMNS = 2**20


@dataclass(frozen=True)
class _Members:
    """A program's names of members; "" for members that its files do not have.

    Attributes:
        edges: [edges, 2] or [2, edges], or the names of two members, [edges] each: sources and targets.
        nodes: the number of nodes.
        features, labels, weights: [nodes, columns], [nodes], [edges].
        masks: training, validation and test, each [nodes], or several masks as rows, of which the first counts.
        undirected: each edge is listed once and stands for both directions.
    """

    edges: tuple[str, ...]
    nodes: str = ""
    features: str = ""
    labels: str = ""
    weights: str = ""
    masks: tuple[str, ...] = ()
    undirected: bool = False


_PROGRAMS = {
    "heterophilous graphs": _Members(
        ("edges",), features="node_features", labels="node_labels",
        masks=("train_masks", "val_masks", "test_masks"), undirected=True,
    ),
    "GNNAdvisor": _Members(("src_li", "dst_li"), nodes="num_nodes"),
    "PyTorch Geometric": _Members(
        ("edge_index",), nodes="num_nodes", features="x", labels="y", weights="edge_weight",
        masks=("train_mask", "val_mask", "test_mask"),
    ),
}  # fmt: skip


def has_edges(file: Npz) -> bool:
    """Return whether a file has a list of edges under a known name."""
    return any(set(each.edges) <= file.keys for each in _PROGRAMS.values())


def edges(path: Path) -> StreamedGraph:
    """Read the graph of such a file; the result lists the members read and ignored.

    Each pair is source, then target. Edges of heterophilous graphs stand for both directions, as in their authors'
    code. If the file has no number of nodes, features, labels or masks give it, else the largest id + 1.

    Raises:
        InputError: names the file and the member with a wrong shape or type, an id out of range, or overlapping splits.
    """
    with Npz(path) as file:
        members = next(each for each in _PROGRAMS.values() if set(each.edges) <= file.keys)
        reader = _Reader(path, members)
        nodes = reader.count_nodes(file)
        weighted = reader.has(file, members.weights) and any((b != 1).any() for b in file.flat(members.weights, 2**20))
        labels = reader.labels(file, nodes) if reader.has(file, members.labels) else None
        splits = reader.splits(file, nodes)
        features = reader.features(file, nodes) if reader.has(file, members.features) else None
        columns = reader.columns(file)
    stream = ArcStream(lambda: reader.arcs(nodes, weighted), nodes, weighted, undirected=members.undirected)
    return StreamedGraph(stream, features, labels, splits, columns=columns)


class _Reader:
    def __init__(self, path: Path, members: _Members) -> None:
        self._path, self._members = path, members
        self._read: list[str] = [*members.edges]
        self._masks: list[str] = []

    def has(self, file: Npz, key: str) -> bool:
        """Return whether a member exists; it then counts as read."""
        found = bool(key) and key in file.keys
        self._read += [key] * found
        return found

    def columns(self, file: Npz) -> dict[str, dict[str, Any]]:
        members, read = self._members, set(self._read)
        ends = members.edges if len(members.edges) == 2 else [f"{members.edges[0]}[{end}]" for end in (0, 1)]
        roles = {"label": members.labels, "features": members.features, "split": self._masks}
        return what_is_read(
            edges={
                "source": ends[0], "target": ends[1], "weight": members.weights if members.weights in read else "",
                "direction": "each edge stands for both" if members.undirected else "",
            },
            nodes={role: key for role, key in roles.items() if role == "split" or key in read},
            members={"ignored": sorted(file.keys - read)},
        )  # fmt: skip

    def count_nodes(self, file: Npz) -> int:
        members = self._members
        if self.has(file, members.nodes):
            value = file.array(members.nodes)
            if value.size != 1 or value.dtype.kind not in "iu" or int(value.reshape(-1)[0]) < 1:
                raise self._error(members.nodes, f"{value.dtype} of shape {value.shape}; expected one number of nodes")
            return int(value.reshape(-1)[0])
        for key in (members.features, members.labels):
            if key and key in file.keys and (shape := file.header(key).shape):
                return shape[0]
        if members.masks and members.masks[0] in file.keys:
            return file.header(members.masks[0]).shape[-1]
        largest = max((int(ids.max(initial=-1)) for pair in self._pairs(file) for ids in pair), default=-1)
        if largest < 0:
            raise InputError(f"{self._path}: has no edges, so no nodes")
        return largest + 1

    def labels(self, file: Npz, nodes: int) -> np.ndarray:
        key = self._members.labels
        found = file.array(key)
        found = found.reshape(-1) if found.shape == (nodes, 1) else found
        if found.dtype.kind == "f" and (found == np.floor(found)).all():
            found = found.astype(np.int64)
        check_labels(found, nodes, None, f"{self._path}: {key}")
        return found

    def splits(self, file: Npz, nodes: int) -> np.ndarray | None:
        """Return the split from the existing masks, uint8 [nodes]."""
        found = np.zeros(nodes, np.uint8)
        keys = [key for key in self._members.masks if self.has(file, key)]
        for key in keys:
            mask = file.array(key)
            if mask.ndim == 2 and mask.shape[1] == nodes:
                self._masks.append(f"{key}[0] of {len(mask)}")
                mask = mask[0]
            else:
                self._masks.append(key)
            if mask.shape != (nodes,) or mask.dtype.kind not in "biu" or not np.isin(mask, (0, 1)).all():
                raise self._error(key, f"{mask.dtype} of shape {mask.shape}; expected a mask of {nodes} nodes")
            again = np.flatnonzero((found != 0) & (mask != 0))
            if again.size:
                raise self._error(key, f"has node {again[0]}, which another mask has, too")
            found[mask != 0] = SPLITS[{"train": "train", "val": "validation", "test": "test"}[key.split("_")[0]]]
        return found if keys else None

    def features(self, file: Npz, nodes: int) -> FeatureStream:
        """Return the features as a stream of float32 rows, read block by block."""
        key, path = self._members.features, self._path
        shape = file.header(key).shape
        if len(shape) != 2 or shape[0] != nodes or not 1 <= shape[1] <= MOST_COLUMNS:
            raise self._error(key, f"has shape {shape}; expected {nodes} rows, 1..{MOST_COLUMNS} columns")

        def read() -> Iterator[np.ndarray]:
            first = 0
            with Npz(path) as opened:
                for block in opened.blocks(key, max(1, _BLOCK_VALUES // shape[1])):
                    yield finite_rows(block, first, path)
                    first += len(block)

        return FeatureStream(read, shape[1])

    def arcs(self, nodes: int, weighted: bool) -> Iterator[Arcs]:
        first = 0
        with Npz(self._path) as file:
            weights = file.blocks(self._members.weights, CHUNK_ARCS) if weighted else None
            for sources, targets in self._pairs(file):
                for ids in (sources, targets):
                    check_ids(ids, nodes, self._path, first)
                values = None if weights is None else next(weights, None)
                if weights is not None and (values is None or values.shape != sources.shape):
                    raise self._error(self._members.weights, "expected a weight for each edge")
                checked = None if values is None else finite_weights(values, first, self._path)
                yield Arcs(targets, sources, checked)
                first += len(sources)

    def _pairs(self, file: Npz) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        keys = self._members.edges
        headers = [file.header(key) for key in keys]
        if any(header.dtype.kind not in "iu" for header in headers):
            raise self._error(keys[0], f"{headers[0].dtype}; expected ids, which are integers")
        shapes = [header.shape for header in headers]
        if len(keys) == 2:
            if len(shapes[0]) != 1 or shapes[0] != shapes[1]:
                raise self._error(keys[0], f"{shapes[0]} and {shapes[1]}; expected as many sources as targets")
            yield from zip(*(file.blocks(key, CHUNK_ARCS) for key in keys), strict=True)
        elif len(shapes[0]) == 2 and shapes[0][0] == 2 and (shapes[0][1] != 2 or keys[0] == "edge_index"):
            sources, targets = file.array(keys[0])
            for at in range(0, len(sources), CHUNK_ARCS):
                yield sources[at : at + CHUNK_ARCS], targets[at : at + CHUNK_ARCS]
        elif len(shapes[0]) == 2 and shapes[0][1] == 2:
            for block in file.blocks(keys[0], CHUNK_ARCS):
                yield block[:, 0], block[:, 1]
        else:
            raise self._error(keys[0], f"has shape {shapes[0]}; expected pairs of ids")

    def _error(self, key: str, problem: str) -> InputError:
        return InputError(f"{self._path}: {key}: {problem}")
