"""Records of techniques on simulated PEs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from mgg import layout
from mgg.aggregate import parse_options
from mgg.aggregate.measure import TimingProtocol, sweep
from mgg.backend import World, simulated
from mgg.errors import MggError
from mgg.records import AggregateRecord


def swept(
    folder: Path,
    pes: int,
    chosen: Iterable[str | tuple[str, Mapping[str, Any]]],
    dims: Iterable[int],
    *,
    world_of: Callable[[Any], Any] = lambda world: world,
    dtypes: Iterable[str] = ("fp32",),
    auto: bool = False,
    **protocol: Any,
) -> list[tuple[list[AggregateRecord], list[MggError]]]:
    """Every PE's records and errors; ``chosen``: techniques, or with options; ``protocol``: of TimingProtocol."""
    pairs = [(each, {}) if isinstance(each, str) else each for each in chosen]
    plans = [(name, parse_options(name, options)) for name, options in pairs]
    timing = {"direction": "forward", "warmup": 0, "iterations": 1, "check": True} | protocol

    def program(world: World) -> tuple[list[AggregateRecord], list[MggError]]:
        part = layout.load(folder, world.rank)
        options = {"dims": list(dims), "dtypes": tuple(dtypes), "auto": auto, "protocol": TimingProtocol(**timing)}
        return sweep(world_of(world), part, plans, **options)

    return simulated.run(pes, program)


def record(folder: Path, pes: int, technique: str, dim: int, **arguments: Any) -> AggregateRecord:
    """The record of a technique; ``arguments``: its ``options``, and arguments of ``swept``."""
    chosen = [(technique, arguments.pop("options", {}))]
    return swept(folder, pes, chosen, [dim], **arguments)[0][0][0]
