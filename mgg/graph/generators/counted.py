"""Seeded stand-ins with exactly the numbers of nodes, arcs and arc types that a paper prints, and nothing else.

The numbers come from table 2 of Seastar (EuroSys'21). Never report a figure measured on one of them under the name of
the real graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from mgg.errors import InputError
from mgg.graph.check import split_vector
from mgg.graph.csr import Csr, from_arcs, index_dtype
from mgg.graph.generators import Generator, generator
from mgg.graph.sources import GraphData

SEED = 2026
#: Exponents of the popularity of a node against its rank: for ends of edges, subjects and objects of a relation.
SKEW, SUBJECTS, OBJECTS = 0.45, 0.2, 0.7
#: Maximum batches of draws; if keys are still missing then, that is not by chance.
BATCHES = 200


@dataclass(frozen=True)
class PaperCounts:
    """The counts that a paper prints for a graph.

    Attributes:
        nodes: number of nodes.
        arcs: both directions counted.
        relations: types of arcs, half of them the reverse of the others; 0: arcs have none.
        train, test: labeled nodes of two classes; 0: none is labeled.
    """

    nodes: int
    arcs: int
    relations: int = 0
    train: int = 0
    test: int = 0


#: The labeled nodes of MUTAG and BGS come from R-GCN (Schlichtkrull et al., ESWC 2018, table 1).
COUNTS = {
    "cora-full-like": PaperCounts(19_794, 130_622),
    "physics-like": PaperCounts(34_494, 991_848),
    "photo-like": PaperCounts(7_651, 287_326),
    "mutag-like": PaperCounts(23_644, 148_454, 46, 272, 68),
    "bgs-like": PaperCounts(333_845, 1_832_398, 206, 117, 29),
}


def make(name: str, scale: float, seed: int, shuffle: bool) -> GraphData:
    """Make a symmetric graph without self-loops; ``scale`` multiplies nodes, arcs and labeled nodes.

    At very small scales the number of arcs is limited: they join at most half of all pairs of nodes.

    Both ends of an edge are drawn by a power law. With types, a few relations have most of the edges; each relation has
    at least one edge and its own popular nodes, with nearly uniform subjects and few objects, as in RDF. Labels are
    drawn uniformly, and a model learns nothing from them. ``shuffle`` permutes the node ids.

    Raises:
        InputError: ``scale`` leaves too few nodes for the arcs.
    """
    counts = COUNTS[name]
    n = int(counts.nodes * scale)
    edges = min(int(counts.arcs * scale) // 2, n * (n - 1) // 4)
    relations = counts.relations // 2
    if n < 4 or edges < max(relations, 1):
        raise InputError(f"{name}: scale {scale} gives {n} nodes and {2 * edges} arcs; choose a larger one")
    rng = np.random.Generator(np.random.PCG64(seed))
    order = rng.permutation(n) if shuffle else np.arange(n)
    lacking = f"{name}: scale {scale} leaves too few nodes, {n}, for {2 * edges} arcs: choose a larger one"
    if not relations:
        keys = _distinct(edges, lambda count: _edges(rng, count, n), lacking)
        low, high = np.divmod(keys, n)
        return GraphData(from_arcs(order[low], order[high], n=n, symmetrize=True), symmetric=True)
    shares = _shares(edges, relations)
    triples = [_triples(rng, relation, share, n, lacking) for relation, share in enumerate(shares)]
    subjects, objects = (order[np.concatenate(ends)] for ends in zip(*triples, strict=True))
    kinds = np.repeat(np.arange(relations), shares)
    csr = _typed(
        np.concatenate([objects, subjects]), np.concatenate([subjects, objects]),
        np.concatenate([kinds, kinds + relations]), n, 2 * relations,
    )  # fmt: skip
    labels, splits = _labeled(rng, name, n, *(max(2, int(part * scale)) for part in (counts.train, counts.test)))
    return GraphData(csr, labels=labels, splits=splits, classes=2)


def _popular(rng: np.random.Generator, count: int, n: int, skew: float) -> np.ndarray:
    """Draw ranks below ``n``, int64 [count]; low ranks are popular."""
    return np.minimum((n * rng.random(count) ** (1 / (1 - skew))).astype(np.int64), n - 1)


def _edges(rng: np.random.Generator, count: int, n: int) -> np.ndarray:
    """Return the keys of about ``count`` edges, the lower end first, without self-loops."""
    # Popular nodes are spread over the ids.
    one, other = (_popular(rng, count, n, SKEW) * _coprime(n) % n for _ in range(2))
    keep = one != other
    return (np.minimum(one, other) * n + np.maximum(one, other))[keep]


def _triples(
    rng: np.random.Generator, relation: int, count: int, n: int, lacking: str
) -> tuple[np.ndarray, np.ndarray]:
    shifts = rng.integers(0, n, 2)

    def draw(size: int) -> np.ndarray:
        subject, object_ = (
            (_popular(rng, size, n, skew) * _coprime(n) + shift) % n
            for skew, shift in zip((SUBJECTS, OBJECTS), shifts, strict=True)
        )
        return (subject * n + object_)[subject != object_]

    subjects, objects = np.divmod(_distinct(count, draw, lacking), n)
    return subjects, objects


def _distinct(count: int, draw: Callable[[int], np.ndarray], lacking: str) -> np.ndarray:
    keys = np.empty(0, np.int64)
    for _ in range(BATCHES):
        found, first = np.unique(np.concatenate([keys, draw(2 * (count - len(keys)) + 16)]), return_index=True)
        keys = found[np.argsort(first)][:count]
        if len(keys) == count:
            return keys
    raise InputError(lacking)


def _coprime(n: int) -> int:
    """Return a step that visits all of ``n`` places, with consecutive ones far apart."""
    step = max(1, int(n * 0.6180339887))
    while np.gcd(step, n) != 1:
        step += 1
    return step


def _shares(edges: int, relations: int) -> np.ndarray:
    """Return the edges per relation: one, plus a share of the others that falls with the relation's rank."""
    weights = 1 / np.arange(1, relations + 1)
    cuts = np.floor(np.cumsum(weights) / weights.sum() * (edges - relations) + 1e-9).astype(np.int64)
    cuts[-1] = edges - relations
    return 1 + np.diff(cuts, prepend=0)


def _typed(rows: np.ndarray, columns: np.ndarray, kinds: np.ndarray, n: int, relations: int) -> Csr:
    keys = np.sort((rows * n + columns) * relations + kinds)
    ends, types = np.divmod(keys, relations)
    targets, sources = np.divmod(ends, n)
    indptr = np.searchsorted(targets, np.arange(n + 1)).astype(np.int64)
    return Csr(indptr, sources.astype(index_dtype(n)), None, n, types.astype(np.int32))


def _labeled(rng: np.random.Generator, name: str, n: int, train: int, test: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, -1 for unlabeled nodes, and splits, each of which has both classes."""
    chosen = rng.permutation(n)[: train + test]
    labels = np.full(n, -1, np.int32)
    labels[chosen] = rng.integers(0, 2, len(chosen))
    for first in (0, train):
        labels[chosen[first : first + 2]] = 0, 1
    return labels, split_vector(n, name, train=chosen[:train], test=chosen[train:])


for _name, _counts in COUNTS.items():
    generator(Generator(_name, partial(make, _name), SEED, bool(_counts.relations), _counts.nodes, _counts.arcs))
