"""That every PE has the GPU memory which a technique takes, before anything is allocated."""

from __future__ import annotations

from mgg.aggregate.needs import Case
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.plan import Plan
from mgg.backend import World
from mgg.backend.api import name_short
from mgg.errors import MachineError
from mgg.layout import PeLayout


def case_of(
    world: World, plan: type[Plan], layout: PeLayout, direction: str, dim: int, options: TechniqueOptions,
    dtype: str = "fp32", widths: int = 1,
) -> Case:  # fmt: skip
    """What ``plan.need`` is asked about, with what the other PEs tell of themselves (collective)."""
    padded = plan.pitched and bool(world.gpu)
    case = Case(layout, direction, dim, options, dtype, widths, padded)
    case.told = world.gather(plan.told(case))
    return case


def check(
    world: World, plan: type[Plan], layout: PeLayout, direction: str, dim: int, options: TechniqueOptions,
    dtype: str = "fp32",
) -> None:  # fmt: skip
    """Raise MachineError on every PE where one GPU has too little memory left (collective); CPUs are not asked."""
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
