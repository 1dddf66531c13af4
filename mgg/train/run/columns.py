"""Convert the epochs of a training to arrays, one column per field of ``EpochRecord``, and back without loss."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import get_type_hints

import numpy as np

from mgg.model import Array
from mgg.record import EpochRecord


class Columns:
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


def to_records(values: dict[str, Array], given: dict[str, Array]) -> list[EpochRecord]:
    """Return the epochs from the result of ``Columns.arrays``.

    Raises:
        ValueError: the columns differ in length, or are not those of an ``EpochRecord``.
        KeyError: ``given`` has a field that is not in ``values``.
    """
    columns = {name: column.tolist() for name, column in values.items()}
    for name, has in given.items():
        columns[name] = [value if there else None for value, there in zip(columns[name], has.tolist(), strict=True)]
    return [EpochRecord(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
