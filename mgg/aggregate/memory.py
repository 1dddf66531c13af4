"""Check, before any allocation, that the GPU or host of every PE has enough memory for a technique."""

from __future__ import annotations

from mgg.aggregate.memory_model import MemoryCase
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.plan import Plan
from mgg.backend import World
from mgg.backend.api import name_pes, name_short
from mgg.backend.machine.host_memory import places
from mgg.errors import MachineError, memory_error
from mgg.layout import PeLayout


def case_of(
    world: World, plan: type[Plan], layout: PeLayout, direction: str, dim: int, options: TechniqueOptions,
    dtype: str = "fp32", widths: int = 1,
) -> MemoryCase:  # fmt: skip
    """Return the case for ``plan.need``, with what the other PEs report about themselves (collective)."""
    padded = plan.pitched and bool(world.gpu)
    plan.count(world, layout, direction, options)
    case = MemoryCase(layout, direction, dim, options, dtype, widths, padded)
    case.exchanged_sizes = world.gather(plan.exchanged_sizes(case))
    return case


def check(
    world: World, plan: type[Plan], layout: PeLayout, direction: str, dim: int, options: TechniqueOptions,
    dtype: str = "fp32",
) -> None:  # fmt: skip
    """Raise MachineError on every PE if one GPU has too little free memory (collective); CPUs are not checked."""
    if not world.gpu:
        return
    case = case_of(world, plan, layout, direction, dim, options, dtype)
    free = world.free_memory()
    mine = None if free is None else (plan.need(case).total, free)
    if short := name_short(world.gather(mine)):
        raise MachineError(
            f"technique {plan.name} at D = {dim} does not fit: {short}: use more PEs, fewer columns or another"
            " technique"
        ).on_every_pe()


def check_host(
    world: World, plan: type[Plan], layout: PeLayout, direction: str, dim: int, options: TechniqueOptions,
    dtype: str = "fp32",
) -> None:  # fmt: skip
    """Raise MachineError on every PE if a host has too little free memory for its CPU PEs (collective).

    Only matrices that exist at the same time count, so that nothing is refused that would fit without swap: layouts are
    files, whose pages the system may drop, and other memory of techniques and libraries comes on top.
    """
    if world.gpu:
        return
    case = MemoryCase(layout, direction, dim, options, dtype, padded=False)
    for pes, needs, left in places(world, plan.least(case)):
        if left is not None and sum(needs) > left:
            need, whose = ("needs", "its") if len(pes) == 1 else ("need", "their")
            raise memory_error(
                f"technique {plan.name} at D = {dim} does not fit: {name_pes(pes)} {need} at least {sum(needs)} bytes"
                f" of memory and {whose} host has {left} free: use more hosts, fewer columns or another technique"
            ).on_every_pe()
