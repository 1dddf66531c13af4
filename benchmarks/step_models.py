"""The models whose training steps are timed, most beside PyTorch Geometric's: two layers, one head, no dropout."""

from __future__ import annotations

from typing import Any

#: Columns of the hidden layer.
HIDDEN = 16
SETTINGS: dict[str, dict[str, Any]] = {
    "gcn": {"hidden": HIDDEN, "dropout": 0.0},
    "gin": {"hidden": HIDDEN, "dropout": 0.0, "layers": 2},
    "sage": {"hidden": HIDDEN, "dropout": 0.0},
    "gat": {"hidden": HIDDEN, "heads": 1, "output_heads": 1, "dropout": 0.0, "attention_dropout": 0.0},
}
#: And those that have no twin in PyTorch Geometric.
ALONE: dict[str, dict[str, Any]] = {
    "gatv2": {"hidden": HIDDEN, "heads": 1, "output_heads": 1, "dropout": 0.0, "attention_dropout": 0.0},
    "transformer": {"hidden": HIDDEN, "heads": 1, "layers": 2, "dropout": 0.0},
}
