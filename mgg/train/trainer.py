"""One model on one graph: weights, a training step, an evaluation. Every PE runs the same calls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgg.backend.api import World, together
from mgg.errors import InputError
from mgg.layout import PeLayout
from mgg.model import Array, Features, ModelSettings, Pass, build, settings_of
from mgg.model.features import SPARSE_BELOW, prepare_features
from mgg.model.init import initial_weights
from mgg.model.loss import correct, cross_entropy, cross_entropy_gradient
from mgg.model.neighborhood import Neighborhood
from mgg.model.optimizer import Adam
from mgg.train.targets import Targets


@dataclass(frozen=True)
class Scores:
    """Result of an evaluation over the nodes of all PEs; accuracies in 0..1."""

    validation_loss: float
    train_accuracy: float
    validation_accuracy: float
    test_accuracy: float


class Trainer:
    """Replicated weights and optimizer, this PE's rows of the graph and of the features.

    Attributes:
        weights: float32 arrays by name, the same on every PE.
        state: running statistics of batch normalization by name, float64, the same on every PE.
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
        self._chain = together(world, lambda: build(model, settings, layout.manifest.features, layout.manifest.classes))
        self._x, self.settings = self._features(layout, settings)
        self._graph = Neighborhood.prepare(world, layout, technique, options, self._chain.width)
        self.weights = initial_weights(self._chain.parameters, seed)
        self.state = {name: value.copy() for name, value in self._chain.state.items()}
        self.adam = Adam(self._chain.parameters, self.weights, settings.learning_rate)

    def _features(self, layout: PeLayout, settings: ModelSettings) -> tuple[Features, ModelSettings]:
        """The input, and the settings with what depends on it; all PEs decide alike."""
        assert layout.features is not None
        features = np.asarray(layout.features)
        counts = self._world.all_reduce(np.array([np.count_nonzero(features), features.size], np.int64))
        as_sparse = bool(counts[0] < SPARSE_BELOW * counts[1])
        if settings.row_normalize is None:
            settings = settings.model_copy(update={"row_normalize": as_sparse})
        x = prepare_features(features, as_sparse=as_sparse, row_normalize=bool(settings.row_normalize))
        return x, settings

    def loss_and_gradients(self, epoch: int) -> tuple[float, dict[str, Array]]:
        """Mean training loss over all PEs, and its gradients by name (float64), with the dropout of ``epoch``.

        The running statistics in ``state`` move on. All sums over PEs go through one all-reduce in float64.
        """
        run = Pass(self._graph, self.weights, self.state, training=True, epoch=epoch, seed=self._seed)
        labels, chosen = self._targets.labels, self._targets.rows["train"]
        count = self._targets.counts["train"]
        # A diverging model overflows: the caller reports that once, with its epoch, instead of NumPy many times.
        with np.errstate(over="ignore", invalid="ignore"):
            logits = self._chain.forward(self._x, run)
            loss = cross_entropy(logits, labels, chosen) / count
            self._chain.backward(cross_entropy_gradient(logits, labels, chosen, count), run, inputs=False)
        return self._total(loss, run.gradients)

    def _total(self, loss: float, gradients: dict[str, Array]) -> tuple[float, dict[str, Array]]:
        parts = [np.array([loss]), *(gradients[name].ravel() for name in self.weights)]
        total = self._world.all_reduce(np.concatenate(parts))
        ends = np.cumsum([part.size for part in parts])
        arrays = np.split(total, ends[:-1])[1:]
        shaped = zip(self.weights.items(), arrays, strict=True)
        return float(total[0]), {name: array.reshape(weight.shape) for (name, weight), array in shaped}

    def step(self, epoch: int) -> float:
        """One training step, the ``epoch``-th (from 1); returns the mean training loss before it.

        Raises:
            InputError: the loss is not finite; the weights stay as they were.
        """
        loss, gradients = self.loss_and_gradients(epoch)
        if not math.isfinite(loss):
            message = f"epoch {epoch}: the training loss is {loss}: lower the setting learning_rate"
            raise InputError(message).on_every_pe()
        self.adam.step(self.weights, gradients, epoch)
        return loss

    def evaluate(self) -> Scores:
        """Score the weights without dropout (collective)."""
        targets = self._targets
        with np.errstate(over="ignore", invalid="ignore"):
            logits = self._chain.forward(self._x, Pass(self._graph, self.weights, self.state))
            loss = cross_entropy(logits, targets.labels, targets.rows["validation"])
        hits = [correct(logits, targets.labels, chosen) for chosen in targets.rows.values()]
        total = self._world.all_reduce(np.array([loss, *hits], np.float64))
        shares = [float(hit) / count for hit, count in zip(total[1:], targets.counts.values(), strict=True)]
        return Scores(float(total[0]) / targets.counts["validation"], *shares)

    def predict(self, arrays: dict[str, Array]) -> Array:
        """The most likely class of each of this PE's rows, int64 [rows], without dropout (collective).

        Args:
            arrays: weights and running statistics by name; of equally likely classes the first is taken.
        """
        weights, state = ({name: arrays[name] for name in mine} for mine in (self.weights, self.state))
        with np.errstate(over="ignore", invalid="ignore"):
            logits = self._chain.forward(self._x, Pass(self._graph, weights, state))
        return np.argmax(logits, axis=1)

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
        trainer.weights = {name: weights[name].copy() for name in trainer.weights}
    result = trainer.loss_and_gradients(epoch)
    trainer.close()
    return result
