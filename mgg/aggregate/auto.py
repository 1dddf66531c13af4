"""Technique ``auto``: pick the cheapest technique for each width by the cost model (docs/concepts/costs.md)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mgg.aggregate import Plan, all_techniques, check_layouts, technique
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.workgroups import spanning
from mgg.aggregate.workgroups.cover import Way, with_ways
from mgg.backend import World
from mgg.cost.machines import of_world
from mgg.cost.product import Cost, MachineModel, SplitCounts, Workload
from mgg.errors import InputError
from mgg.layout import PeLayout, Product

_log = logging.getLogger(__name__)
#: Predictions within this factor are equal: the model errs by more, and two launches differ by more.
EQUAL = 1.05


@dataclass(frozen=True)
class Forecast:
    """The cost model applied to one job.

    Attributes:
        left_out: techniques that cannot run because the PEs are on several hosts.
    """

    machine: MachineModel
    split: SplitCounts
    dtype: str = "fp32"
    left_out: frozenset[str] = frozenset()

    def costs(self, dim: int) -> dict[str, Cost]:
        """Return the cost of each technique that the model covers and that can run, with its cheapest options."""
        found = {name: self.cost(name, dim, self.pick(name, dim)) for name in all_techniques()}
        return {name: cost for name, cost in found.items() if cost is not None}

    def pick(self, name: str, dim: int) -> TechniqueOptions:
        """Return a technique's cheapest options for ``auto``; its defaults if the model covers none of them."""
        choices = technique(name).choices()
        costs = [self.seconds(name, dim, options) for options in choices]
        known = [(seconds, at) for at, seconds in enumerate(costs) if seconds is not None]
        return choices[min(known, default=(0.0, 0))[1]]

    def ranking(self, dim: int) -> list[str]:
        """Return the techniques for products of ``dim`` columns, best first (see ``order``).

        Raises:
            InputError: no technique can run.
        """
        costs = self.costs(dim)
        if not costs:
            raise InputError(
                f"technique auto: the cost model covers none for {self.split.pes} PEs and {self.dtype} embeddings: name"
                " a technique"
            ).on_every_pe()
        return self.order({name: cost.seconds for name, cost in costs.items()})

    def order(self, seconds: Mapping[str, float]) -> list[str]:
        """Sort techniques by their ``seconds``, then by name.

        On GPUs, the model cannot distinguish techniques within ``EQUAL`` of the fastest. Among these, techniques of
        least volume come first: volumes are exact, and none moves less than each needed row once (CoLa, eq. 7). On one
        PE ``local`` comes first, because all others do its work, too. Techniques with a rough cost come last.
        """
        last = {name for name in seconds if self.machine.gpu and technique(name).rough}
        least = min((seconds[name] for name in seconds.keys() - last), default=0.0)

        def key(name: str) -> tuple[bool, bool, bool, float, str]:
            plan = technique(name)
            near = self.machine.gpu and plan.least_volume and seconds[name] <= EQUAL * least
            return name in last, not plan.single_pe, not near, seconds[name], name

        return sorted(seconds, key=key)

    def seconds(self, name: str, dim: int, options: TechniqueOptions | None = None) -> float | None:
        """Return the predicted seconds of a technique with ``options`` (None: its defaults); None if not covered."""
        cost = self.cost(name, dim, options)
        return None if cost is None else cost.seconds

    def cost(self, name: str, dim: int, options: TechniqueOptions | None = None) -> Cost | None:
        """Return a technique's cost with ``options`` (None: its defaults); None if not covered or unable to run."""
        if name in self.left_out or not runs(name, self.split.pes, self.machine.gpu, self.dtype):
            return None
        plan = technique(name)
        return plan.cost(Workload(self.split, dim, options or plan.Options(), self.dtype), self.machine)


def runs(name: str, pes: int, gpu: bool, dtype: str) -> bool:
    """Return whether ``pes`` ranks, each with a GPU or a CPU core, can run technique ``name``."""
    plan = technique(name)
    return dtype in plan.dtypes and not (plan.single_pe and pes > 1) and not (plan.one_process and gpu and pes > 1)


def forecast(
    world: World, layout: PeLayout, direction: str, dtype: str = "fp32", ways: Collection[Way] = ()
) -> Forecast:
    """Apply the cost model to this job without allocating a plan (collective; every PE gets the same result).

    ``ways``: values of technique halo's option ``split`` to cover.

    Raises:
        InputError: PEs hold parts of different layouts.
    """
    check_layouts(world, layout)
    return Forecast(of_world(world), split_of(world, layout, direction, ways), dtype, out_of_reach(world, layout))


