"""MGG's models as a PyTorch Geometric user writes them: the same formulas and settings on ``edge_index``.

Their parameters have MGG's names, so that both can start from the same weights.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.functional import dropout, elu, normalize, relu

try:
    from torch_geometric.nn import APPNP, FastRGCNConv, GATConv, GCNConv, GINConv, RGCNConv, SAGEConv
except ImportError as error:
    raise ImportError(f"models of PyTorch Geometric need it ({error}): pip install 'mgg[torch]'") from None

from mgg.errors import InputError
from mgg.model import ModelSettings, Sizes
from mgg.records import Library


class Twin(torch.nn.Module):
    """A model made of PyTorch Geometric's layers.

    Attributes:
        settings: MGG's settings.
        weighted: whether arcs may have weights.
        looped: whether self-loops are allowed, because PyTorch Geometric treats them as MGG does.
    """

    weighted = False
    looped = True
    #: Settings with only one supported value, by name.
    fixed: Mapping[str, Any] = {}

    def __init__(self, settings: Any) -> None:
        super().__init__()
        self.settings = settings
        for name, value in self.fixed.items():
            if getattr(settings, name) != value:
                raise InputError(
                    f"setting {name}: is {getattr(settings, name)}, and this model in PyTorch Geometric has {value}"
                )

    @abstractmethod
    def forward(
        self, x: torch.Tensor | None, arcs: torch.Tensor, weights: torch.Tensor | None = None,
        types: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Return logits [nodes, classes].

        Args:
            x: features [nodes, columns], None if the graph has none.
            arcs: int64 [2, arcs], sources and targets.
            weights, types: of the arcs, None if they have none.
        """

    @abstractmethod
    def named(self) -> dict[str, torch.Tensor]:
        """Return parameters by MGG's names: MGG's shapes except for axes of 1; matrices ``weight`` are transposed."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return running statistics by MGG's names."""
        return {}

    def _dropped(self, x: torch.Tensor, rate: float | None = None) -> torch.Tensor:
        return dropout(x, self.settings.dropout if rate is None else rate, self.training)


class Gcn(Twin):
    """GCN with two layers; PyTorch Geometric caches the normalized arcs of the first step, its fastest way."""

    layer: type[GCNConv] = GCNConv
    weighted, looped = True, False
    fixed = {"layers": 2, "normalization": "none", "residual": False}  # noqa: RUF012 - nobody writes to it

    def __init__(self, settings: Any, sizes: Sizes) -> None:
        super().__init__(settings)
        widths = [(sizes.features, settings.hidden), (settings.hidden, sizes.classes)]
        self.layers = torch.nn.ModuleList(self.layer(*each, cached=True) for each in widths)

    def forward(self, x: Any, arcs: Any, weights: Any = None, types: Any = None) -> torch.Tensor:
        """See ``Twin``."""
        x = relu(self.layers[0](self._dropped(x), arcs, weights))
        return self.layers[1](self._dropped(x), arcs, weights)

    def named(self) -> dict[str, torch.Tensor]:
        """See ``Twin``."""
        names = {f"layer{k}.weight": layer.lin.weight for k, layer in enumerate(self.layers)}
        return names | {f"layer{k}.bias": layer.bias for k, layer in enumerate(self.layers)}


