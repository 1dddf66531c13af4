"""Seeded stand-ins for citation graphs: directed, with most arcs to earlier nodes; streamed, so that any size fits.

Never report a figure measured on one of them under the name of a real graph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np

from mgg.errors import InputError
from mgg.graph.budget import MIB, fit
from mgg.graph.csr import index_dtype, inverse
from mgg.graph.generators import Generator, generator
from mgg.graph.sources import Arcs, ArcStream, FeatureStream, StreamedGraph

SEED = 2026
#: Maximum arcs drawn, and nodes given features, at once; number of blocks drawn in parallel.
BLOCK_ARCS, BLOCK_ROWS, THREADS = 2**18, 2**14, 4
#: Bytes for drawing in addition to the bytes per node, including features on their way to the disk.
DRAWING = 384 * MIB
#: Exponent of the citations of a node against its rank by age; standard deviation of the logarithm of the number of
#: nodes that a node cites; share of citations that leave the community; share that may cite a node that is not older.
SKEW, SPREAD, LEAVING, LATER = 0.55, 0.9, 0.25, 0.03
#: Share of a community's nodes that have its own class; the others have any class.
OWN_CLASS = 0.8
#: Distance of a class's mean feature vector from the origin, in standard deviations of one feature.
SIGNAL = 2.0
#: Ages at which the training nodes and the validation nodes end.
TRAIN, VALIDATION = 0.78, 0.86
#: Kinds of draws; each has its own stream of random numbers per block.
_ARCS, _CLASSES, _CENTERS, _FEATURES, _ORDER = range(5)
T = TypeVar("T")


@dataclass(frozen=True)
class CitationShape:
    """The properties of a graph at scale 1.

    Attributes:
        nodes: number of nodes.
        arcs: arcs drawn; repeats and self-loops among them are dropped, some 1.5 %.
        communities: number of communities, all of about one size.
        classes, features: of the nodes.
        labeled: share of the nodes that have a label.
    """

    nodes: int
    arcs: int
    communities: int
    classes: int
    features: int
    labeled: float


SHAPES = {
    "citation-like": CitationShape(169_343, 1_185_000, 40, 40, 128, 1.0),
    "papers-like": CitationShape(111_059_956, 1_640_000_000, 10_000, 172, 128, 0.0139),
}


def make(name: str, scale: float, seed: int, shuffle: bool) -> StreamedGraph:
    """Make a citation graph: an arc goes from the citing to the cited node.

    ``scale`` multiplies nodes, arcs and communities. The nodes of a community are numbered by age. A node cites a
    log-normal number of others, in its own community or, with probability ``LEAVING``, in one at a log-uniform distance
    on the ring of communities. Of the nodes there that are older than itself, it cites the oldest most often. So
    in-degrees follow a power law, as if nodes were cited in proportion to their citations (Barabasi and Albert). Most
    of a community's nodes have its class. Features are the class's mean vector plus normal noise, rounded to the 8
    significant bits of bfloat16, which halves their shards. Labeled nodes are split by age; if chance leaves a class
    without training nodes, its first node becomes one. ``shuffle`` permutes the node ids.

    Raises:
        InputError: ``scale`` leaves no node.
        MachineError: the data kept per node exceed the memory budget.
    """
    shape = SHAPES[name]
    n, arcs = int(shape.nodes * scale), int(shape.arcs * scale)
    if n < 1:
        raise InputError(f"{name}: scale {scale} gives {n} nodes; choose a larger one")
    fit(DRAWING + (17 if shuffle else 5) * n, f"{name} at scale {scale:g}")
    groups = _Groups(n, max(1, int(shape.communities * scale)))
    classes, labels, splits = np.empty(n, np.int16), np.empty(n, np.int16), np.empty(n, np.uint8)
    for number, (lo, hi) in enumerate(_ranges(n, BLOCK_ARCS)):
        rng = _rng(seed, _CLASSES, number)
        home, age = groups.of(np.arange(lo, hi))
        any_class = rng.integers(0, shape.classes, hi - lo)
        classes[lo:hi] = np.where(rng.random(hi - lo) < OWN_CLASS, home % shape.classes, any_class)
        known = rng.random(hi - lo) < shape.labeled
        labels[lo:hi] = np.where(known, classes[lo:hi], -1)
        splits[lo:hi] = np.where(known, 1 + np.searchsorted([TRAIN, VALIDATION], age, side="right"), 0)
    for lacking in np.flatnonzero(np.bincount(classes[splits == 1], minlength=shape.classes) == 0):
        first = np.flatnonzero(classes == lacking)[:1]
        labels[first], splits[first] = lacking, 1
    order = None
    if shuffle:
        order = np.arange(n, dtype=index_dtype(n))
        _rng(seed, _ORDER, 0).shuffle(order)
        at = inverse(order)
        classes, labels, splits = classes[at], labels[at], splits[at]
    centers = _rng(seed, _CENTERS, 0).standard_normal((shape.classes, shape.features))
    centers = (centers * (SIGNAL / np.linalg.norm(centers, axis=1, keepdims=True))).astype(np.float32)
    nodes = _ranges(n, max(1, BLOCK_ARCS * n // max(arcs, 1)))
    rows = _ranges(n, BLOCK_ROWS)
    return StreamedGraph(
        ArcStream(lambda: _ahead(nodes, partial(_cited, groups, arcs, seed, order)), n),
        FeatureStream(lambda: _ahead(rows, partial(_features, classes, centers, seed)), shape.features),
        labels, splits, shape.classes,
    )  # fmt: skip


@dataclass(frozen=True)
class _Groups:
    """``nodes`` nodes in ``count`` consecutive communities."""

    nodes: int
    count: int

    def of(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the community of each node, and the share of the community that is older than the node."""
        home = nodes * self.count // self.nodes
        first = self.first(home)
        return home, (nodes - first) / (self.first(home + 1) - first)

    def first(self, community: np.ndarray) -> np.ndarray:
        """Return the first node of each community; for the community after the last, the number of nodes."""
        return -(-community * self.nodes // self.count)


def _cited(groups: _Groups, arcs: int, seed: int, order: np.ndarray | None, number: int, lo: int, hi: int) -> Arcs:
    rng = _rng(seed, _ARCS, number)
    count = hi * arcs // groups.nodes - lo * arcs // groups.nodes
    ends = np.cumsum(rng.lognormal(0, SPREAD, hi - lo))
    # Round the cumulative ends, not single counts, so that the sum is exact.
    ends = np.rint(ends * (count / ends[-1])).astype(np.int64)
    citing = np.repeat(np.arange(lo, hi), np.diff(ends, prepend=0))
    home, age = groups.of(citing)
    hop = np.exp(rng.random(count) * np.log(max(2, groups.count // 2))).astype(np.int64)
    hop = np.where(rng.random(count, np.float32) < 0.5, -hop, hop)
    there = np.where(rng.random(count, np.float32) < LEAVING, (home + hop) % groups.count, home)
    first = groups.first(there)
    size = groups.first(there + 1) - first
    older = np.where(rng.random(count, np.float32) < LATER, 1.0, age) * size
    rank = (older * rng.random(count) ** (1 / (1 - SKEW))).astype(np.int64)
    cited = first + np.minimum(rank, size - 1)
    return Arcs(cited, citing) if order is None else Arcs(order[cited], order[citing])


def _features(classes: np.ndarray, centers: np.ndarray, seed: int, number: int, lo: int, hi: int) -> np.ndarray:
    values = _rng(seed, _FEATURES, number).standard_normal((hi - lo, centers.shape[1]), np.float32)
    values += centers[classes[lo:hi]]
    bits = values.view(np.uint32)
    bits += np.uint32(0x8000)
    bits &= np.uint32(0xFFFF0000)
    return values


def _ranges(n: int, step: int) -> list[tuple[int, int]]:
    return list(pairwise([*range(0, n, step), n]))


def _rng(seed: int, what: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, what, number]))


def _ahead(ranges: list[tuple[int, int]], make: Callable[[int, int, int], T]) -> Iterator[T]:
    """Yield ``make(number, lo, hi)`` of each range in order, and compute some of them ahead."""
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(THREADS) as pool:
        for number, (lo, hi) in enumerate(ranges):
            waiting.append(pool.submit(make, number, lo, hi))
            if len(waiting) > THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


for _name, _shape in SHAPES.items():
    generator(
        Generator(
            _name, partial(make, _name), SEED, labels=True, nodes=_shape.nodes, arcs=_shape.arcs,
            features=_shape.features, streamed=True,
        )
    )  # fmt: skip
