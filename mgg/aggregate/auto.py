"""Technique ``auto``: the cheapest technique by the cost model, for each width (docs/costs.md)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mgg.aggregate import Plan, all_techniques, technique
from mgg.aggregate.agreement import check_layouts
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.workgroups import spanning
from mgg.aggregate.workgroups.cover import Way, with_ways
from mgg.backend import World
from mgg.cost.machines import of_world
from mgg.cost.product import Cost, Machine, Split, Workload
from mgg.errors import InputError
from mgg.layout import PeLayout, Product

_log = logging.getLogger(__name__)
#: Predictions so near to each other differ by less than the model errs, and times by less than those of two launches.
EQUAL = 1.05


@dataclass(frozen=True)
class Forecast:
    """What the model says of one job.

    Attributes:
        machine: what it runs on.
        split: how its graph is split.
        dtype: type of the embeddings.
        left_out: techniques that this job's PEs cannot run, as they are on several hosts.
    """

    machine: Machine
    split: Split
    dtype: str = "fp32"
    left_out: frozenset[str] = frozenset()

    def costs(self, dim: int) -> dict[str, Cost]:
        """Every technique that can run here and that the model knows, at the cheapest of its ``choices``."""
        found = {name: self.cost(name, dim, self.pick(name, dim)) for name in all_techniques()}
        return {name: cost for name, cost in found.items() if cost is not None}

    def pick(self, name: str, dim: int) -> TechniqueOptions:
        """The cheapest of the options that ``auto`` chooses among for a technique; its defaults where none is."""
        choices = technique(name).choices()
        costs = [self.seconds(name, dim, options) for options in choices]
        known = [(seconds, at) for at, seconds in enumerate(costs) if seconds is not None]
        return choices[min(known, default=(0.0, 0))[1]]

    def ranking(self, dim: int) -> list[str]:
        """Techniques for products of ``dim`` columns, the best first (``order``).

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
        """Techniques by their ``seconds``, then by name.

        On GPUs, of those that take at most ``EQUAL`` times the least, which the model cannot tell apart, those
        that move least come first: volumes are counted, and none moves less than each needed row once (CoLa, eq. 7).
        On one PE ``local`` is first, whose work all others do, too; last are those whose cost is rough.
        """
        last = {name for name in seconds if self.machine.gpu and technique(name).rough}
        least = min((seconds[name] for name in seconds.keys() - last), default=0.0)

        def key(name: str) -> tuple[bool, bool, bool, float, str]:
            plan = technique(name)
            near = self.machine.gpu and plan.least_volume and seconds[name] <= EQUAL * least
            return name in last, not plan.single_pe, not near, seconds[name], name

        return sorted(seconds, key=key)

    def seconds(self, name: str, dim: int, options: TechniqueOptions | None = None) -> float | None:
        """Predicted seconds of one technique with ``options``, its defaults without; None where the model has none."""
        cost = self.cost(name, dim, options)
        return None if cost is None else cost.seconds

    def cost(self, name: str, dim: int, options: TechniqueOptions | None = None) -> Cost | None:
        """The cost of one technique with ``options``, its defaults without; None where it has none or cannot run."""
        if name in self.left_out or not runs(name, self.split.pes, self.machine.gpu, self.dtype):
            return None
        plan = technique(name)
        return plan.cost(Workload(self.split, dim, options or plan.Options(), self.dtype), self.machine)


def runs(name: str, pes: int, gpu: bool, dtype: str) -> bool:
    """Whether a job of ranks, a GPU each or a CPU core each, can run ``name``."""
    plan = technique(name)
    return dtype in plan.dtypes and not (plan.single_pe and pes > 1) and not (plan.one_process and gpu and pes > 1)


def forecast(
    world: World, layout: PeLayout, direction: str, dtype: str = "fp32", ways: Collection[Way] = ()
) -> Forecast:
    """What the model says of this job (collective, the same on every PE); nothing of a plan is allocated.

    ``ways``: what is counted of technique halo's option ``split``.

    Raises:
        InputError: PEs hold parts of different layouts.
    """
    check_layouts(world, layout)
    return Forecast(of_world(world), split_of(world, layout, direction, ways), dtype, out_of_reach(world, layout))


def out_of_reach(world: World, layout: PeLayout) -> frozenset[str]:
    """The techniques that, at their defaults, address memory which some PE does not (collective)."""
    mine = {name for name, plan in all_techniques().items() if plan.beyond(world, layout, plan.Options())}
    return frozenset().union(*world.gather(mine))


def tell_left_out(world: World, layout: PeLayout, dtypes: Sequence[str]) -> None:
    """Say on rank 0 which techniques are out of reach for the partition's workgroup alone (collective).

    Raises:
        InputError: PEs hold parts of different layouts.
    """
    check_layouts(world, layout)
    plans = {name: technique(name) for name in sorted(out_of_reach(world, layout))}
    # What the model says nothing of is never picked.
    able = {name: plan for name, plan in plans.items() if set(dtypes) & set(plan.dtypes) and _modelled(plan)}
    named = [name for name, plan in able.items() if plan.members_within(world, layout, plan.Options())]
    if named:
        said = spanning(world, layout)
        if world.rank == 0:
            _log.warning("technique auto: leaves out %s: %s", ", ".join(named), said)


def _modelled(plan: type[Plan]) -> bool:
    """Whether the technique has a cost of its own."""
    return any("cost" in vars(base) for base in plan.__mro__ if base is not Plan)


def split_of(world: World, layout: PeLayout, direction: str, ways: Collection[Way] = ()) -> Split:
    """The split of a layout, with ``ways`` counted (collective, the same on every PE)."""
    manifest, product = layout.manifest, layout.product(direction)
    counts, members = manifest.direction(direction), min(manifest.workgroup, manifest.pes)
    outside_arcs, outside_rows, fused = 0, 0, [0] * -(-world.size // members)
    if members < world.size:
        mine = _outside(world, product, members)
        every = world.gather(mine)
        outside_arcs, outside_rows = (sum(each[part] for each in every) for part in (0, 1))
        for pe, each in enumerate(every):
            fused[pe // members] += each[2]
    split = Split(
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
    """This PE's arcs and halo rows whose owner is in another workgroup, and its share of what crosses to its own.

    A mate counts the rows of the owners that it has been dealt: what any of the workgroup needs, once.
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
    """The techniques that can run, in the order of the time that products of all ``dims`` columns take together.

    In both directions; collective, the same on every PE.

    Raises:
        InputError: no technique can run.
    """
    tell_left_out(world, layout, [dtype])
    ways = [forecast(world, layout, direction, dtype) for direction in ("forward", "transpose")]
    ranked = ways[0].ranking(max(dims))
    costs = [way.costs(dim) for way in ways for dim in dims]
    # Whether the model knows a technique depends on P and the workgroups, not on direction or width.
    return ways[0].order({name: sum(each[name].seconds for each in costs) for name in ranked})
