"""Planted communities with features, labels and a split: a small graph on which a GNN must beat a plain classifier."""

from __future__ import annotations

import numpy as np

from mgg.errors import InputError
from mgg.graph.check import split_vector
from mgg.graph.csr import from_arcs, inverse
from mgg.graph.generators import Generator, generator
from mgg.graph.sources import GraphData

NODES = 2000
COMMUNITIES = 10
#: Edges drawn per node; each adds two arcs.
EDGES_PER_NODE = 5
#: Share of the edges that stay inside their community.
INSIDE = 0.8
FEATURES = 32
#: Distance of a community's mean feature vector from the origin, in standard deviations of one feature.
SIGNAL = 1.5
TRAIN, VALIDATION = 0.1, 0.25


def make(scale: float, seed: int, shuffle: bool) -> GraphData:
    """Make about ``2000 * scale`` nodes in 10 equal communities, which are the classes.

    Every node draws 5 edges, 80 % of them to its own community. Features are its community's mean vector plus normal
    noise. The split is random: 10 % training, 25 % validation, the rest testing. ``shuffle`` permutes the node ids,
    which otherwise follow the communities.

    Raises:
        InputError: ``scale`` leaves less than one node per community.
    """
    n = int(NODES * scale)
    if n < COMMUNITIES:
        raise InputError(f"planted: scale {scale} gives {n} nodes; at least {COMMUNITIES} are needed")
    rng = np.random.Generator(np.random.PCG64(seed))
    community = np.arange(n) * COMMUNITIES // n
    bounds = np.searchsorted(community, np.arange(COMMUNITIES + 1))
    here = np.repeat(np.arange(n), EDGES_PER_NODE)
    home = community[here]
    within = bounds[home] + (rng.random(len(here)) * (bounds[home + 1] - bounds[home])).astype(np.int64)
    there = np.where(rng.random(len(here)) < INSIDE, within, rng.integers(0, n, len(here)))
    centers = rng.standard_normal((COMMUNITIES, FEATURES))
    centers *= SIGNAL / np.linalg.norm(centers, axis=1, keepdims=True)
    features = (centers[community] + rng.standard_normal((n, FEATURES))).astype(np.float32)
    splits = _split(rng.permutation(n), community)
    order = rng.permutation(n) if shuffle else np.arange(n)
    csr = from_arcs(order[here], order[there], n=n, symmetrize=True, drop_loops=True)
    at, labels = inverse(order), community.astype(np.int32)
    return GraphData(csr, True, features[at], labels[at], splits[at], COMMUNITIES)


def _split(order: np.ndarray, community: np.ndarray) -> np.ndarray:
    train, validation = int(len(order) * TRAIN), int(len(order) * (TRAIN + VALIDATION))
    if len(np.unique(community[order[:train]])) < COMMUNITIES:
        # Chance left out a class, which then could not be learned: give a small graph a node of each class first.
        first = np.unique(community[order], return_index=True)[1]
        order = np.concatenate([order[first], np.delete(order, first)])
    return split_vector(
        len(order), "planted", train=order[:train], validation=order[train:validation], test=order[validation:]
    )


generator(Generator("planted", make, 0, labels=True, nodes=NODES, arcs=2 * EDGES_PER_NODE * NODES, features=FEATURES))
