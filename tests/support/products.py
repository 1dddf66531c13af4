"""The check of products that a program of PEs made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from mgg.aggregate import techniques
from mgg.backend import simulated
from mgg.graph.csr import Csr
from support.graphs import expected_product, matrix, scaled_error
from support.spmm_program import inputs, products


def worst(csr: Csr, parts: list[dict[str, np.ndarray]]) -> tuple[float, str, str, str]:
    """Largest error over techniques, directions and widths; ``parts`` holds each PE's rows."""
    errors = []
    for direction, dim in dict.fromkeys(tuple(key.split(" ")[1:]) for key in parts[0]):
        a = matrix(csr) if direction == "forward" else matrix(csr).T.tocsr()
        expected = expected_product(a, inputs(np.arange(csr.rows), int(dim)))
        for key in parts[0]:
            technique, *rest = key.split(" ")
            if rest == [direction, dim]:
                whole = np.concatenate([part[key] for part in parts])
                assert whole.shape == (csr.rows, int(dim)) and whole.dtype == np.float32
                errors.append((scaled_error(whole, *expected), technique, direction, dim))
    return max(errors)


def simulated_bytes(folder: Path, pes: int, labels: Iterable[str] | None = None) -> list[dict[str, int]]:
    """Bytes that each PE of the simulated backend moves in a product of one column, by ``"technique direction"``.

    Args:
        folder: the layout.
        pes: its number of PEs.
        labels: techniques and variants, by default all techniques.
    """
    stands_for = {label: _moves_as(label) for label in (techniques() if labels is None else labels)}
    moved: list[dict[str, int]] = [{} for _ in range(pes)]
    only = list(dict.fromkeys(stands_for.values()))
    simulated.run(pes, lambda world: products(world, folder, [1], only=only, moved=moved[world.rank]))
    return [
        {
            f"{label} {direction}": mine[f"{other} {direction} 1"]
            for label, other in stands_for.items()
            if f"{other} forward 1" in mine
            for direction in ("forward", "transpose")
        }
        for mine in moved
    ]


def _moves_as(label: str) -> str:
    """Every variant of ``mgg`` moves one row a remote arc, as ``mgg`` does; CPU ranks take long over tiny blocks."""
    return "mgg" if label.startswith("mgg:") else label


def wrong_bytes(expected: list[dict[str, int]], found: list[dict[str, int]]) -> list[str]:
    """Keys ``"technique direction dim"`` of products that moved other bytes than ``dim`` times those of one column."""
    return [
        key
        for before, after in zip(expected, found, strict=True)
        for key, count in after.items()
        if count != before[key.rpartition(" ")[0]] * int(key.rpartition(" ")[2])
    ]