class Gin(Twin):
    """GIN: layers with batch normalization and a trainable epsilon, and a classifier."""

    layer: type[GINConv] = GINConv
    fixed = {"normalization": "batch", "residual": False}  # noqa: RUF012

    def __init__(self, settings: Any, sizes: Sizes) -> None:
        super().__init__(settings)
        hidden = settings.hidden
        self.layers = torch.nn.ModuleList(
            self.layer(
                torch.nn.Sequential(
                    torch.nn.Linear(hidden if k else sizes.features, hidden, bias=False),
                    torch.nn.BatchNorm1d(hidden),
                    torch.nn.ReLU(),
                    torch.nn.Linear(hidden, hidden, bias=False),
                    torch.nn.BatchNorm1d(hidden),
                    torch.nn.ReLU(),
                ),
                train_eps=True,
            )
            for k in range(settings.layers)
        )
        self.classifier = torch.nn.Linear(hidden, sizes.classes)

    def forward(self, x: Any, arcs: Any, weights: Any = None, types: Any = None) -> torch.Tensor:
        """See ``Twin``."""
        for layer in self.layers:
            x = layer(x, arcs)
        found: torch.Tensor = self.classifier(self._dropped(x))
        return found

    def named(self) -> dict[str, torch.Tensor]:
        """See ``Twin``."""
        names = {"classifier.weight": self.classifier.weight, "classifier.bias": self.classifier.bias}
        for k, layer in enumerate(self.layers):
            names |= {f"layer{k}.mlp0.weight": layer.nn[0].weight, f"layer{k}.mlp1.weight": layer.nn[3].weight}
            names |= {f"layer{k}.mlp0.norm.scale": layer.nn[1].weight, f"layer{k}.mlp0.norm.shift": layer.nn[1].bias}
            names |= {f"layer{k}.norm.scale": layer.nn[4].weight, f"layer{k}.norm.shift": layer.nn[4].bias}
            names[f"layer{k}.epsilon"] = layer.eps
        return names

    def state(self) -> dict[str, torch.Tensor]:
        """See ``Twin``."""
        norms = {
            f"layer{k}{part}.norm": layer.nn[at]
            for k, layer in enumerate(self.layers)
            for part, at in ((".mlp0", 1), ("", 4))
        }
        return {
            f"{name}.{ours}": getattr(norm, theirs)
            for name, norm in norms.items()
            for ours, theirs in (("running_mean", "running_mean"), ("running_variance", "running_var"))
        }


class Sage(Twin):
    """GraphSAGE: layers whose rows are divided by their norms, and a classifier."""

    fixed = {"unit_rows": True, "normalization": "none", "residual": False}  # noqa: RUF012

    def __init__(self, settings: Any, sizes: Sizes) -> None:
        super().__init__(settings)
        hidden = settings.hidden
        self.layers = torch.nn.ModuleList(
            SAGEConv(hidden if k else sizes.features, hidden) for k in range(settings.layers)
        )
        self.classifier = torch.nn.Linear(hidden, sizes.classes)

    def forward(self, x: Any, arcs: Any, weights: Any = None, types: Any = None) -> torch.Tensor:
        """See ``Twin``."""
        for layer in self.layers:
            x = normalize(relu(layer(self._dropped(x), arcs)))
        found: torch.Tensor = self.classifier(self._dropped(x))
        return found

    def sampled(self, x: torch.Tensor, hops: Sequence[torch.Tensor], sizes: Sequence[int]) -> torch.Tensor:
        """Return logits of a sampled batch (``mgg.interop.sampling.Sample``); ``x`` are the features of its nodes."""
        for k, layer in enumerate(self.layers):
            left = len(self.layers) - k
            rows, arcs = self._dropped(x[: sizes[left]]), torch.cat(list(hops[:left]), dim=1)
            x = normalize(relu(layer((rows, rows[: sizes[left - 1]]), arcs)))
        found: torch.Tensor = self.classifier(self._dropped(x))
        return found

    def named(self) -> dict[str, torch.Tensor]:
        """See ``Twin``."""
        names = {"classifier.weight": self.classifier.weight, "classifier.bias": self.classifier.bias}
        for k, layer in enumerate(self.layers):
            names |= {f"layer{k}.self.weight": layer.lin_r.weight, f"layer{k}.neighbors.weight": layer.lin_l.weight}
            names[f"layer{k}.bias"] = layer.lin_l.bias
        return names


class Gat(Twin):
    """GAT with two layers; neither library uses arc weights here, so there must be none."""

    def __init__(self, settings: Any, sizes: Sizes) -> None:
        super().__init__(settings)
        rate, heads = settings.attention_dropout, settings.output_heads
        self.layers = torch.nn.ModuleList(
            [
                GATConv(sizes.features, settings.hidden, settings.heads, dropout=rate),
                GATConv(settings.heads * settings.hidden, sizes.classes, heads, concat=False, dropout=rate),
            ]
        )

    def forward(self, x: Any, arcs: Any, weights: Any = None, types: Any = None) -> torch.Tensor:
        """See ``Twin``."""
        return self.layers[1](self._dropped(elu(self.layers[0](self._dropped(x), arcs))), arcs)

    def named(self) -> dict[str, torch.Tensor]:
        """See ``Twin``."""
        names: dict[str, torch.Tensor] = {}
        for k, layer in enumerate(self.layers):
            names |= {f"layer{k}.weight": layer.lin.weight, f"layer{k}.bias": layer.bias}
            names |= {f"layer{k}.target": layer.att_dst, f"layer{k}.source": layer.att_src}
        return names


