"""Several yes-or-no labels per node (multi-label): sigmoid cross-entropy, scored by micro-F1 or ROC-AUC."""

from __future__ import annotations

import math

import numpy as np

from mgg.backend.api import Array, World, together
from mgg.errors import InputError
from mgg.graph.check import SPLITS
from mgg.layout import PeLayout
from mgg.model import ModelSettings
from mgg.model.arrays import Arrays
from mgg.model.loss import DECISIONS, GRADIENT, TASK_GRADIENT, TASK_LOSS
from mgg.train.targets import LOGIT, SUM, Scores, Targets, check_sizes

#: Bytes of a row number, and of a node while a task ranks the nodes of a split.
_ROW, _RANKED = 8, 80


class TaskTargets(Targets):
    """Tasks uint8 [rows, tasks] on the device: 0, 1, or 255 for unknown; unknown ones are ignored."""

    def __init__(self, world: World, layout: PeLayout, metric: str, settings: ModelSettings) -> None:
        """Count the answers of each task and split (collective).

        Raises:
            InputError: a split is empty or none of its tasks is known; or, for roc_auc, no task in it has both answers.
        """
        assert layout.tasks is not None and layout.splits is not None
        self.metric, self.columns = metric, layout.manifest.tasks
        tasks, splits = np.asarray(layout.tasks), np.asarray(layout.splits)
        here = [int(np.count_nonzero(splits == code)) for code in SPLITS.values()]
        answers = np.array(
            [[(tasks[splits == code] == answer).sum(axis=0) for answer in (0, 1)] for code in SPLITS.values()]
        )
        sizes = world.all_reduce(np.array([*here, *answers.ravel()], np.int64))
        nodes = dict(zip(SPLITS, sizes.tolist(), strict=False))
        #: Number of zeros and ones of each task by split, int64 [splits, 2, tasks].
        self._answers = sizes[len(SPLITS) :].reshape(answers.shape)
        self.counts = dict(zip(SPLITS, self._answers.sum(axis=(1, 2)).tolist(), strict=True))
        together(world, lambda: self._check(layout.manifest.name, nodes, settings.selection))
        self._layout = layout
        mine = dict(zip(SPLITS, here, strict=True))
        ranked = len(range(world.rank, self.columns, world.size)) * sum(nodes.values())
        self.memory = _ROW * sum(here) + (tasks.nbytes if world.gpu else ranked * (metric == "roc_auc"))
        self.passing = self._passing(bool(world.gpu), len(tasks), mine)
        if metric == "roc_auc" and not world.gpu:  # with GPUs, ranking takes host memory only
            self.passing = max(self.passing, self._ranking(world, len(tasks), mine, nodes))

    def _passing(self, gpu: bool, rows: int, here: dict[str, int]) -> int:
        """Return ``passing`` without ranking, for ``here`` nodes of each split; GPUs keep one loss per known task."""
        trained, judged = here["train"], here[self.judge]
        if gpu:
            most = max(GRADIENT * rows + SUM * trained, SUM * judged)
        else:
            gradient = GRADIENT * rows + TASK_GRADIENT * trained
            most = max(gradient, TASK_LOSS * max(trained, judged), DECISIONS * max(here.values()))
        return (LOGIT * rows + most) * self.columns

    def _ranking(self, world: World, rows: int, here: dict[str, int], nodes: dict[str, int]) -> int:
        """Return ``passing`` while a split is ranked, from this PE's (``here``) and all PEs' ``nodes`` by split."""
        own, most, before = len(range(world.rank, self.columns, world.size)), 0, 0
        for split, count in here.items():
            scores = LOGIT * nodes[split] * own
            sent, got = LOGIT * count * (self.columns - own), LOGIT * (nodes[split] - count) * own
            # PEs of one process pass views; others write messages, concatenate them, and read what they receive.
            messages = 0 if world.name == "simulated" else 2 * (sent + got)
            exchange = before + LOGIT * count * self.columns + max(messages, scores)
            most, before = max(most, exchange, scores + _RANKED * nodes[split]), scores
        return LOGIT * rows * self.columns + most

    def place(self, world: World) -> None:
        """Place the tasks and the nodes of the splits."""
        tasks, splits = np.asarray(self._layout.tasks), np.asarray(self._layout.splits)
        self._here = {split: np.flatnonzero(splits == code) for split, code in SPLITS.items()}
        self._tasks = world.upload(tasks)
        self._rows = {split: world.upload(rows) for split, rows in self._here.items()}
        # PE q ranks the tasks q, q + P, ..., so it keeps their answers for all nodes.
        self._theirs = {
            split: self._from_all(world, tasks[rows]) for split, rows in self._here.items() if self.metric == "roc_auc"
        }

    def _check(self, name: str, nodes: dict[str, int], selection: str) -> None:
        check_sizes(name, nodes, selection)
        for number, (split, known) in enumerate(self.counts.items()):
            if not nodes[split]:
                continue
            if not known:
                raise InputError(f"graph {name}: no task of its {split} split is known")
            if self.metric == "roc_auc" and not self._answers[number].all(axis=0).any():
                raise InputError(
                    f"metric roc_auc: no task of the {split} split of graph {name} has both yes and no: take micro_f1"
                )

    def loss_and_gradient(self, arrays: Arrays, logits: Array) -> tuple[Array, Array]:
        """Return the mean sigmoid cross-entropy over known tasks, and its gradient."""
        return arrays.binary_loss_and_gradient(logits, self._tasks, self._rows["train"], self.counts["train"])

    def sums(self, arrays: Arrays, logits: Array) -> Array:
        """Return the loss and the decisions of each split."""
        loss = arrays.binary_cross_entropy(logits, self._tasks, self._rows[self.judge])
        found = [arrays.decisions(logits, self._tasks, chosen) for chosen in self._rows.values()]
        return arrays.joined([loss, *found])

    def scores(self, world: World, total: np.ndarray, logits: Array) -> Scores:
        """Return the metric of each split."""
        mean = float(total[0]) / self.counts[self.judge]
        if self.metric == "micro_f1":
            return self.of_splits(mean, *(micro_f1(*each) for each in total[1:].reshape(-1, 3).tolist()))
        if not math.isfinite(mean):
            return self.of_splits(mean, math.nan, math.nan, math.nan)
        return self.of_splits(mean, *self._roc_auc(world, world.download(logits)))

    def _roc_auc(self, world: World, logits: np.ndarray) -> list[float]:
        """Return each split's mean over the tasks that have both answers, as in OGB's Evaluator (collective)."""
        sums = np.zeros(len(SPLITS))
        for number, (split, rows) in enumerate(self._here.items()):
            scores, answers = self._from_all(world, logits[rows]), self._theirs[split]
            for task in range(answers.shape[1]):
                sums[number] += roc_auc(answers[:, task], scores[:, task]) or 0.0
        defined = np.maximum(self._answers.all(axis=1).sum(axis=1), 1)
        return (world.all_reduce(sums) / defined).tolist()

    @staticmethod
    def _from_all(world: World, values: np.ndarray) -> np.ndarray:
        """Return columns rank, rank + P, ... of all PEs' ``values``, with rows in the order of PEs (collective)."""
        return np.concatenate(world.exchange([values[:, pe :: world.size] for pe in range(world.size)]))

    def predict(self, world: World, arrays: Arrays, logits: Array) -> np.ndarray:
        """Return the logits: float32 probabilities of all logits above 17 would tie and lose their ranks."""
        return world.download(logits)


def micro_f1(hits: float, wrong: float, missed: float) -> float:
    """Return 2 TP / (2 TP + FP + FN) over all tasks; 0 if nothing is or should be yes, as in scikit-learn."""
    return 2 * hits / (2 * hits + wrong + missed) if hits else 0.0


def roc_auc(answers: np.ndarray, scores: np.ndarray) -> float | None:
    """Return the area under the ROC curve of one task, both arguments [nodes]; None if all known answers agree."""
    from sklearn.metrics import roc_auc_score

    known = answers <= 1
    yes = answers[known]
    return float(roc_auc_score(yes, scores[known])) if 0 < np.count_nonzero(yes) < len(yes) else None
