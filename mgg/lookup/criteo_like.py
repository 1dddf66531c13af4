"""Generator ``criteo-like``: samples over 26 tables of the sizes in Criteo's Kaggle challenge."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.files import check_output
from mgg.lookup.samples import KIND, SamplesManifest, write

NAME = "criteo-like"
#: Categories of each of the 26 columns of the challenge's train.txt, missing included, as DLRM counts them.
TABLES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
    2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
#: Exponent of Zipf's law: the frequency of the k-th most frequent row is proportional to k ** -EXPONENT.
EXPONENT = 1.05
#: Default number of samples: 64 batches of 4,096.
SAMPLES = 262_144
_CHUNK = 1 << 16


def generate(
    out: Path, *, name: str | None = None, scale: float | None = None, seed: int | None = None,
    samples: int | None = None,
) -> SamplesManifest:  # fmt: skip
    """Write the folder ``out``.

    Args:
        out: the folder; an existing one is replaced once the new one is complete.
        name: name of the data set; by default criteo-like.
        scale: rows of each table as a share of the real table's, at least one row; 1 by default.
        seed: seed of the draws; 0 by default.
        samples: number of samples; ``SAMPLES`` by default.

    Raises:
        InputError: an invalid scale, or too many rows.
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
    """Yield int32 [samples, tables] in parts; a table's first rows are the frequent ones, as with ids ``first``."""
    for first in range(0, samples, _CHUNK):
        count = min(_CHUNK, samples - first)
        rng = np.random.Generator(np.random.PCG64([seed, first // _CHUNK]))
        yield np.stack([zipf(rng.random(count), rows) for rows in tables], axis=1)


def zipf(uniform: np.ndarray, rows: int) -> np.ndarray:
    """Map numbers in [0, 1) to rows 0 .. ``rows`` - 1 by Zipf's law: invert the continuous law on [1, rows + 1)."""
    power = 1 - EXPONENT
    at = (1 + uniform * ((rows + 1) ** power - 1)) ** (1 / power)
    return np.clip(at.astype(np.int64) - 1, 0, rows - 1).astype(np.int32)
