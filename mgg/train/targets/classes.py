"""One class per node: softmax cross-entropy, scored by accuracy."""

from __future__ import annotations

import logging

import numpy as np

from mgg.backend.api import Array, World, together
from mgg.errors import InputError
from mgg.graph.check import SPLITS
from mgg.layout import PeLayout
from mgg.model import ModelSettings
from mgg.model.arrays import Arrays
from mgg.model.loss import CLASS_GRADIENT, CLASS_LOSS, GRADIENT
from mgg.train.targets import LOGIT, SUM, Scores, Targets, check_sizes

_log = logging.getLogger(__name__)
#: Bytes of a row number, and of its split number.
_ROW, _SPLIT = 8, 4


class ClassTargets(Targets):
    """One class per node; labels int32 [rows] on the device, -1 = none."""

    metric = "accuracy"

    def __init__(self, world: World, layout: PeLayout, settings: ModelSettings) -> None:
        """Count the nodes of each class and split (collective).

        Raises:
            InputError: a split is empty, one of its nodes has no label, a class has validation or test nodes but no
                training nodes, or weights are balanced and a class has no training nodes.
        """
        name = layout.manifest.name
        assert layout.labels is not None and layout.splits is not None
        self._layout, self._balanced = layout, settings.class_weights == "balanced"
        self.columns = layout.manifest.classes
        labels, splits = np.asarray(layout.labels), np.asarray(layout.splits)
        # Count unlabeled nodes first, then the nodes of each class.
        mine = [np.bincount(labels[splits == code] + 1, minlength=1 + self.columns) for code in SPLITS.values()]
        found = world.all_reduce(np.array(mine, np.int64))
        self.counts = dict(zip(SPLITS, found.sum(axis=1).tolist(), strict=True))
        self._classes = dict(zip(SPLITS, found[:, 1:], strict=True))
        together(world, lambda: self._check(name, found[:, 0], settings))
        if world.rank == 0 and not self._classes["train"].all():
            _log.warning("graph %s: %s, so nothing tells the model of it", name, self._missing())
        here = [int(each.sum()) for each in mine]
        numbers = _ROW * (here[0] + sum(here)) + _SPLIT * sum(here)
        self.memory = numbers + (labels.nbytes if world.gpu else 0)
        self.passing = self._passing(bool(world.gpu), layout.rows, dict(zip(SPLITS, here, strict=True)))

    def _passing(self, gpu: bool, rows: int, here: dict[str, int]) -> int:
        """Return ``passing`` for ``here`` nodes of each split; GPUs replace the logits by their gradient row by row."""
        logits = LOGIT * rows * self.columns
        if gpu:
            return logits + SUM * (rows + here["train"])
        gradient = GRADIENT * rows + CLASS_GRADIENT * here["train"]
        most = max(CLASS_LOSS * max(here["train"], here[self.judge]), gradient)
        return logits + most * self.columns

    def place(self, world: World) -> None:
        """Place the labels and the nodes of the splits."""
        layout, weights = self._layout, np.ones(self.columns)
        if self._balanced:
            # As in scikit-learn's class_weight="balanced", the nodes' weights sum to the number of training nodes.
            weights = self.counts["train"] / (self.columns * self._classes["train"])
        rows = [np.flatnonzero(np.asarray(layout.splits) == code) for code in SPLITS.values()]
        self._weights = world.upload(weights.astype(np.float32))
        self._labels = world.upload(np.asarray(layout.labels))
        self._trained = world.upload(rows[0])
        self._chosen = world.upload(np.concatenate(rows))
        self._splits = world.upload(np.repeat(np.arange(len(rows), dtype=np.int32), [len(each) for each in rows]))

    def _check(self, name: str, unlabeled: np.ndarray, settings: ModelSettings) -> None:
        check_sizes(name, self.counts, settings.selection)
        for split, missing in zip(self.counts, unlabeled, strict=True):
            if missing:
                raise InputError(f"graph {name}: {missing} nodes of its {split} split have no label")
        untrained = self._classes["train"] == 0
        if settings.class_weights == "balanced" and untrained.any():
            raise InputError(
                f"setting class_weights: balanced weights need training nodes of every class, and in graph {name}"
                f" {self._missing()}: set it to none"
            )
        asked = [split for split in ("validation", "test") if self._classes[split][untrained].any()]
        if asked and settings.untrained_classes == "refuse":
            asking = untrained & (self._classes["validation"] + self._classes["test"] > 0)
            verb = "have" if np.count_nonzero(asking) > 1 else "has"
            where = f"{' and '.join(asked)} split{'s' if len(asked) > 1 else ''}"
            raise InputError(
                f"graph {name}: {_listed(np.flatnonzero(asking))} {verb} nodes in its {where} and none"
                " in its train split: give each class a training node, or score them all the same:"
                " untrained_classes=count"
            )

    def _missing(self) -> str:
        missing = np.flatnonzero(self._classes["train"] == 0)
        return f"{_listed(missing)} {'have' if len(missing) > 1 else 'has'} no training node"

    def loss_and_gradient(self, arrays: Arrays, logits: Array) -> tuple[Array, Array]:
        """Return the softmax cross-entropy with class weights, and its gradient."""
        return arrays.loss_and_gradient(logits, self._labels, self._trained, self._weights, self.counts["train"])

    def sums(self, arrays: Arrays, logits: Array) -> Array:
        """Return the loss without class weights, and the hits of each split."""
        judge = list(SPLITS).index(self.judge)
        return arrays.class_sums(logits, self._labels, self._chosen, self._splits, judge, len(SPLITS))

    def scores(self, world: World, total: np.ndarray, logits: Array) -> Scores:
        """Return the accuracy of each split."""
        counts = [max(count, 1) for count in self.counts.values()]
        shares = [float(hit) / count for hit, count in zip(total[1:], counts, strict=True)]
        return self.of_splits(float(total[0]) / self.counts[self.judge], *shares)

    def predict(self, world: World, arrays: Arrays, logits: Array) -> np.ndarray:
        """Return the most likely class, the first of equal ones."""
        return world.download(arrays.classes(logits))


def _listed(classes: np.ndarray) -> str:
    """Return ``class 3``, or ``classes 3, 5`` with at most five listed, for messages."""
    shown = ", ".join(map(str, classes[:5].tolist()))
    more = f" and {len(classes) - 5} more" if len(classes) > 5 else ""
    return f"class{'es' if len(classes) > 1 else ''} {shown}{more}"
