"""Small graphs with features, labels and splits, laid out for 1, 2 and 4 PEs."""

from functools import cache

import numpy as np
import pytest
from support.graphs import make_layout, planted

from mgg.graph.csr import from_arcs


def directed():
    """Directed and weighted, sparse features; class 3 has no training node, some nodes have no label."""
    rng = np.random.default_rng(2)
    nodes, arcs = 240, 1500
    weights = rng.uniform(0.2, 2, arcs).astype(np.float32)
    csr = from_arcs(rng.integers(0, nodes, arcs), (nodes * rng.random(arcs) ** 2).astype(int), n=nodes, weights=weights)
    features = (rng.random((nodes, 40)) * (rng.random((nodes, 40)) < 0.1)).astype(np.float32)
    splits = rng.integers(0, 4, nodes).astype(np.uint8)
    labels = np.where(splits == 1, rng.integers(0, 3, nodes), rng.integers(0, 4, nodes)).astype(np.int32)
    labels[splits == 0] = -1
    return csr, {"features": features, "labels": labels, "splits": splits}


@pytest.fixture(scope="session")
def layouts(tmp_path_factory):
    """``layouts(name, pes)``: the folder of a layout."""
    folders = {make.__name__: tmp_path_factory.mktemp(make.__name__) for make in (planted, directed)}

    @cache
    def layout(name, pes):
        csr, node_data = {"planted": planted, "directed": directed}[name]()
        return make_layout(folders[name], csr, pes, scheme="edge_balanced", **node_data)

    return layout
