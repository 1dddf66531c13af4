"""One model on one graph: weights, a training step, an evaluation. Every PE runs the same calls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgg.backend.api import World, together
from mgg.errors import InputError
from mgg.layout import PeLayout
from mgg.model import Array, Features, ModelSettings, Pass, build, check_technique, settings_of
from mgg.model.features import SPARSE_BELOW, on_device, prepare_features
from mgg.model.init import initial_weights
from mgg.model.named import Named, joined
from mgg.model.neighborhood import Neighborhood
from mgg.model.optimizer import Adam
from mgg.train.targets import Targets


@dataclass(frozen=True)
class Scores:
    """Result of an evaluation over the nodes of all PEs; accuracies in 0..1, 0 where a split has no nodes."""

    validation_loss: float
    train_accuracy: float
    validation_accuracy: float
    test_accuracy: float


class Trainer:
    """Replicated weights and optimizer, this PE's rows of the graph and of the features.

    Attributes:
        weights: float32 arrays by name on the PE's device, the same on every PE.
        state: running statistics of batch normalization by name, float64, on the device and the same on every PE.
        adam: the optimizer.
        settings: the hyperparameters, with those that were left to the data filled in.
    """

    def __init__(
        self,
        world: World,
        layout: PeLayout,
        *,
        model: str,
        technique: str,
        options: dict[str, Any],
        settings: ModelSettings,
        seed: int,
    ) -> None:
        """Collective; raises InputError when the graph cannot be trained on."""
        self._world, self._seed = world, seed
        self._targets = Targets.of(world, layout)
        facts = layout.manifest
        sizes = facts.features, facts.classes, facts.nodes, facts.relations
        self._chain = together(world, lambda: build(model, settings, *sizes))
        self._x, self.settings = self._features(layout, settings)
        together(world, lambda: check_technique(model, self._chain, technique, world.size))
        self._graph = Neighborhood.prepare(world, layout, technique, options, self._chain.width, self._chain.fetched)
        initial = joined(initial_weights(self._chain.parameters, seed))
        weights = Named(world.upload(initial.flat), initial.shapes)
        self.weights: dict[str, Array] = weights
        self.state = {name: world.upload(value.copy()) for name, value in self._chain.state.items()}
        self.adam = Adam(self._graph.arrays, self._chain.parameters, weights, settings.learning_rate)

    def _features(self, layout: PeLayout, settings: ModelSettings) -> tuple[Features, ModelSettings]:
        """The input, and the settings with what depends on it; all PEs decide alike."""
        if layout.features is None:
            return None, settings
        features = np.asarray(layout.features)
        counts = self._world.all_reduce(np.array([np.count_nonzero(features), features.size], np.int64))
        as_sparse = bool(counts[0] < SPARSE_BELOW * counts[1])
        if settings.row_normalize is None:
            settings = settings.model_copy(update={"row_normalize": as_sparse})
        x = prepare_features(features, as_sparse=as_sparse, row_normalize=bool(settings.row_normalize))
        return on_device(self._world, x, layout.source_ids), settings

    @property
    def validates(self) -> bool:
        """Whether there are nodes to choose the best epoch by."""
        return self._targets.counts["validation"] > 0

    def save(self) -> dict[str, dict[str, np.ndarray]]:
        """Copies in host memory of all that the next step depends on: named groups of arrays by name."""
        groups = {"weights": self.weights, "state": self.state, "first": self.adam.first, "second": self.adam.second}
        return {group: self._downloaded(arrays) for group, arrays in groups.items()}

    def model_arrays(self) -> dict[str, np.ndarray]:
        """Copies in host memory of weights and running statistics, by name: what ``predict`` takes."""
        return self._downloaded(self.weights) | self._downloaded(self.state)

    def _downloaded(self, arrays: dict[str, Array]) -> dict[str, np.ndarray]:
        if isinstance(arrays, Named):  # one transfer
            arrays = Named(self._world.download(arrays.flat), arrays.shapes)
            return {name: array.copy() for name, array in arrays.items()}
        return {name: self._world.download(array).copy() for name, array in arrays.items()}

    def restore(self, groups: dict[str, dict[str, np.ndarray]]) -> None:
        """Go on from what ``save`` returned; it is copied."""
        for group, arrays in (("weights", self.weights), ("first", self.adam.first), ("second", self.adam.second)):
            for name, value in arrays.items():
                value[...] = self._world.upload(groups[group][name])
        for name in self.state:
            self.state[name] = self._world.upload(groups["state"][name].copy())

    def loss_and_gradients(self, epoch: int) -> tuple[float, dict[str, Array]]:
        """Mean training loss over all PEs with ``epoch``'s dropout, and its gradients by name, float64 on the host.

        The running statistics in ``state`` move on.
        """
        loss, gradients = self._loss_and_gradients(epoch)
        return loss, Named(gradients, {name: weight.shape for name, weight in self.weights.items()})

    def _loss_and_gradients(self, epoch: int) -> tuple[float, np.ndarray]:
        """The gradients as one vector, in the order of the weights.

        All sums over PEs go through one all-reduce in float64 on the hosts, which have to see the loss anyway: this is
        where a step waits for the device, and the only place unless modules sum over PEs themselves.
        """
        run = Pass(self._graph, self.weights, self.state, training=True, epoch=epoch, seed=self._seed)
        labels, chosen = self._targets.labels, self._targets.rows["train"]
        count = self._targets.counts["train"]
        # A diverging model overflows: the caller reports that once, with its epoch, instead of NumPy many times.
        with np.errstate(over="ignore", invalid="ignore"):
            logits = self._chain.forward(self._x, run)
            loss, gradient = run.arrays.loss_and_gradient(logits, labels, chosen, count)
            self._chain.backward(gradient, run, inputs=False)
            mine = run.arrays.joined([loss, *(run.gradients[name] for name in self.weights)])
        total = self._world.all_reduce(self._world.download(mine))
        return float(total[0]), total[1:]

    def step(self, epoch: int) -> float:
        """One training step, the ``epoch``-th (from 1); returns the mean training loss before it.

        Raises:
            InputError: the loss is not finite; the weights stay as they were.
        """
        loss, gradients = self._loss_and_gradients(epoch)
        if not math.isfinite(loss):
            message = f"epoch {epoch}: the training loss is {loss}: lower the setting learning_rate"
            raise InputError(message).on_every_pe()
        self.adam.step(self._world.upload(gradients), epoch)
        return loss

    def evaluate(self) -> Scores:
        """Score the weights without dropout (collective)."""
        targets, arrays = self._targets, self._graph.arrays
        with np.errstate(over="ignore", invalid="ignore"):
            logits = self._chain.forward(self._x, Pass(self._graph, self.weights, self.state))
            loss = arrays.cross_entropy(logits, targets.labels, targets.rows["validation"])
        hits = [arrays.correct(logits, targets.labels, chosen) for chosen in targets.rows.values()]
        total = self._world.all_reduce(self._world.download(arrays.joined([loss, *hits])))
        counts = [max(count, 1) for count in targets.counts.values()]
        shares = [float(hit) / count for hit, count in zip(total[1:], counts, strict=True)]
        return Scores(float(total[0]) / max(targets.counts["validation"], 1), *shares)

    def predict(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """The most likely class of each of this PE's rows, int64 [rows], without dropout (collective).

        Args:
            arrays: weights and running statistics by name, in host memory; of equally likely classes the first is
                taken.
        """
        upload = self._world.upload
        weights, state = ({name: upload(arrays[name]) for name in mine} for mine in (self.weights, self.state))
        with np.errstate(over="ignore", invalid="ignore"):
            logits = self._chain.forward(self._x, Pass(self._graph, weights, state))
        return self._world.download(self._graph.arrays.classes(logits))

    def close(self) -> None:
        """Free the symmetric arrays (collective)."""
        self._graph.close()


def loss_and_gradients(
    world: World,
    layout: PeLayout,
    *,
    model: str,
    technique: str,
    options: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    seed: int = 0,
    weights: dict[str, Array] | None = None,
    epoch: int = 1,
) -> tuple[float, dict[str, Array]]:
    """Training loss and gradients (float64, by name) at ``weights``, the initial ones if None (collective).

    From the same weights, seed and epoch they agree on any number of PEs, backend and technique but for rounding.
    """
    resolved = together(world, lambda: settings_of(model, settings))
    trainer = Trainer(
        world, layout, model=model, technique=technique, options=options or {}, settings=resolved, seed=seed
    )
    if weights is not None:
        trainer.weights = {name: world.upload(weights[name].copy()) for name in trainer.weights}
    result = trainer.loss_and_gradients(epoch)
    trainer.close()
    return result
