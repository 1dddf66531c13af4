"""The accuracy of a finished run from its predictions; for OGB's data sets by OGB's own Evaluator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mgg.errors import InputError, MachineError
from mgg.graph.check import SPLITS
from mgg.record import read_run
from mgg.train.output import PREDICTIONS_FILE
from mgg.train.predictions import SCHEMA

#: How the names of OGB's node-property data sets begin.
OGB = "ogbn-"


def evaluate(run: str | Path) -> dict[str, Any]:
    """Score ``predictions.parquet`` of a run.

    Args:
        run: the run's folder.

    Returns:
        ``dataset``, ``judge`` (``mgg`` or ``ogb``), ``metric``, and the metric over the labeled nodes of ``train``,
        ``validation`` and ``test``, None where a split has none.

    Raises:
        InputError: the folder is no run or its predictions cannot be read.
        MachineError: the data set is OGB's and the package ogb is not installed.
    """
    record, _ = read_run(Path(run))
    table = _predictions(Path(run) / PREDICTIONS_FILE)
    node, prediction, label, split = (table.column(name).to_numpy() for name in SCHEMA.names)
    judge = _ogb(record.dataset) if record.dataset.startswith(OGB) else None
    scores: dict[str, Any] = {}
    for name in ("train", "validation", "test"):
        mine = (split == SPLITS[name]) & (label >= 0)
        scores[name] = _score(judge, label[mine], prediction[mine]) if mine.any() else None
    metric = "acc" if judge is None else judge.eval_metric
    return {
        "dataset": record.dataset,
        "judge": "ogb" if judge else "mgg",
        "metric": metric,
        "nodes": len(node),
        **scores,
    }


def _score(judge: Any, label: np.ndarray, prediction: np.ndarray) -> float:
    if judge is None:
        return float(np.mean(label == prediction))
    found = judge.eval({"y_true": label.reshape(-1, 1), "y_pred": prediction.reshape(-1, 1)})
    return float(found[judge.eval_metric])


def _ogb(dataset: str) -> Any:
    """OGB's Evaluator of a data set, and what it is called there."""
    try:
        from ogb.nodeproppred import Evaluator
    except ImportError as error:
        raise MachineError(
            f"{dataset}: OGB's Evaluator is not installed ({error}); install it with: pip install 'mgg[ogb]'"
        ) from None
    return Evaluator(dataset)


def _predictions(path: Path) -> pa.Table:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: not readable ({' '.join(str(error).split())}); train again") from None
    if table.schema.names != SCHEMA.names:
        raise InputError(f"{path}: has columns {', '.join(table.schema.names)}, expected {', '.join(SCHEMA.names)}")
    return table
