"""Small graphs with edge cases, and their layouts."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import numpy as np
from scipy import sparse

from mgg import layout, partition
from mgg.graph.csr import Csr, from_arcs, row_ids
from mgg.graph.generators import generators
from mgg.graph.store import write_graph
from mgg.layout import Product


def random_csr(nodes: int, arcs: int, *, seed: int = 0, weighted: bool = False, symmetrize: bool = False) -> Csr:
    """A directed graph with a skewed distribution of columns."""
    rng = np.random.default_rng(seed)
    columns = (nodes * rng.random(arcs) ** 2).astype(np.int64)
    weights = rng.standard_normal(arcs).astype(np.float32) if weighted else None
    return from_arcs(rng.integers(0, nodes, arcs), columns, n=nodes, weights=weights, symmetrize=symmetrize)


def typed_csr(nodes: int, arcs: int, types: int, seed: int = 0) -> Csr:
    """A directed graph with typed arcs, some of them parallel; every type occurs."""
    rng = np.random.default_rng(seed)
    columns = (nodes * rng.random(arcs) ** 2).astype(np.int64)
    kinds = np.concatenate([np.arange(types), rng.integers(0, types, arcs - types)])
    keys = np.unique((rng.integers(0, nodes, arcs) * nodes + columns) * types + kinds)
    rows, indices = np.divmod(keys // types, nodes)
    indptr = np.searchsorted(rows, np.arange(nodes + 1)).astype(np.int64)
    return Csr(indptr, indices.astype(np.int32), None, nodes, (keys % types).astype(np.int32))


def awkward_graphs() -> dict[str, Csr]:
    """Name -> graph: the edge cases of techniques."""
    rng = np.random.default_rng(1)
    hub = np.zeros(10_000, np.int64)
    blocks = np.repeat(np.arange(4), 300) * 100
    return {
        "directed": random_csr(500, 4_000),
        "symmetric": random_csr(500, 3_000, seed=2, symmetrize=True),
        "weighted": random_csr(400, 3_000, seed=3, weighted=True),
        "empty rows": from_arcs(np.array([7, 7, 90]), np.array([90, 3, 90]), n=100),
        "no arcs": from_arcs(np.array([], np.int64), np.array([], np.int64), n=9),
        "row of 10,000 arcs": from_arcs(
            np.concatenate((hub, rng.integers(0, 10_001, 500))),
            np.concatenate((np.arange(1, 10_001), rng.integers(0, 10_001, 500))),
            n=10_001,
        ),
        "more PEs than nodes": from_arcs(np.array([0, 1, 1]), np.array([1, 0, 2]), n=3),
        "no remote arcs": from_arcs(blocks + rng.integers(0, 100, 1200), blocks + rng.integers(0, 100, 1200), n=400),
        "loops": from_arcs(np.arange(50), np.arange(50), n=50),
    }


def products(csr: Csr, bounds: np.ndarray) -> list[Product]:
    """Every PE's product with ``csr``; PE q has rows ``bounds[q]`` to ``bounds[q + 1]``."""
    pes = range(len(bounds) - 1)
    cuts = [_cut(csr, int(bounds[pe]), int(bounds[pe + 1])) for pe in pes]
    ptrs = np.array([np.searchsorted(halo, bounds) for _, _, halo in cuts]).astype(np.int64)
    rows = [
        (halo - np.repeat(bounds[:-1], np.diff(ptr))).astype(csr.indices.dtype)
        for (_, _, halo), ptr in zip(cuts, ptrs, strict=True)
    ]
    return [
        Product(
            *cuts[pe][:2], ptrs[pe], rows[pe], np.concatenate(([0], np.cumsum(ptrs[:, pe + 1] - ptrs[:, pe]))),
            np.concatenate([rows[other][ptrs[other, pe] : ptrs[other, pe + 1]] for other in pes]), ptrs[:, pe],
        )
        for pe in pes
    ]  # fmt: skip


def _cut(csr: Csr, lo: int, hi: int) -> tuple[Csr, Csr, np.ndarray]:
    """Local and remote arcs of rows lo..hi-1, and the distinct columns of the remote ones."""
    arcs = slice(csr.indptr[lo], csr.indptr[hi])
    columns, rows = csr.indices[arcs], np.repeat(np.arange(hi - lo), np.diff(csr.indptr[lo : hi + 1]))
    local = (columns >= lo) & (columns < hi)
    halo, positions = np.unique(columns[~local], return_inverse=True)
    parts = []
    for chosen, values, width in ((local, columns[local] - lo, hi - lo), (~local, positions, len(halo))):
        indptr = np.concatenate(([0], np.cumsum(np.bincount(rows[chosen], minlength=hi - lo)))).astype(np.int64)
        weights, types = (None if each is None else each[arcs][chosen] for each in (csr.weights, csr.types))
        parts.append(Csr(indptr, values.astype(csr.indices.dtype), weights, width, types))
    return parts[0], parts[1], halo


