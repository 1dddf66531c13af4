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
    """Every PE's records and refusals: of techniques, or techniques with options; ``protocol``: fields of Protocol."""
    pairs = [(each, {}) if isinstance(each, str) else each for each in chosen]
    given = [(name, parse_options(name, options)) for name, options in pairs]
    how = {"direction": "forward", "warmup": 0, "iterations": 1, "check": True} | protocol

    def program(world: World) -> tuple[list[AggregateRecord], list[MggError]]:
        part = layout.load(folder, world.rank)
        asked = {"dims": list(dims), "dtypes": tuple(dtypes), "auto": auto, "protocol": TimingProtocol(**how)}
        return sweep(world_of(world), part, given, **asked)

    return simulated.run(pes, program)


def record(folder: Path, pes: int, technique: str, dim: int, **given: Any) -> AggregateRecord:
    """The record of a technique; ``given``: its ``options``, and what ``swept`` takes."""
    chosen = [(technique, given.pop("options", {}))]
    return swept(folder, pes, chosen, [dim], **given)[0][0][0]
