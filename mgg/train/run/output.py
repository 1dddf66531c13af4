"""Write the folder of a finished run: record, epochs (JSON lines and Parquet), best weights and predictions."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from safetensors.numpy import save

from mgg.files import Kind, replace_folder, write_file
from mgg.graph.io.arrow import to_arrow
from mgg.hashed import file_hash
from mgg.model import Array
from mgg.records import (
    INFERENCE_FILE,
    METRICS_FILE,
    METRICS_TABLE,
    MODEL_FOLDER,
    RUN_FILE,
    EpochRecord,
    InferenceRecord,
    TrainRecord,
    as_json,
)
from mgg.train.run.predictions import GROUP_BYTES

WEIGHTS_FILE = "weights.safetensors"
PREDICTIONS_FILE = "predictions.parquet"
KIND = Kind(RUN_FILE, (METRICS_FILE, METRICS_TABLE, WEIGHTS_FILE, PREDICTIONS_FILE, MODEL_FOLDER))
INFERENCE = Kind(INFERENCE_FILE, (PREDICTIONS_FILE, MODEL_FOLDER))


class EpochColumns:
    """The epochs so far as columns; each epoch is converted once, however often all are written."""

    def __init__(self) -> None:
        hints = get_type_hints(EpochRecord)
        fields = EpochRecord.model_fields
        self._values = {name: array("q" if hints[name] is int else "d") for name in fields}
        self._given = {name: bytearray() for name in fields}

    def __len__(self) -> int:
        return len(self._values["epoch"])

    def extend(self, epochs: Sequence[EpochRecord]) -> None:
        """Append later epochs."""
        for name, values in self._values.items():
            column = [getattr(epoch, name) for epoch in epochs]
            self._given[name].extend(value is not None for value in column)
            values.extend([0 if value is None else value for value in column])

    def arrays(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return two groups of arrays [epochs] by field.

        Returns:
            values: int64 or float64; 0 for an epoch without a value. A field that no epoch has is absent.
            given: bool, the epochs with a value; only for fields that some epochs have and others lack.
        """
        given = {name: np.array(has, bool) for name, has in self._given.items()}
        values = {name: np.array(column) for name, column in self._values.items() if given[name].any()}
        return values, {name: given[name] for name in values if not given[name].all()}

    def table(self) -> pa.Table:
        """Return a table: one column per field, int64 or float64, null for values not measured."""
        fields, columns = [], []
        for name, field in EpochRecord.model_fields.items():
            columns.append(to_arrow(np.array(self._values[name]), np.array(self._given[name], bool)))
            fields.append(pa.field(name, columns[-1].type, metadata={"description": field.description or ""}))
        return pa.table(columns, schema=pa.schema(fields))


def write_run(
    out: Path, record: TrainRecord, epochs: Sequence[EpochRecord], weights: dict[str, Array], predictions: pa.Table,
    model: bytes | None = None,
) -> None:  # fmt: skip
    """Write the run's folder ``out`` atomically; it replaces that of an earlier run.

    Args:
        record, epochs: the run's record, and one per epoch, in order.
        weights: weights and running statistics of ``record.best_epoch``, by name.
        predictions: the table of ``predictions.collect`` for these weights.
        model: content of the user's own model file; None: the model is MGG's.

    Raises:
        InputError: ``out`` exists and is not a run, or its parent cannot be written.
        MachineError: the disk is full or fails.
    """
    facts = record.model_dump(mode="json", include={"model", "dataset", "graph_hash", "settings", "best_epoch"})
    with replace_folder(out, KIND) as folder:
        arrays = {name: np.ascontiguousarray(array) for name, array in weights.items()}
        # Use one entry: safetensors writes several in an order that changes from run to run.
        said = json.dumps(facts | {"sha256": digest(json.dumps(facts, sort_keys=True), arrays)}, sort_keys=True)
        write_file(folder / WEIGHTS_FILE, save(arrays, {"mgg": said}))
        write_predictions(predictions, folder / PREDICTIONS_FILE)
        lines = "".join(epoch.model_dump_json(exclude_none=True) + "\n" for epoch in epochs)
        write_file(folder / METRICS_FILE, lines.encode())
        columns = EpochColumns()
        columns.extend(epochs)
        pa.parquet.write_table(columns.table(), folder / METRICS_TABLE, compression="zstd")
        _finish(folder / RUN_FILE, record, model)


def write_inference(out: Path, record: InferenceRecord, predictions: pa.Table, model: bytes | None = None) -> None:
    """Write a folder of predictions alone, atomically; arguments and errors as in ``write_run``."""
    with replace_folder(out, INFERENCE) as folder:
        write_predictions(predictions, folder / PREDICTIONS_FILE)
        _finish(folder / INFERENCE_FILE, record, model)


def _finish(path: Path, record: TrainRecord | InferenceRecord, model: bytes | None) -> None:
    """Write the model's file, if there is one, and the record, which lists all files with their hashes."""
    folder = path.parent
    if model is not None:
        write_file(folder / MODEL_FOLDER / f"{record.model}.py", model)
    found = (each for each in sorted(folder.rglob("*")) if each.is_file())
    files = {str(each.relative_to(folder)): file_hash(each) for each in found}
    write_file(path, as_json(record, indent=2, files=files).encode())


def write_predictions(predictions: pa.Table, path: Path) -> None:
    """Write the table of ``predictions.collect`` in row groups of about ``GROUP_BYTES``."""
    rows = max(1, GROUP_BYTES * len(predictions) // max(1, predictions.nbytes))
    pa.parquet.write_table(predictions, path, compression="zstd", row_group_size=rows)


def digest(text: str, tensors: Mapping[str, Array]) -> str:
    """Return the sha256 of ``text`` and of the tensors' names, types, shapes and values.

    It reveals a torn or altered file; nothing is copied.
    """
    found = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        array = tensors[name]
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()