def out_of_reach(world: World, layout: PeLayout) -> frozenset[str]:
    """Return the techniques that, with default options, address memory that some PE cannot reach (collective)."""
    mine = {name for name, plan in all_techniques().items() if plan.beyond(world, layout, plan.Options())}
    return frozenset().union(*world.gather(mine))


def tell_left_out(world: World, layout: PeLayout, dtypes: Sequence[str]) -> None:
    """Warn on rank 0 about techniques that are out of reach only because of the partition's workgroup (collective).

    Raises:
        InputError: PEs hold parts of different layouts.
    """
    check_layouts(world, layout)
    plans = {name: technique(name) for name in sorted(out_of_reach(world, layout))}
    # The model never picks techniques that it does not cover, so these need no warning.
    modelled = {name for name, plan in plans.items() if plan.cost.__func__ is not Plan.cost.__func__}  # type: ignore
    able = {name: plan for name, plan in plans.items() if name in modelled and set(dtypes) & set(plan.dtypes)}
    named = [name for name, plan in able.items() if plan.members_within(world, layout, plan.Options())]
    if named:
        said = spanning(world, layout)
        if world.rank == 0:
            _log.warning("technique auto: leaves out %s: %s", ", ".join(named), said)


def split_of(world: World, layout: PeLayout, direction: str, ways: Collection[Way] = ()) -> SplitCounts:
    """Return the split of a layout, with ``ways`` counted (collective; every PE gets the same result)."""
    manifest, product = layout.manifest, layout.product(direction)
    counts, members = manifest.direction(direction), min(manifest.workgroup, manifest.pes)
    outside_arcs, outside_rows, fused = 0, 0, [0] * -(-world.size // members)
    if members < world.size:
        mine = _outside(world, product, members)
        every = world.gather(mine)
        outside_arcs, outside_rows = (sum(each[part] for each in every) for part in (0, 1))
        for pe, each in enumerate(every):
            fused[pe // members] += each[2]
    split = SplitCounts(
        rows=np.diff(layout.bounds),
        arcs=np.array(counts.arcs),
        remote_arcs=np.array(counts.remote_arcs),
        halo_rows=np.array(counts.halo_rows),
        members=members,
        outside_arcs=outside_arcs,
        outside_rows=outside_rows,
        fused_rows=np.array(fused),
    )
    return with_ways(world, layout, direction, split, ways)


def _outside(world: World, product: Product, members: int) -> tuple[int, int, int]:
    """Return this PE's arcs and halo rows with an owner in another workgroup, and a count of rows entering its own.

    Each mate counts the rows of a share of the owners: every row that any PE of the workgroup needs, once.
    """
    first = world.rank - world.rank % members
    mates = range(first, min(first + members, world.size))
    others = [owner for owner in range(world.size) if owner not in mates]
    values: list[dict[int, np.ndarray]] = [{} for _ in range(world.size)]
    for owner in others:
        values[mates[owner % len(mates)]][owner] = product.halo_of(owner)
    received = world.exchange(values)
    dealt = [owner for owner in others if mates[owner % len(mates)] == world.rank]
    fused = sum(len(np.unique(np.concatenate([received[mate][owner] for mate in mates]))) for owner in dealt)
    arcs = np.bincount(product.remote.indices, minlength=product.halo)
    outside = np.ones(product.halo, bool)
    outside[int(product.halo_ptr[first]) : int(product.halo_ptr[mates[-1] + 1])] = False
    return int(arcs[outside].sum()), int(outside.sum()), int(fused)


def for_training(world: World, layout: PeLayout, dims: Sequence[int], dtype: str = "fp32") -> list[str]:
    """Return the techniques that can run, by the total time of products of all ``dims`` columns in both directions.

    Collective; every PE gets the same result.

    Raises:
        InputError: no technique can run.
    """
    tell_left_out(world, layout, [dtype])
    ways = [forecast(world, layout, direction, dtype) for direction in ("forward", "transpose")]
    ranked = ways[0].ranking(max(dims))
    costs = [way.costs(dim) for way in ways for dim in dims]
    # Whether the model covers a technique depends on P and the workgroups, not on direction or width.
    return ways[0].order({name: sum(each[name].seconds for each in costs) for name in ranked})
