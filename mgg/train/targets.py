"""What a model is trained and scored on: this PE's labels and splits, and how many nodes each split has in all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgg.backend.api import Array, World, together
from mgg.errors import InputError
from mgg.layout import PeLayout

SPLITS = {"train": 1, "validation": 2, "test": 3}


@dataclass(frozen=True)
class Targets:
    """On the device labels int32 [rows] of this PE and per split its rows here (int64); its size over all PEs."""

    labels: Array
    rows: dict[str, Array]
    counts: dict[str, int]

    @classmethod
    def of(cls, world: World, layout: PeLayout) -> Targets:
        """Collect the splits (collective).

        Raises:
            InputError: the graph lacks labels or splits, has no node to train or to test on, or one of them has no
                label.
        """
        name = layout.manifest.name
        together(world, lambda: _require(layout))
        assert layout.labels is not None and layout.splits is not None
        labels, splits = np.asarray(layout.labels), np.asarray(layout.splits)
        rows = {split: np.flatnonzero(splits == code) for split, code in SPLITS.items()}
        unlabeled = [np.count_nonzero(labels[chosen] < 0) for chosen in rows.values()]
        sizes = world.all_reduce(np.array([*map(len, rows.values()), *unlabeled], np.int64))
        counts = dict(zip(SPLITS, sizes.tolist(), strict=False))
        together(world, lambda: _check_sizes(name, counts, sizes[len(SPLITS) :]))
        on_device = {split: world.upload(chosen) for split, chosen in rows.items()}
        return cls(world.upload(labels), on_device, counts)


def _require(layout: PeLayout) -> None:
    manifest = layout.manifest
    if layout.labels is None or manifest.classes == 0:
        raise InputError(f"graph {manifest.name}: has no labels to train on")
    if layout.splits is None:
        raise InputError(f"graph {manifest.name}: has no training, validation and test splits")


def _check_sizes(name: str, counts: dict[str, int], unlabeled: np.ndarray) -> None:
    for (split, count), missing in zip(counts.items(), unlabeled, strict=True):
        if count == 0 and split != "validation":
            raise InputError(f"graph {name}: its {split} split is empty: give it at least one node")
        if missing:
            raise InputError(f"graph {name}: {missing} nodes of its {split} split have no label")
