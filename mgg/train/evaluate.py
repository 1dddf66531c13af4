"""Score a finished run from its predictions; OGB's data sets use OGB's own Evaluator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mgg.errors import InputError, MachineError
from mgg.graph.check import SPLITS
from mgg.model.loss import decisions
from mgg.records import read_predicted, run_file
from mgg.train.run.output import PREDICTIONS_FILE
from mgg.train.run.predictions import SCHEMA, task_schema
from mgg.train.targets.metrics import OGB
from mgg.train.targets.tasks import micro_f1, roc_auc


def evaluate(run: str | Path) -> dict[str, Any]:
    """Score ``predictions.parquet`` of a run.

    Args:
        run: the folder of a run, or of mgg infer.

    Returns:
        ``dataset``, ``judge`` (``mgg`` or ``ogb``), ``metric``, ``nodes`` (their number), and the metric over the
        labeled nodes of ``train``, ``validation`` and ``test``; None for a split without any.

    Raises:
        InputError: the folder is not a run, its predictions cannot be read, or the graph has the name of an OGB data
            set and is another one.
        MachineError: the data set is OGB's, and the package ogb is not installed.
    """
    record = read_predicted(Path(run))
    predicted, label, split = _predictions(run_file(run, PREDICTIONS_FILE))
    known = label >= 0 if label.ndim == 1 else (label <= 1).any(axis=1)
    judge = _Ogb(run, record.dataset) if record.dataset.startswith(OGB) else None
    scores: dict[str, Any] = {}
    for name, code in SPLITS.items():
        mine = (split == code) & known
        scores[name] = _score(judge, record.metric, label[mine], predicted[mine]) if mine.any() else None
    metric = judge.metric if judge else {"accuracy": "acc"}.get(record.metric, record.metric)
    return {
        "dataset": record.dataset,
        "judge": "ogb" if judge else "mgg",
        "metric": metric,
        "nodes": len(split),
        **scores,
    }


def _score(judge: _Ogb | None, metric: str, label: np.ndarray, predicted: np.ndarray) -> float | None:
    if judge is not None:
        if label.ndim == 1:
            label, predicted = label.reshape(-1, 1), predicted.reshape(-1, 1)
        else:
            # OGB marks unknown labels with NaN.
            label = np.where(label <= 1, label, np.nan)
        return judge(label, predicted)
    if label.ndim == 1:
        return float(np.mean(label == predicted))
    if metric == "micro_f1":
        return micro_f1(*decisions(predicted, label, np.arange(len(label))).tolist())
    areas = [
        area for task in range(label.shape[1]) if (area := roc_auc(label[:, task], predicted[:, task])) is not None
    ]
    return float(np.mean(areas)) if areas else None


class _Ogb:
    """OGB's Evaluator for a data set."""

    def __init__(self, run: str | Path, dataset: str) -> None:
        try:
            from ogb.nodeproppred import Evaluator
        except ImportError as error:
            raise MachineError(
                f"{dataset}: OGB's Evaluator is not installed ({error}); install it with: pip install 'mgg[ogb]'"
            ) from None
        self._run, self._dataset = run, dataset
        self._evaluator = self._asked(lambda: Evaluator(dataset))
        self.metric: str = self._evaluator.eval_metric

    def __call__(self, label: np.ndarray, predicted: np.ndarray) -> float:
        """Return the metric; both arguments are [nodes, tasks], unknown labels NaN."""
        found = self._asked(lambda: self._evaluator.eval({"y_true": label, "y_pred": predicted}))
        return float(found[self.metric])

    def _asked(self, question: Callable[[], Any]) -> Any:
        """Call the Evaluator; if it refuses, the graph has an OGB name but is another graph."""
        try:
            # The Evaluator prints unknown names.
            with redirect_stdout(StringIO()):
                return question()
        except (RuntimeError, ValueError) as error:
            refusal = str(error).partition("\n")[0].rstrip(".")
            raise InputError(
                f"{self._run}: OGB's Evaluator refuses the predictions ({refusal}): is the graph OGB's {self._dataset}?"
                f" Otherwise give it a name that does not begin with {OGB}, and train again"
            ) from None


def _predictions(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read classes or logits, labels (both [nodes] or [nodes, tasks]), and splits [nodes]."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: not readable ({' '.join(str(error).split())}); train again") from None
    names, expected = table.schema.names, (SCHEMA.names, task_schema(1).names)
    if names not in expected:
        raise InputError(
            f"{path}: has columns {', '.join(names)}, expected {' or '.join(map(', '.join, expected))}; train again"
        )
    _, predicted, label, split = (_array(table.column(name).combine_chunks()) for name in names)
    return predicted, label, split


def _array(column: Any) -> np.ndarray:
    """Return a column as an array; a column of lists becomes a matrix."""
    if not isinstance(column.type, pa.FixedSizeListType):
        return np.asarray(column)
    return np.asarray(column.flatten()).reshape(len(column), column.type.list_size)
