"""Seeded stand-ins for well-known large graphs, with only their size, degree skew and community structure.

Never report a figure measured on one of them under the name of the real graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from mgg.errors import InputError
from mgg.graph.csr import from_arcs, index_dtype
from mgg.graph.generators import Generator, generator
from mgg.graph.sources import GraphData

#: Edges per chunk, so that temporary arrays stay small next to those of the whole graph.
CHUNK = 2**22
#: Number of different popularity orders; further communities repeat them.
ORDERS = 64
SEED = 2026


@dataclass(frozen=True)
class CommunityShape:
    """The properties of a graph at scale 1.

    Attributes:
        nodes: number of nodes.
        arcs: arcs drawn, both directions counted; repeats and self-loops among them are dropped.
        communities: number of communities, all of the same size.
        leaving: probability that an edge leaves its community.
        skew: exponent of the popularity of a node against its rank in its community; 0: all nodes are equal.
    """

    nodes: int
    arcs: int
    communities: int
    leaving: float
    skew: float


SHAPES = {
    "reddit-like": CommunityShape(232_965, 114_615_892, 50, 0.30, 0.45),
    "products-like": CommunityShape(2_449_029, 123_718_280, 5_000, 0.12, 0.45),
    "orkut-like": CommunityShape(3_072_441, 234_370_166, 6_000, 0.30, 0.50),
    "web-like": CommunityShape(4_203_323, 101_000_000, 20_000, 0.10, 0.60),
    "proteins-like": CommunityShape(132_534, 79_122_504, 40, 0.10, 0.30),
    "it-like": CommunityShape(41_291_594, 1_150_725_437, 200_000, 0.05, 0.60),
}


def make(name: str, scale: float, seed: int, shuffle: bool) -> GraphData:
    """Make a symmetric graph without weights, self-loops, features or labels; ``scale`` multiplies its counts.

    An edge starts in a random community and ends in the same one or, with probability ``leaving``, in one at a
    log-uniform distance on the ring of communities; both ends are drawn inside their communities by a power law.
    ``shuffle`` permutes the node ids. The same seed gives the same graph, up to the rounding of ``power`` and ``exp``
    on the processor at hand, which moves a few arcs in a million. The order of the draws is part of that promise.

    Raises:
        InputError: ``scale`` leaves no node.
    """
    shape = SHAPES[name]
    n, edges = int(shape.nodes * scale), int(shape.arcs * scale) // 2
    communities = max(1, int(shape.communities * scale))
    if n < communities or n < 1:
        raise InputError(f"{name}: scale {scale} gives {n} nodes; choose a larger one")
    rng = np.random.Generator(np.random.PCG64(seed))
    size = n // communities
    home, other = _communities_of_edges(rng, edges, communities, shape.leaving)
    ids = index_dtype(n)
    start, end = (_popular_members(rng, at, size, shape.skew, ids) for at in (home, other))
    del home, other
    orders = [rng.permutation(size) for _ in range(min(communities, ORDERS))]
    final = _node_ids(np.concatenate(orders), communities, size, ids)
    if shuffle:
        final = rng.permutation(n).astype(ids)[final]
    csr = from_arcs(final[start], final[end], n=n, symmetrize=True, drop_loops=True)
    return GraphData(csr, symmetric=True)


def _communities_of_edges(
    rng: np.random.Generator, edges: int, communities: int, leaving: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the communities where each edge starts and ends, int32 [edges] each."""
    home = _draw(edges, np.int32, lambda at: rng.integers(0, communities, at.stop - at.start))
    leaves = _draw(edges, np.bool_, lambda at: rng.random(at.stop - at.start, dtype=np.float32) < leaving)
    farthest = np.log(max(2, communities // 2))
    hop = _draw(edges, np.int32, lambda at: np.exp(rng.random(at.stop - at.start) * farthest))

    def target(at: slice) -> np.ndarray:
        back = rng.random(at.stop - at.start, dtype=np.float32) < 0.5
        away = (home[at] + np.where(back, -hop[at], hop[at])) % communities
        return np.where(leaves[at], away, home[at])

    return home, _draw(edges, np.int32, target)


def _popular_members(
    rng: np.random.Generator, community: np.ndarray, size: int, skew: float, ids: np.dtype
) -> np.ndarray:
    """Draw a member of each listed community [edges], numbered over all communities by rank; low ranks are popular."""
    exponent = np.float32(1 / (1 - skew))

    def member(at: slice) -> np.ndarray:
        rank = (size * rng.random(at.stop - at.start, dtype=np.float32) ** exponent).astype(np.int64)
        return community[at].astype(np.int64) * size + np.minimum(rank, size - 1)

    return _draw(len(community), ids, member)


def _node_ids(orders: np.ndarray, communities: int, size: int, ids: np.dtype) -> np.ndarray:
    """Return the node id of each member [communities * size]; ranks are spread out, so hubs are not adjacent."""
    repeats = -(-communities // ORDERS)
    position = np.tile(orders.reshape(-1, size), (repeats, 1))[:communities]
    return (position + np.arange(communities)[:, None] * size).ravel().astype(ids)


def _draw(count: int, dtype: type | np.dtype, values: Callable[[slice], np.ndarray]) -> np.ndarray:
    """Return [count] numbers of ``dtype``, computed in chunks so that their wide intermediates stay small."""
    out = np.empty(count, dtype)
    for lo in range(0, count, CHUNK):
        at = slice(lo, min(lo + CHUNK, count))
        out[at] = values(at)
    return out


for _name, _shape in SHAPES.items():
    generator(Generator(_name, partial(make, _name), SEED, nodes=_shape.nodes, arcs=_shape.arcs))
