"""Training of PyTorch Geometric models in MGG's loop: sides ``pyg``, ``pyg_csr`` and ``pyg_bmm`` of ``mgg train``.

Graph, features, splits, initial weights, penalties, step sizes and epochs are the same as for MGG, and so are the
formats of records, weights and predictions. Only dropout draws other numbers. Features are dense, arcs an int64
``edge_index``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from mgg.backend.api import THREADS_PER_PE, World
from mgg.backend.machine.facts import these_versions
from mgg.errors import InputError, MachineError
from mgg.graph.check import SPLITS
from mgg.graph.csr import row_ids
from mgg.interop.pyg_models import put, taken, twin_of
from mgg.layout import PeLayout
from mgg.model import Model, ModelSettings, Sizes, build
from mgg.model.features import prepare_features
from mgg.model.initialization import initial_weights
from mgg.model.learning_rate import learning_rate
from mgg.model.optimizer import BETA1, BETA2, EPSILON
from mgg.records import Library
from mgg.train.model import check_settings, decided
from mgg.train.targets import Scores
from mgg.train.targets.metrics import targets_of
from mgg.train.trainer import DivergedError

_LIBRARIES = ("torch", "torch-geometric")


class LibraryTrainer:
    """A model of PyTorch Geometric on the whole graph, on one PE; see ``mgg.train.learner.Learner``."""

    def __init__(
        self, world: World, layout: PeLayout, *, side: Library, model: Model, settings: ModelSettings, seed: int,
        epochs: int, dtype: str, metric: str, phases: bool,
    ) -> None:  # fmt: skip
        """Set up the training; raises InputError for unsupported input, MachineError if PyTorch lacks World's GPU."""
        self.technique, self._seed, self._epochs, self._layout, self._world = side, seed, epochs, layout, world
        _check(world, layout, side, model, settings, dtype, phases)
        check_settings(model.name, settings)
        self._device = _device(world, side)
        if world.gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            torch.set_num_threads(THREADS_PER_PE)
        targets = targets_of(world, layout, metric, settings)
        if targets.metric != "accuracy":
            raise InputError(f"side {side}: scores by accuracy, one class a node, and not by {targets.metric}")
        self.metric, self._counts, self._judge = targets.metric, targets.counts, targets.judge
        self._of_splits = targets.of_splits
        _, _, self.settings = decided(world, layout, settings)
        facts = layout.manifest
        sizes = Sizes(facts.features, facts.classes, facts.nodes, facts.relations)
        chain = build(model, settings, facts.features, facts.classes, facts.nodes, facts.relations)
        first = initial_weights(chain.parameters, seed)
        self._shapes = {name: value.shape for name, value in {**first, **chain.state}.items()}
        self._twin = twin_of(model.name, self.settings, sizes, first, self._device, side)
        if facts.weighted and not self._twin.weighted:
            raise InputError(f"side {side}: model {model.name} counts no weights of arcs, and {facts.name} has some")
        self._place(side, model)
        kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
        decays = {parameter.name: parameter.decay for parameter in chain.parameters}
        groups = [{"params": [each], "weight_decay": decays[name]} for name, each in self._twin.named().items()]
        self._optimizer = kind(groups, lr=settings.learning_rate, betas=(BETA1, BETA2), eps=EPSILON)
        self._kept: dict[str, np.ndarray] = {}

    def _place(self, side: Library, model: Model) -> None:
        """Copy graph, features and labels to the device."""
        layout, device = self._layout, self._device
        csr = layout.forward.local
        targets = row_ids(csr)
        if not self._twin.looped and (csr.indices == targets).any():
            raise InputError(
                f"side {side}: model {model.name} takes arcs from a node to itself another way than ours, and"
                f" {layout.manifest.name} has some: make the graph with loops: drop"
            )
        self._arcs = torch.as_tensor(np.stack([csr.indices, targets]).astype(np.int64), device=device)
        self._weights = None if csr.weights is None else torch.as_tensor(np.array(csr.weights), device=device)
        self._types = None if csr.types is None else torch.as_tensor(csr.types.astype(np.int64), device=device)
        self._x = None
        if layout.features is not None:
            x = prepare_features(
                np.array(layout.features), as_sparse=False, row_normalize=bool(self.settings.row_normalize)
            )
            self._x = torch.as_tensor(x, device=device)
        assert layout.labels is not None and layout.splits is not None
        labels, splits = np.asarray(layout.labels), np.asarray(layout.splits)
        self._labels = torch.as_tensor(labels.astype(np.int64), device=device)
        self._nodes = {
            split: torch.as_tensor(np.flatnonzero(splits == code), device=device) for split, code in SPLITS.items()
        }
        self._by_class = None
        if self.settings.class_weights == "balanced":
            trained = np.bincount(labels[splits == SPLITS["train"]], minlength=layout.manifest.classes)
            weights = self._counts["train"] / (layout.manifest.classes * trained)
            self._by_class = torch.as_tensor(weights.astype(np.float32), device=device)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """Copies of the weights on the host."""
        return taken(self._twin.named(), self._shapes)

    def _logits(self) -> torch.Tensor:
        found: torch.Tensor = self._twin(self._x, self._arcs, self._weights, self._types)
        return found

    def epoch(self, epoch: int) -> tuple[float, Scores]:
        """Run a training step and an evaluation; the host waits once for each.

        Raises:
            DivergedError: a loss is not finite.
            MachineError: the GPU has too little memory.
        """
        try:
            return self._epoch(epoch)
        except torch.cuda.OutOfMemoryError as error:
            said = str(error).partition(". GPU")[0]
            raise MachineError(
                f"side {self.technique}: the GPU has too little memory in epoch {epoch}: {said}: leave this model or"
                " data set out"
            ) from None

    def _epoch(self, epoch: int) -> tuple[float, Scores]:
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self.settings, epoch, self._epochs)
        torch.manual_seed(1_000_003 * self._seed + epoch)  # a resumed run draws the same dropout masks
        self._twin.train()
        return self._steps(epoch), self._evaluate(epoch)

    def _steps(self, epoch: int) -> float:
        """Do the epoch's single step on the whole graph; return the training loss before it."""
        self._optimizer.zero_grad()
        nodes = self._nodes["train"]
        self._world.set_phase(epoch, "forward")
        total = cross_entropy(self._logits()[nodes], self._labels[nodes], self._by_class, reduction="sum")
        loss = total / self._counts["train"]
        self._world.set_phase(epoch, "backward")
        loss.backward()
        found = self._finite(epoch, float(loss.detach()))
        self._optimizer.step()
        return found

    def _finite(self, epoch: int, loss: float) -> float:
        """Return ``loss``; raises DivergedError if it is not finite."""
        if not math.isfinite(loss):
            raise self._diverged(epoch, f"the training loss is {loss}")
        return loss

    def _evaluate(self, epoch: int) -> Scores:
        self._twin.eval()
        self._world.set_phase(epoch, "evaluation")
        with torch.no_grad():
            logits = self._logits()
            judged = self._nodes[self._judge]
            loss = cross_entropy(logits[judged], self._labels[judged])
            hits = [(logits[nodes].argmax(1) == self._labels[nodes]).sum() for nodes in self._nodes.values()]
            mean, *right = torch.stack([loss.double(), *(each.double() for each in hits)]).tolist()
        if not math.isfinite(mean):
            raise self._diverged(epoch, f"the loss of the {self._judge} split is {mean}")
        counts = [max(count, 1) for count in self._counts.values()]
        return self._of_splits(mean, *(hit / count for hit, count in zip(right, counts, strict=True)))

    def _diverged(self, epoch: int, what: str) -> DivergedError:
        return DivergedError(f"epoch {epoch}: {what}: lower the setting learning_rate")

    def phases(self) -> None:
        """Return None: phases are never counted."""

    def _arrays(self) -> dict[str, np.ndarray]:
        return self.weights | self._state()

    def _state(self) -> dict[str, np.ndarray]:
        return {name: each.astype(np.float64) for name, each in taken(self._twin.state(), self._shapes).items()}

    def keep(self) -> None:
        """Keep copies of the current arrays in host memory."""
        self._kept = self._arrays()

    def kept(self) -> dict[str, np.ndarray]:
        """Return the kept arrays, those of the best epoch."""
        return self._kept

    def save(self) -> dict[str, dict[str, np.ndarray]]:
        """Return weights, running statistics, both moments and the number of steps."""
        return {"weights": self.weights, "state": self._state(), **self._moments()}

    def _moments(self) -> dict[str, dict[str, np.ndarray]]:
        names, states = self._twin.named(), self._optimizer.state
        zeros = {name: torch.zeros_like(each) for name, each in names.items()}
        found = {
            ours: taken({n: states[p].get(theirs, zeros[n]) for n, p in names.items()}, self._shapes)
            for ours, theirs in (("first", "exp_avg"), ("second", "exp_avg_sq"))
        }
        steps = {float(states[each].get("step", 0.0)) for each in names.values()}
        return found | {"steps": {"steps": np.array([max(steps)])}}

    def restore(self, groups: dict[str, dict[str, np.ndarray]]) -> None:
        """Restore everything that ``save`` returned."""
        self.start_from({**groups["weights"], **groups["state"]})
        for name, parameter in self._twin.named().items():
            moments = {key: torch.zeros_like(parameter) for key in ("exp_avg", "exp_avg_sq")}
            for key, group in (("exp_avg", "first"), ("exp_avg_sq", "second")):
                put({name: moments[key]}, {name: groups[group][name]})
            self._optimizer.state[parameter] = {"step": torch.tensor(float(groups["steps"]["steps"][0])), **moments}

    def start_from(self, arrays: dict[str, np.ndarray]) -> None:
        """Set weights and running statistics."""
        mine = {**self._twin.named(), **self._twin.state()}
        for name in [*mine, *arrays]:
            if name not in arrays or name not in mine:
                raise InputError(f"array {name} is not in {'them' if name in mine else 'this model'}")
            if arrays[name].shape != self._shapes[name]:
                raise InputError(f"array {name} has shape {arrays[name].shape}, this model's has {self._shapes[name]}")
        put(mine, arrays)

    def predict(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """Return the most likely classes (first of equal ones); the weights stay those of ``arrays``."""
        self.start_from(arrays)
        self._twin.eval()
        with torch.no_grad():
            found: np.ndarray = self._logits().argmax(1).cpu().numpy()
        return found

    def inference(self) -> Callable[[], None]:
        """Return a function that runs one pass without gradients."""
        self._twin.eval()

        def once() -> None:
            with torch.no_grad():
                self._logits()
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)

        return once

    def record_fields(self) -> dict[str, Any]:
        """Return the libraries' versions, and the peak memory of PyTorch's allocator."""
        versions = these_versions() | {name: metadata.version(name) for name in _LIBRARIES}
        on_gpu = self._device.type == "cuda"
        return {
            "versions": versions,
            "gpu_memory": torch.cuda.max_memory_reserved(self._device) if on_gpu else None,
        }

    def close(self) -> None:
        """Do nothing: there is no symmetric memory, and PyTorch frees its own with this object."""


def _device(world: World, side: Library) -> torch.device:
    if not world.gpu:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise MachineError(
            f"side {side}: PyTorch {torch.__version__} sees no GPU: install a build of it for CUDA, or take"
            " --backend mpi"
        )
    return torch.device("cuda", int(world.xp.cuda.runtime.getDevice()))


def _check(
    world: World, layout: PeLayout, side: Library, model: Model, settings: ModelSettings, dtype: str, phases: bool
) -> None:
    """Raise InputError for requests that a library does not support."""
    if world.size > 1:
        raise InputError(f"side {side}: trains on one PE, and this layout is for {layout.size}: partition for 1")
    if model.content is not None:
        raise InputError(f"side {side}: model {model.name} is a file of your own, which nobody has written for it")
    if dtype != "fp32":
        raise InputError(f"side {side}: computes in fp32: leave out --dtype {dtype}")
    if settings.backward != "return":
        raise InputError(f"side {side}: knows no schedule: leave out the setting backward={settings.backward}")
    if settings.kernels:
        raise InputError(f"side {side}: has kernels of its own: leave out the setting kernels={settings.kernels}")
    if phases:
        raise InputError(f"side {side}: nobody counts its phases: leave out --phases")
