"""Models of step_models.py as a user of PyTorch Geometric writes them: the same formulas, on ``edge_index``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.functional import elu, normalize, relu
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv


class Gcn(torch.nn.Module):
    """Two layers; PyTorch Geometric keeps the normalized arcs of the first step, its fastest way."""

    def __init__(self, features: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            [GCNConv(features, hidden, cached=True), GCNConv(hidden, classes, cached=True)]
        )

    def forward(self, x: torch.Tensor, arcs: torch.Tensor) -> torch.Tensor:
        return self.layers[1](relu(self.layers[0](x, arcs)), arcs)

    def named(self) -> dict[str, torch.Tensor]:
        """Parameters by the names of ours; of our shapes, or transposed."""
        names = {f"layer{k}.weight": layer.lin.weight for k, layer in enumerate(self.layers)}
        return names | {f"layer{k}.bias": layer.bias for k, layer in enumerate(self.layers)}


class Gin(torch.nn.Module):
    """Two layers with batch normalization and a trainable epsilon, and a classifier."""

    def __init__(self, features: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            GINConv(
                torch.nn.Sequential(
                    torch.nn.Linear(inputs, hidden, bias=False), torch.nn.BatchNorm1d(hidden), torch.nn.ReLU(),
                    torch.nn.Linear(hidden, hidden, bias=False), torch.nn.BatchNorm1d(hidden), torch.nn.ReLU(),
                ),
                train_eps=True,
            )
            for inputs in (features, hidden)
        )  # fmt: skip
        self.classifier = torch.nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor, arcs: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, arcs)
        return self.classifier(x)

    def named(self) -> dict[str, torch.Tensor]:
        """Parameters by the names of ours; of our shapes, or transposed."""
        names = {"classifier.weight": self.classifier.weight, "classifier.bias": self.classifier.bias}
        for k, layer in enumerate(self.layers):
            names |= {f"layer{k}.mlp0.weight": layer.nn[0].weight, f"layer{k}.mlp1.weight": layer.nn[3].weight}
            names |= {f"layer{k}.mlp0.norm.scale": layer.nn[1].weight, f"layer{k}.mlp0.norm.shift": layer.nn[1].bias}
            names |= {f"layer{k}.norm.scale": layer.nn[4].weight, f"layer{k}.norm.shift": layer.nn[4].bias}
            names[f"layer{k}.epsilon"] = layer.eps
        return names


class Sage(torch.nn.Module):
    """Two layers whose rows are divided by their norms, and a classifier."""

    def __init__(self, features: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([SAGEConv(features, hidden), SAGEConv(hidden, hidden)])
        self.classifier = torch.nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor, arcs: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = normalize(relu(layer(x, arcs)))
        return self.classifier(x)

    def named(self) -> dict[str, torch.Tensor]:
        """Parameters by the names of ours; of our shapes, or transposed."""
        names = {"classifier.weight": self.classifier.weight, "classifier.bias": self.classifier.bias}
        for k, layer in enumerate(self.layers):
            names |= {f"layer{k}.self.weight": layer.lin_r.weight, f"layer{k}.neighbors.weight": layer.lin_l.weight}
            names[f"layer{k}.bias"] = layer.lin_l.bias
        return names


class Gat(torch.nn.Module):
    """Two layers of one head."""

    def __init__(self, features: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([GATConv(features, hidden), GATConv(hidden, classes)])

    def forward(self, x: torch.Tensor, arcs: torch.Tensor) -> torch.Tensor:
        return self.layers[1](elu(self.layers[0](x, arcs)), arcs)

    def named(self) -> dict[str, torch.Tensor]:
        """Parameters by the names of ours; of our shapes, or transposed."""
        names: dict[str, torch.Tensor] = {}
        for k, layer in enumerate(self.layers):
            names |= {f"layer{k}.weight": layer.lin.weight, f"layer{k}.bias": layer.bias}
            names |= {f"layer{k}.target": layer.att_dst, f"layer{k}.source": layer.att_src}
        return names


TWINS: dict[str, type[Any]] = {"gcn": Gcn, "gin": Gin, "sage": Sage, "gat": Gat}


def twin_of(
    model: str, features: int, classes: int, hidden: int, weights: Mapping[str, Any], device: str = "cuda"
) -> torch.nn.Module:
    """The twin of ``model`` on ``device`` with our ``weights``, NumPy arrays by name."""
    twin = TWINS[model](features, classes, hidden).to(device)
    theirs = twin.named()
    if set(theirs) != set(weights):
        raise ValueError(f"weights of {model} without a twin: {sorted(set(theirs) ^ set(weights))}")
    with torch.no_grad():
        for name, value in weights.items():
            ours = torch.as_tensor(value, device=device)
            # Linear of PyTorch multiplies by its weight's transpose.
            turned = ours.T if name.endswith(".weight") else ours
            theirs[name].copy_(turned.reshape(theirs[name].shape))
    return twin