#: A cache of layouts made by this process: a hash of the arguments -> path -> content. The oldest go first.
_cache: dict[bytes, dict[Path, bytes]] = {}
CACHE_BYTES = 128 << 20


def make_layout(folder: Path, csr: Csr, pes: int, *, scheme: str = "equal_nodes", **node_data: np.ndarray) -> Path:
    """Write the graph, its partition and its layout under ``folder``; returns the layout's folder.

    A layout of the same arguments comes from a cache. Tests of these stages call ``build_layout`` instead.
    """
    if (folder / "graph").exists():
        return build_layout(folder, csr, pes, scheme=scheme, **node_data)
    key = hashlib.sha256(pickle.dumps((csr, pes, scheme, node_data))).digest()
    if key not in _cache:
        build_layout(folder, csr, pes, scheme=scheme, **node_data)
        paths = [path for name in _folders(pes) for path in (folder / name).rglob("*") if path.is_file()]
        if sum(path.stat().st_size for path in paths) <= CACHE_BYTES // 8:
            _cache[key] = {path.relative_to(folder): path.read_bytes() for path in paths}
        while sum(len(content) for files in _cache.values() for content in files.values()) > CACHE_BYTES:
            _cache.pop(next(iter(_cache)))
    else:
        for path, content in _cache[key].items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
    return folder / f"layout-{pes}"


def _folders(pes: int) -> tuple[str, ...]:
    return "graph", f"partition-{pes}", f"layout-{pes}"


def build_layout(folder: Path, csr: Csr, pes: int, *, scheme: str = "equal_nodes", **node_data: np.ndarray) -> Path:
    """As ``make_layout``, but never from the cache; an existing graph is used."""
    graph, part, out = (folder / name for name in _folders(pes))
    if not graph.exists():
        write_graph(graph, csr, name="test", source={}, **node_data)
    partition.build(graph, part, pes=pes, scheme=scheme, workgroup=8, dim=16)
    layout.build(graph, part, out)
    return out


def matrix(csr: Csr) -> sparse.csr_matrix:
    """The adjacency in float64."""
    return csr.to_scipy(np.float64)


def expected_product(a: sparse.csr_matrix, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A B and |A| |B| in float64."""
    b = b.astype(np.float64)
    # abs(a) would sum repeated arcs first, and in place, in arrays that ``a`` shares with its Csr.
    magnitude = sparse.csr_matrix((np.abs(a.data), a.indices, a.indptr), a.shape)
    return a @ b, magnitude @ np.abs(b)


def scaled_error(product: np.ndarray, expected: np.ndarray, scale: np.ndarray) -> float:
    """max |C - C*| / (|A| |B|); where |A| |B| is 0, C must be 0."""
    error = np.abs(product - expected)
    if np.any(error[scale == 0] != 0) or not np.all(np.isfinite(error)):
        return np.inf
    return float((error[scale > 0] / scale[scale > 0]).max(initial=0.0))


def relative_error(product: np.ndarray, a: sparse.csr_matrix, b: np.ndarray) -> float:
    """The largest error of C = A B relative to |A| |B|."""
    return scaled_error(product, *expected_product(a, b))


def planted():
    """The adjacency and the node data of a small ``planted`` graph."""
    data = generators()["planted"].make(0.15, 1, True)
    return data.csr, {"features": data.features, "labels": data.labels, "splits": data.splits}


def symmetrized(csr: Csr) -> Csr:
    """The same square matrix with the reverse of every arc added."""
    return from_arcs(row_ids(csr), csr.indices, n=csr.columns, weights=csr.weights, symmetrize=True)


def random_layout(folder: Path, *, nodes: int, features: int, degree: int, pes: int = 1) -> Path:
    """A layout with random arcs, features, labels of 7 classes and splits."""
    rng = np.random.default_rng(0)
    data = {
        "features": rng.random((nodes, features), np.float32),
        "labels": rng.integers(0, 7, nodes).astype(np.int32),
        "splits": np.tile(np.arange(4, dtype=np.uint8), nodes // 4),
    }
    return make_layout(folder, random_csr(nodes, degree * nodes), pes, **data)
