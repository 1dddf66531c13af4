"""Variants: several option sets of one technique in a job, as grids of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from mgg.aggregate import parse_options
from mgg.aggregate.options import TechniqueOptions
from mgg.config import scalar
from mgg.errors import InputError

Grid = Mapping[str, Any]


def expand(technique: str, common: Mapping[str, Any], grids: Iterable[Grid]) -> list[TechniqueOptions]:
    """Expand ``grids`` to option sets of ``technique``, without duplicates and in order.

    Args:
        common: options of every set; a grid's own options replace them.
        grids: option -> a value or a list of values; lists expand to all combinations, and the first option varies
            slowest. Without grids there is one set, ``common``.

    Raises:
        InputError: names the option that is unknown or out of its range.
    """
    found = []
    for grid in list(grids) or [{}]:
        choices = [value if isinstance(value, list) else [value] for value in grid.values()]
        for values in product(*choices):
            found.append(parse_options(technique, {**common, **dict(zip(grid, values, strict=True))}))
    return list(dict.fromkeys(found))


def parse(text: str) -> tuple[str, Grid]:
    """Parse a variant: ``mgg:ps=2,4:dist=8`` is technique mgg with {ps: [2, 4], dist: [8]}; ``mgg`` has no grid.

    Raises:
        InputError: names the part that is not ``key=value``, or a key that occurs twice.
    """
    technique, *pairs = text.split(":")
    grid: dict[str, Any] = {}
    for pair in pairs:
        key, equals, values = pair.partition("=")
        if not (key and equals and all(values.split(","))) or "=" in values:
            raise InputError(f"--variant {text}: expected TECHNIQUE:KEY=VALUE[,VALUE...][:KEY=...], found {pair!r}")
        if key in grid:
            raise InputError(f"--variant {text}: option {key} stands twice; name all of its values once: {key}=A,B")
        grid[key] = [scalar(value) for value in values.split(",")]
    return technique, grid


def spell(technique: str, grid: Grid) -> str:
    """Return the text that ``parse`` reads as this grid."""
    words = {key: value if isinstance(value, list) else [value] for key, value in grid.items()}
    return ":".join([technique, *(f"{key}={','.join(map(_word, values))}" for key, values in words.items())])


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
