"""The check of products that a program of PEs made."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mgg.backend import simulated
from mgg.graph.csr import Csr
from support.graphs import matrix, relative_error
from support.spmm_program import inputs, products


def worst(csr: Csr, parts: list[dict[str, np.ndarray]]) -> tuple[float, str, str, str]:
    """Largest error over techniques, directions and widths; ``parts`` holds each PE's rows."""
    errors = []
    for key in parts[0]:
        technique, direction, dim = key.split(" ")
        a = matrix(csr) if direction == "forward" else matrix(csr).T.tocsr()
        whole = np.concatenate([part[key] for part in parts])
        assert whole.shape == (csr.rows, int(dim)) and whole.dtype == np.float32
        errors.append((relative_error(whole, a, inputs(np.arange(csr.rows), int(dim))), technique, direction, dim))
    return max(errors)


def simulated_bytes(folder: Path, pes: int) -> list[dict[str, int]]:
    """Bytes that each PE of the simulated backend moves in a product of one column, by ``"technique direction"``."""
    moved: list[dict[str, int]] = [{} for _ in range(pes)]
    simulated.run(pes, lambda world: products(world, folder, [1], moved=moved[world.rank]))
    return [{key.rpartition(" ")[0]: count for key, count in mine.items()} for mine in moved]


def wrong_bytes(expected: list[dict[str, int]], found: list[dict[str, int]]) -> list[str]:
    """Keys ``"technique direction dim"`` of products that moved other bytes than ``dim`` times those of one column."""
    return [
        key
        for before, after in zip(expected, found, strict=True)
        for key, count in after.items()
        if count != before[key.rpartition(" ")[0]] * int(key.rpartition(" ")[2])
    ]