class Appnp(Twin):
    """APPNP: two dense layers and the power steps, which cache the normalized arcs of the first pass."""

    weighted, looped = True, False

    def __init__(self, settings: Any, sizes: Sizes) -> None:
        super().__init__(settings)
        self.first = torch.nn.Linear(sizes.features, settings.hidden, bias=False)
        self.second = torch.nn.Linear(settings.hidden, sizes.classes, bias=False)
        self.steps = APPNP(settings.steps, settings.teleport, settings.arc_dropout, cached=True)

    def forward(self, x: Any, arcs: Any, weights: Any = None, types: Any = None) -> torch.Tensor:
        """See ``Twin``."""
        x = self.second(self._dropped(relu(self.first(self._dropped(x)))))
        found: torch.Tensor = self.steps(x, arcs, weights)
        return found

    def named(self) -> dict[str, torch.Tensor]:
        """See ``Twin``."""
        return {"layer0.weight": self.first.weight, "layer1.weight": self.second.weight}


class Rgcn(Twin):
    """R-GCN: two layers that process type by type; the node itself counts as one more type, as in MGG."""

    layer: type[RGCNConv] = RGCNConv

    def __init__(self, settings: Any, sizes: Sizes) -> None:
        super().__init__(settings)
        self.relations, bases = sizes.relations, settings.bases or None
        options: dict[str, Any] = {"num_bases": bases, "root_weight": False, "bias": False}
        widths = [(sizes.features or sizes.nodes, settings.hidden), (settings.hidden, sizes.classes)]
        self.layers = torch.nn.ModuleList(self.layer(*each, sizes.relations + 1, **options) for each in widths)
        self._arcs: tuple[torch.Tensor, torch.Tensor] | None = None
        self.nodes = sizes.nodes

    def forward(self, x: Any, arcs: Any, weights: Any = None, types: Any = None) -> torch.Tensor:
        """See ``Twin``."""
        if self._arcs is None:
            nodes = torch.arange(self.nodes, device=arcs.device)
            loops = torch.cat([arcs, nodes.expand(2, -1)], dim=1)
            self._arcs = loops, torch.cat([types, torch.full_like(nodes, self.relations)])
        return self.layers[1](self._dropped(relu(self.layers[0](x, *self._arcs))), *self._arcs)

    def named(self) -> dict[str, torch.Tensor]:
        """See ``Twin``."""
        names: dict[str, torch.Tensor] = {}
        for k, layer in enumerate(self.layers):
            if self.settings.bases:
                names |= {f"layer{k}.bases": layer.weight, f"layer{k}.coefficients": layer.comp}
            else:
                names[f"layer{k}.weight"] = layer.weight
        return names


class FastRgcn(Rgcn):
    """R-GCN with a weight matrix per arc, so that one batched product suffices."""

    layer = FastRGCNConv


