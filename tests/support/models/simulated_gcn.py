"""A two-layer GCN trained in NumPy, in float64, with aggregation by the caller; and graphs for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mgg.graph.csr import from_arcs
from mgg.model import build, settings_of
from mgg.model.initialization import initial_weights
from support.graphs.train_graphs import directed

SETTINGS = {"hidden": 8, "dropout": 0.0, "weight_decay": 0.0, "learning_rate": 0.05, "row_normalize": False}
EPOCHS, SEED = 7, 2


def few_nodes():
    """Three nodes, so that of four PEs one is empty."""
    arcs = np.array([[0, 1], [1, 2], [2, 0], [0, 2]])
    data = {
        "features": np.random.default_rng(3).normal(size=(3, 9)).astype(np.float32),
        "labels": np.array([1, 1, 1], np.int32), "splits": np.array([1, 2, 3], np.uint8),
    }  # fmt: skip
    return from_arcs(*arcs.T, n=3), data


GRAPHS = {"directed": directed, "few nodes": few_nodes}


def losses_of(name: str, product: Callable[[int, int, bool, np.ndarray], np.ndarray]) -> list[float]:
    """Losses of training by Adam.

    ``product(epoch, place, back, rows)`` is A ``rows``, by the transpose if ``back``, without self-loops; ``place``
    numbers the four products of an epoch.
    """
    csr, data = GRAPHS[name]()
    scale = 1 / np.sqrt(csr.to_scipy(np.float64).sum(axis=1).A1 + 1)[:, None]
    x, train = data["features"].astype(np.float64), np.flatnonzero(data["splits"] == 1)
    classes = int(data["labels"].max()) + 1
    first = initial_weights(
        build("gcn", settings_of("gcn", SETTINGS), features=x.shape[1], classes=classes).parameters, SEED
    )
    w = {key: value.astype(np.float64) for key, value in first.items()}
    assert sorted(w) == ["layer0.bias", "layer0.weight", "layer1.bias", "layer1.weight"]
    moments = {key: [np.zeros_like(value), np.zeros_like(value)] for key, value in w.items()}
    losses = []
    for epoch in range(1, EPOCHS + 1):

        def propagate(rows, place, now=epoch):
            rows = scale * rows
            return scale * (product(now, place, place > 1, rows) + rows)

        z = propagate(x @ w["layer0.weight"], 0) + w["layer0.bias"]
        hidden = np.maximum(z, 0)
        logits = propagate(hidden @ w["layer1.weight"], 1) + w["layer1.bias"]
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        losses.append(-np.log(shares[train, data["labels"][train]]).mean())
        g = np.zeros_like(logits)
        g[train] = shares[train]
        g[train, data["labels"][train]] -= 1
        g /= len(train)
        back = propagate(g, 2)
        gz = (back @ w["layer1.weight"].T) * (z > 0)
        gradients = {
            "layer1.bias": g.sum(axis=0), "layer1.weight": hidden.T @ back,
            "layer0.bias": gz.sum(axis=0), "layer0.weight": x.T @ propagate(gz, 3),
        }  # fmt: skip
        for key, gradient in gradients.items():
            moments[key][0] = 0.9 * moments[key][0] + 0.1 * gradient
            moments[key][1] = 0.999 * moments[key][1] + 0.001 * gradient**2
            step = moments[key][0] / (1 - 0.9**epoch)
            w[key] -= 0.05 * step / (np.sqrt(moments[key][1] / (1 - 0.999**epoch)) + 1e-8)
    return losses
