"""Generator ``criteo-like``: samples over 26 tables that are as large as those of Criteo's Kaggle challenge."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.files import check_output
from mgg.lookup.samples import KIND, Manifest, write

NAME = "criteo-like"
#: Categories of each of the 26 columns of the challenge's train.txt, the missing one among them, as DLRM counts them.
TABLES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
    2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
#: Exponent of Zipf's law: how often the k-th most frequent row is asked for goes as k to the power of minus this.
EXPONENT = 1.05
#: By default 64 batches of 4,096.
SAMPLES = 262_144
_CHUNK = 1 << 16


def generate(
    out: Path, *, name: str | None = None, scale: float | None = None, seed: int | None = None,
    samples: int | None = None,
) -> Manifest:  # fmt: skip
    """Make the folder ``out``.

    Args:
        out: the folder; one that exists is replaced when the new one is whole.
        name: what the data set is called; by default criteo-like.
        scale: rows of each table as a share of the real one's, at least one; 1 by default.
        seed: of the draws; 0 by default.
        samples: how many; ``SAMPLES`` by default.

    Raises:
        InputError: a scale that cannot be, or too many rows.
    """
    scale, seed = 1.0 if scale is None else float(scale), 0 if seed is None else seed
    samples = SAMPLES if samples is None else samples
    if not (math.isfinite(scale) and scale > 0):
        raise InputError(f"{NAME}: scale must be above 0, found {scale}")
    check_output(out, KIND)
    tables = [max(1, round(rows * scale)) for rows in TABLES]
    source = {"generator": NAME, "scale": scale, "seed": seed, "exponent": EXPONENT}
    return write(out, name or NAME, tables, _drawn(tables, seed, samples), source)


def _drawn(tables: list[int], seed: int, samples: int) -> Iterator[np.ndarray]:
    """int32 [samples, tables] in parts; the first rows of a table are the frequent ones, as where ids are given by
    first appearance.
    """
    for first in range(0, samples, _CHUNK):
        count = min(_CHUNK, samples - first)
        rng = np.random.Generator(np.random.PCG64([seed, first // _CHUNK]))
        yield np.stack([zipf(rng.random(count), rows) for rows in tables], axis=1)


def zipf(uniform: np.ndarray, rows: int) -> np.ndarray:
    """Rows 0 .. ``rows`` - 1 by Zipf's law, from numbers in [0, 1): the continuous law on [1, rows + 1), inverted."""
    power = 1 - EXPONENT
    at = (1 + uniform * ((rows + 1) ** power - 1)) ** (1 / power)
    return np.clip(at.astype(np.int64) - 1, 0, rows - 1).astype(np.int32)