class _Product(torch.autograd.Function):
    """A x, with backward A^T g; both use cuSPARSE from CSR on GPUs."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, matrix: torch.Tensor, transposed: torch.Tensor) -> torch.Tensor:
        context.transposed = transposed
        return torch.sparse.mm(matrix, x)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return torch.sparse.mm(context.transposed, gradient), None, None


def _csr(rows: torch.Tensor, columns: torch.Tensor, weights: torch.Tensor | None, nodes: int) -> torch.Tensor:
    """Return a CSR matrix [nodes, nodes] of float32, with 32-bit ids if possible; without weights its values are 1."""
    order = torch.argsort(rows * nodes + columns)
    kind = torch.int32 if len(rows) < 2**31 else torch.int64
    ends = torch.cumsum(torch.bincount(rows, minlength=nodes), 0)
    values = torch.ones(len(rows), device=rows.device) if weights is None else weights[order]
    pointers = torch.cat([ends.new_zeros(1), ends]).to(kind)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # that CSR is in beta
        return torch.sparse_csr_tensor(pointers, columns[order].to(kind), values, (nodes, nodes), check_invariants=True)


def _propagate(self: Any, edge_index: torch.Tensor, x: Any, edge_weight: Any = None, size: Any = None) -> torch.Tensor:
    """Compute sums over arcs as products; all layers share ``self.matrices``, which the first one makes."""
    rows = x if isinstance(x, torch.Tensor) else x[0]
    if not self.matrices:
        sources, targets = edge_index
        for ends in ((targets, sources), (sources, targets)):
            self.matrices.append(_csr(*ends, edge_weight, len(rows)))
    found: torch.Tensor = _Product.apply(rows, *self.matrices)
    return found


class _CsrGcnConv(GCNConv):
    # PyTorch Geometric replaces an inherited propagate by its own.
    propagate = _propagate


class _CsrGinConv(GINConv):
    propagate = _propagate


class CsrGcn(Gcn):
    """GCN whose sums are products with a CSR matrix and, backward, with its transpose, as in DGL."""

    layer = _CsrGcnConv

    def __init__(self, settings: Any, sizes: Sizes) -> None:
        super().__init__(settings, sizes)
        _share(self.layers)


class CsrGin(Gin):
    """GIN with the same products as ``CsrGcn``."""

    layer = _CsrGinConv

    def __init__(self, settings: Any, sizes: Sizes) -> None:
        super().__init__(settings, sizes)
        _share(self.layers)


def _share(layers: Any) -> None:
    matrices: list[torch.Tensor] = []
    for layer in layers:
        layer.matrices = matrices


#: Twin models by side and name.
TWINS: dict[Library, dict[str, Any]] = {
    "pyg": {"gcn": Gcn, "gin": Gin, "sage": Sage, "gat": Gat, "appnp": Appnp, "rgcn": Rgcn},
    "pyg_csr": {"gcn": CsrGcn, "gin": CsrGin},
    "pyg_bmm": {"rgcn": FastRgcn},
    "pyg_sampled": {"sage": Sage},
}


def twin_of(
    model: str, settings: ModelSettings, sizes: Sizes, weights: Mapping[str, Any], device: Any, side: Library = "pyg"
) -> Twin:
    """Return the twin of ``model`` on ``device`` with MGG's ``weights``, NumPy arrays by name.

    Raises:
        InputError: there is no twin, or it lacks a setting.
    """
    if model not in TWINS[side]:
        raise InputError(f"side {side}: has no model {model}; it has {', '.join(TWINS[side])}")
    try:
        made = TWINS[side][model](settings, sizes)
    except InputError as error:
        raise InputError(f"side {side}: model {model}: {error}") from None
    twin: Twin = made.to(device)
    put(twin.named(), weights)
    return twin


def put(tensors: Mapping[str, torch.Tensor], arrays: Mapping[str, Any]) -> None:
    """Write MGG's ``arrays`` into the twin's ``tensors`` by name; raises ValueError if names differ."""
    if set(tensors) != set(arrays):
        raise ValueError(f"arrays of one side alone: {sorted(set(tensors) ^ set(arrays))}")
    with torch.no_grad():
        for name, tensor in tensors.items():
            ours = torch.as_tensor(arrays[name], device=tensor.device)
            tensor.copy_((ours.T if _turned(name, tensor) else ours).reshape(tensor.shape))


def taken(tensors: Mapping[str, torch.Tensor], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return copies of the twin's ``tensors`` as arrays of MGG's ``shapes``, by name."""
    return {
        name: (tensor.T if _turned(name, tensor) else tensor).detach().cpu().numpy().copy().reshape(shapes[name])
        for name, tensor in tensors.items()
    }


def _turned(name: str, tensor: torch.Tensor) -> bool:
    """Return whether to transpose: PyTorch's Linear multiplies by the transpose of its weight."""
    return name.endswith(".weight") and tensor.dim() == 2
