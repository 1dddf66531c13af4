"""Check the products and bytes that ``spmm_program.py`` wrote."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from mgg.aggregate import all_techniques
from mgg.backend import simulated
from mgg.graph.csr import Csr
from mgg.kernel.bf16 import from_bf16, to_bf16
from support.graphs import expected_product, matrix, scaled_error
from support.programs.spmm_program import DIMS, inputs, products, variant

#: Variants that do not move D times the bytes of one column: columns are divided among PEs, or arcs move as well.
BY_WIDTH = ("features", "broadcast:grid")


def worst(csr: Csr, parts: list[dict[str, np.ndarray]], dtype: str = "fp32") -> tuple[float, str, str, str]:
    """The largest error of all techniques and variants of a dtype, with technique, direction and width.

    Products of bf16 are compared with float64 products of the rounded embeddings.

    Args:
        csr: the graph.
        parts: each PE's rows, by ``"technique direction dim"``.
        dtype: fp32 or bf16.
    """
    errors = []
    keys = [key for key in parts[0] if variant(key.split(" ")[0]).dtype == dtype]
    for direction, dim in dict.fromkeys(tuple(key.split(" ")[1:]) for key in keys):
        a, b = matrix(csr), inputs(np.arange(csr.rows), int(dim))
        expected = expected_product(
            a if direction == "forward" else a.T.tocsr(), b if dtype == "fp32" else from_bf16(to_bf16(b))
        )
        for key in keys:
            technique, *rest = key.split(" ")
            if rest == [direction, dim]:
                whole = np.concatenate([part[key] for part in parts])
                assert whole.shape == (csr.rows, int(dim)) and whole.dtype == np.float32
                errors.append((scaled_error(whole, *expected), technique, direction, dim))
    return max(errors)


def check(out: Path, number: int, csr: Csr, folder: Path, pes: int, labels: set[str]) -> None:
    """Check what ``spmm_program.py`` wrote into ``out``: the products of ``labels``, and the bytes that they moved.

    Args:
        out, number: the folder, and which of the program's layouts it is.
        csr, folder: the graph and its layout.
        pes: number of PEs.
        labels: techniques and variants that must have run.
    """
    parts = arrays(out, number, pes)
    assert {key.split(" ")[0] for key in parts[0]} == labels
    assert worst(csr, parts) <= (1e-6,), number
    if any(variant(label).dtype == "bf16" for label in labels):
        assert worst(csr, parts, "bf16") <= (1e-5,), number  # float32 sums in sequence
    found = [json.loads((out / f"{number}-{pe}.json").read_text()) for pe in range(pes)]
    assert not wrong_bytes(simulated_bytes(folder, pes, labels), found), number


def arrays(out: Path, number: int, pes: int) -> list[dict[str, np.ndarray]]:
    """Each PE's rows of the products that ``spmm_program.py`` wrote."""
    return [dict(np.load(out / f"{number}-{pe}.npz")) for pe in range(pes)]


def check_same_bits(out: Path, pes: int) -> None:
    """Check that deterministic techniques give the same bits on the first two layouts, which are of one graph."""
    deterministic = [name for name, plan in all_techniques().items() if plan.deterministic]
    for first, second in zip(arrays(out, 0, pes), arrays(out, 1, pes), strict=True):
        keys = [key for key in first if key.split(" ")[0] in deterministic]
        assert keys and all(np.array_equal(first[key], second[key]) for key in keys)


def simulated_bytes(folder: Path, pes: int, labels: Iterable[str] | None = None) -> list[dict[str, int]]:
    """Bytes that each PE of the simulated backend moves.

    Keys are ``"technique direction"``, for products of one column; those of ``BY_WIDTH`` are
    ``"technique direction dim"``, for products of each width.

    Args:
        folder: the layout.
        pes: its number of PEs.
        labels: techniques and variants, by default all techniques.
    """
    stands_for = {label: _moves_as(label) for label in (all_techniques() if labels is None else labels)}
    moved: list[dict[str, int]] = [{} for _ in range(pes)]
    only = list(dict.fromkeys(stands_for.values()))
    simulated.run(pes, lambda world: products(world, folder, [1], only=only, moved=moved[world.rank]))
    wide: list[dict[str, int]] = [{} for _ in range(pes)]
    if by_width := [label for label in only if label in BY_WIDTH]:
        simulated.run(pes, lambda world: products(world, folder, DIMS, only=by_width, moved=wide[world.rank]))
    return [
        {
            f"{label} {direction}": mine[f"{other} {direction} 1"]
            for label, other in stands_for.items()
            if f"{other} forward 1" in mine
            for direction in ("forward", "transpose")
        }
        | more
        for mine, more in zip(moved, wide, strict=True)
    ]


def _moves_as(label: str) -> str:
    """Every variant of ``mgg`` moves one row per remote arc, as ``mgg`` does, and is slow on CPUs with tiny blocks."""
    return "mgg" if label.startswith("mgg:") else label


def wrong_bytes(expected: list[dict[str, int]], found: list[dict[str, int]]) -> list[str]:
    """Keys ``"technique direction dim"`` of products that did not move the bytes that ``simulated_bytes`` gives.

    The blocks of merged requests depend on the backend (``test_aggregate_merged.py``): they must not move more.
    """
    return [
        key
        for before, after in zip(expected, found, strict=True)
        for key, count in after.items()
        if (operator.gt if key.startswith("mgg:merged ") else operator.ne)(
            count, before[key] if key in before else before[key.rpartition(" ")[0]] * int(key.rpartition(" ")[2])
        )
    ]
