"""Tune MGG's kernel by timing products: ``mgg tune``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgg.aggregate import oracle, parse_options, prepare
from mgg.aggregate.expected_kernels import of_products
from mgg.aggregate.measure import TimingProtocol, timed
from mgg.aggregate.neighbor_partitions.settings import TECHNIQUE, able_on, entry_of, key_of, limits_of
from mgg.aggregate.options import TechniqueOptions
from mgg.backend import World
from mgg.backend.api import gpu_memory_errors, together
from mgg.backend.compiling import compile_ahead
from mgg.errors import InputError, MachineError, MggError
from mgg.layout import PeLayout
from mgg.layout.neighbor_partitions import neighbor_partitions
from mgg.tune import table
from mgg.tune.model import Load, load
from mgg.tune.search import BUDGET, Search, best_of
from mgg.tune.setting import NAMES, Setting, SettingRecord, Tried
from mgg.tune.table import Entry

#: The number of fastest settings (besides the default) that are measured again, and how often, each on a new plan.
FINALISTS, ROUNDS = 4, 2


@dataclass(frozen=True)
class Tuned:
    """A product's entry in the tuning table, and how it was found.

    Attributes:
        entry: the table's entry.
        fresh: it was measured now; otherwise it was in the table.
        default: the technique's own setting, tried last if the GPU can run it.
        refused: settings that could not run, with the reason.
        loads: the model's numbers for the tried settings on the PE with most partitions; empty on CPUs.
    """

    entry: Entry
    fresh: bool
    default: Setting
    refused: dict[Setting, str]
    loads: dict[Setting, Load]


def tune(
    world: World,
    layout: PeLayout,
    direction: str,
    dim: int,
    *,
    options: dict[str, Any] | None = None,
    protocol: TimingProtocol,
    refresh: bool = False,
    budget: int = BUDGET,
    progress: Callable[[Setting, float], None] = lambda setting, seconds: None,
) -> Tuned:
    """Return a product's setting from the table; if it has none, search for it and store it (collective).

    Every PE decides by the same times, those of the slowest PE.

    Args:
        options: the technique's options, except the tuned ones.
        protocol: warm-up and iterations, where each timed iteration is a sample; type of the embeddings.
        refresh: measure even if the table has an entry.
        budget: largest number of settings to try, including the default.
        progress: called on every PE with each setting and its median seconds.

    Raises:
        InputError: no setting can run on the PEs, or an option is unknown or is one that tuning chooses.
        MachineError: no setting fits in memory, or the table cannot be written.
    """
    default = parse_options(TECHNIQUE, options or {})
    given = [name for name in (*NAMES, "tune") if name in (options or {})]
    if given:
        raise InputError(f"technique {TECHNIQUE}: mgg tune sets option {given[0]} itself: leave it out").on_every_pe()
    usual = Setting(*(getattr(default, name) for name in NAMES))
    key = key_of(world, layout, direction, dim, default, protocol.dtype)
    found = None if refresh else entry_of(world, key)
    if found is not None:
        tried = [each.setting for each in found.tried]
        return Tuned(found, False, usual, {}, loads(world, layout, direction, dim, tried))
    refused: dict[Setting, str] = {}
    failure: MggError | None = None
    limits = limits_of(world)
    compile_ahead(world, of_products([(TECHNIQUE, default)], [protocol.dtype], shmem=world.shmem))
    fits = able_on(limits, [dim])
    search = Search(lambda setting: setting not in refused and fits(setting), budget=budget, last=usual)
    times: dict[Setting, list[float]] = {}
    while (setting := search.following(times)) is not None:
        try:
            times[setting] = _measured(world, layout, direction, dim, setting, default, protocol)
        except (InputError, MachineError) as error:
            if not error.everywhere:
                raise
            failure = failure or error
            refused[setting] = str(error)
            continue
        progress(setting, float(np.median(times[setting])))
    if not times:
        raise failure or InputError(f"no setting of {TECHNIQUE} can run at D = {dim} on this GPU").on_every_pe()
    # Products of one plan say little about the next plan, so the fastest settings are measured again in turns.
    finalists = sorted(times, key=lambda each: float(np.median(times[each])))[:FINALISTS]
    for setting in (finalists if usual in finalists or usual not in times else [*finalists, usual]) * ROUNDS:
        times[setting] += _measured(world, layout, direction, dim, setting, default, protocol)
    entry = Entry(
        key=key,
        chosen=SettingRecord(**best_of(times).options()),
        tried=tuple(Tried.of(*each) for each in times.items()),
    )
    together(world, lambda: table.write(entry) if world.rank == 0 else None)
    return Tuned(entry, True, usual, refused, loads(world, layout, direction, dim, list(times)))


def _measured(
    world: World, layout: PeLayout, direction: str, dim: int, setting: Setting, options: TechniqueOptions,
    protocol: TimingProtocol,
) -> list[float]:  # fmt: skip
    """Return the seconds of products with ``setting``, each on the slowest PE (collective)."""
    chosen = options.model_dump() | setting.options()
    plan = prepare(TECHNIQUE, world, layout, direction, dim, chosen, protocol.dtype)
    try:
        with gpu_memory_errors(world):
            plan.write(dim, world.upload(oracle.embeddings(layout.node_ids, dim)))
            seconds, _ = timed(world, plan, dim, protocol)
    except MggError as error:
        # Closing is collective, so after an error of one PE alone the job ends instead.
        if error.everywhere:
            plan.close()
        raise
    plan.close()
    return seconds


def loads(world: World, layout: PeLayout, direction: str, dim: int, settings: list[Setting]) -> dict[Setting, Load]:
    """Return section 6's model of ``settings`` on the PE with most partitions (collective); {} on CPUs."""
    if not world.gpu:
        return {}
    operators: Any = world.operators
    product = layout.product(direction)
    cuts = sorted({setting.ps for setting in settings})
    mine = [[len(neighbor_partitions(csr.indptr, ps)) for csr in (product.local, product.remote)] for ps in cuts]
    counts = dict(zip(cuts, np.max(world.gather(mine), axis=0).tolist(), strict=True))
    found = {}
    for setting in settings:
        local, remote = counts[setting.ps]
        found[setting] = load(setting, dim, local, remote, operators.processors)
    return found
