"""The k-nearest-neighbor graph over the handwritten digits that scikit-learn bundles.

Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak, UCI 1998, CC BY 4.0), its test set: 1,797 images of
8 x 8 pixels of 0..16. Two images are joined when one is among the other's ten nearest (Euclidean).
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.graph.check import check_features, split_vector
from mgg.graph.sources import Arcs, ArcStream, FeatureStream, StreamedGraph, loader

FILE = "digits.csv.gz"
PIXELS = 64
CLASSES = 10
BRIGHTEST = 16
NEIGHBORS = 10
TRAIN_PER_CLASS = 20
VALIDATION = 500
SPLIT_SEED = 0


@loader("digits")
def load(path: Path) -> StreamedGraph:
    """Read ``digits.csv.gz``, one line per image: 64 pixels and the digit.

    Features are pixels over 16, so 0..1. The split takes 20 images per class for training and 500 of the others for
    validation, drawn with seed 0; the remaining 1,097 are for testing.

    Raises:
        InputError: the file is no such table.
    """
    file = path / FILE if path.is_dir() else path
    table = _read(file)
    check_features(table, len(table), str(file))
    pixels, digits = table[:, :PIXELS], table[:, PIXELS]
    if (pixels != np.round(pixels)).any() or pixels.min() < 0 or pixels.max() > BRIGHTEST:
        raise InputError(f"{file}: pixels must be whole numbers 0..{BRIGHTEST}")
    bad = np.flatnonzero(~np.isin(digits, np.arange(CLASSES)))
    if bad.size:
        raise InputError(f"{file}: label of node {bad[0]} is {digits[bad[0]]:g}; classes are 0..{CLASSES - 1}")
    labels = digits.astype(np.int32)
    rows, columns = _nearest(pixels.astype(np.int64))
    features = (pixels / BRIGHTEST).astype(np.float32)
    return StreamedGraph(
        arcs=ArcStream(lambda: iter([Arcs(rows, columns)]), len(table), undirected=True),
        features=FeatureStream(lambda: iter([features]), PIXELS),
        labels=labels,
        splits=_split(labels, str(file)),
        classes=CLASSES,
    )


def _read(file: Path) -> np.ndarray:
    try:
        with gzip.open(file, "rt", encoding="ascii") as text:
            table = np.loadtxt(text, delimiter=",", ndmin=2)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from None
    except (EOFError, zlib.error, ValueError) as error:
        raise InputError(f"{file}: not the digits table: {' '.join(str(error).split())}") from None
    if table.shape[1] != PIXELS + 1 or len(table) <= NEIGHBORS:
        raise InputError(f"{file}: holds a table of {table.shape}, expected {PIXELS + 1} columns")
    return table


def _nearest(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each pair of images, the lower id first, of which one is among the NEIGHBORS nearest of the other.

    Squared distances of whole pixels are exact whole numbers; of equal ones the lower id goes first. So the graph is
    the same on every machine, which a tree search in floating point does not guarantee.
    """
    count = len(pixels)
    squares = (pixels * pixels).sum(axis=1)
    distance = squares[:, None] + squares[None, :] - 2 * (pixels @ pixels.T)
    ranked = distance * count + np.arange(count)
    np.fill_diagonal(ranked, np.iinfo(np.int64).max)
    nearest = np.argpartition(ranked, NEIGHBORS, axis=1)[:, :NEIGHBORS]
    images, others = np.repeat(np.arange(count), NEIGHBORS), nearest.ravel()
    pairs = np.unique(np.minimum(images, others) * count + np.maximum(images, others))
    return pairs // count, pairs % count


def _split(labels: np.ndarray, name: str) -> np.ndarray:
    order = np.random.Generator(np.random.PCG64(SPLIT_SEED)).permutation(len(labels))
    train = np.concatenate([order[labels[order] == digit][:TRAIN_PER_CLASS] for digit in range(CLASSES)])
    rest = order[~np.isin(order, train)]
    return split_vector(len(labels), name, train=train, validation=rest[:VALIDATION], test=rest[VALIDATION:])
