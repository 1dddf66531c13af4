"""One class a node: softmax cross-entropy, scored by accuracy."""

from __future__ import annotations

import logging

import numpy as np

from mgg.backend.api import Array, World, together
from mgg.errors import InputError
from mgg.layout import PeLayout
from mgg.model import ModelSettings
from mgg.model.arrays import Arrays
from mgg.train.targets import SPLITS, Scores, Targets, check_sizes

_log = logging.getLogger(__name__)


class ClassTargets(Targets):
    """One class a node; labels int32 [rows] on the device, -1 = none."""

    metric = "accuracy"

    def __init__(self, world: World, layout: PeLayout, settings: ModelSettings) -> None:
        """Collective.

        Raises:
            InputError: a split is empty, one of its nodes has no label, or balanced weights for a class without
                training nodes.
        """
        name, balanced = layout.manifest.name, settings.class_weights == "balanced"
        assert layout.labels is not None and layout.splits is not None
        self.columns = layout.manifest.classes
        labels, splits = np.asarray(layout.labels), np.asarray(layout.splits)
        rows = {split: np.flatnonzero(splits == code) for split, code in SPLITS.items()}
        unlabeled = [np.count_nonzero(labels[chosen] < 0) for chosen in rows.values()]
        trained = labels[rows["train"]]
        by_class = np.bincount(trained[trained >= 0], minlength=self.columns)
        sizes = world.all_reduce(np.array([*map(len, rows.values()), *unlabeled, *by_class], np.int64))
        self.counts = dict(zip(SPLITS, sizes.tolist(), strict=False))
        self.by_class = sizes[2 * len(SPLITS) :]
        together(world, lambda: self._check(name, sizes[len(SPLITS) : 2 * len(SPLITS)], settings))
        if world.rank == 0 and not self.by_class.all():
            _log.warning("graph %s: %s, so nothing tells the model of it", name, self._missing())
        weights = np.ones(self.columns)
        if balanced:
            # As scikit-learn's class_weight="balanced": they sum to the number of training nodes.
            weights = self.counts["train"] / (self.columns * self.by_class)
        self._weights = world.upload(weights.astype(np.float32))
        self._labels = world.upload(labels)
        self._trained = world.upload(rows["train"])
        self._chosen = world.upload(np.concatenate(list(rows.values())))
        self._splits = world.upload(
            np.repeat(np.arange(len(rows), dtype=np.int32), [len(each) for each in rows.values()])
        )

    def _check(self, name: str, unlabeled: np.ndarray, settings: ModelSettings) -> None:
        check_sizes(name, self.counts, settings.selection)
        for split, missing in zip(self.counts, unlabeled, strict=True):
            if missing:
                raise InputError(f"graph {name}: {missing} nodes of its {split} split have no label")
        if settings.class_weights == "balanced" and not self.by_class.all():
            raise InputError(
                f"setting class_weights: balanced weights need training nodes of every class, and in graph {name}"
                f" {self._missing()}: set it to none"
            )

    def _missing(self) -> str:
        missing = np.flatnonzero(self.by_class == 0).tolist()
        shown = ", ".join(map(str, missing[:5])) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        return (
            f"class{'es' if len(missing) > 1 else ''} {shown} {'have' if len(missing) > 1 else 'has'} no training node"
        )

    def loss_and_gradient(self, arrays: Arrays, logits: Array) -> tuple[Array, Array]:
        """Softmax cross-entropy, by class weights."""
        return arrays.loss_and_gradient(logits, self._labels, self._trained, self._weights, self.counts["train"])

    def sums(self, arrays: Arrays, logits: Array) -> Array:
        """The loss, without class weights, and each split's hits."""
        judge = list(SPLITS).index(self.judge)
        return arrays.class_sums(logits, self._labels, self._chosen, self._splits, judge, len(SPLITS))

    def scores(self, world: World, total: np.ndarray, logits: Array) -> Scores:
        """Accuracy."""
        counts = [max(count, 1) for count in self.counts.values()]
        shares = [float(hit) / count for hit, count in zip(total[1:], counts, strict=True)]
        return Scores(float(total[0]) / self.counts[self.judge], *shares)

    def predict(self, world: World, arrays: Arrays, logits: Array) -> np.ndarray:
        """The most likely class, of equal ones the first."""
        return world.download(arrays.classes(logits))
