"""Predict by the cost model the passes of a model's vertex programs, forward and backward (docs/concepts/costs.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from mgg.cost.product import MachineModel, SplitCounts
from mgg.model.module import Chain
from mgg.model.program import asked_of, programs_of
from mgg.model.program.schedules import (
    NAMES,
    Name,
    Spent,
    brought,
    can_turn,
    columns_of,
    gathered_by,
    pick,
    spent,
    summed,
)
from mgg.vertex.ir import D, S, Value
from mgg.vertex.run import Scaled, Work
from mgg.vertex.units import Unit


@dataclass(frozen=True)
class PredictedPass:
    """The predicted cost of one pass of a layer.

    Attributes:
        layer: name of the layer.
        way: forward or backward.
        schedule: schedule of the gradients; None: there is no choice.
        spent: cost on each PE, without matrix products and row-wise work.
        chosen: whether ``backward=auto`` would choose this schedule; True if there is no choice.
    """

    layer: str
    way: Literal["forward", "backward"]
    schedule: Name | None
    spent: Spent
    chosen: bool


def predicted_passes(
    chain: Chain, forward: SplitCounts, transpose: SplitCounts, machine: MachineModel
) -> Iterator[PredictedPass]:
    """Yield the predicted costs of training ``chain`` by layer, on a graph with these splits of both directions."""
    ways: dict[Name, SplitCounts] = {"return": forward, "turned": transpose}
    turnable = can_turn(chain)
    for layer in programs_of(chain):
        (constant, inputs), plan = asked_of(chain, layer), layer.plan(training=True, gradients=True)
        here = _on_in_arcs(plan.forward(constant, True), forward, transpose, machine)
        yield PredictedPass(layer.name, "forward", None, here, True)
        here = _on_in_arcs(plan.returned(constant, inputs), forward, transpose, machine)
        if layer not in turnable:
            yield PredictedPass(layer.name, "backward", None, here, True)
            continue
        costs = {name: spent(columns_of(chain, layer, name), name, ways, machine) for name in NAMES}
        for name, cost in costs.items():
            yield PredictedPass(layer.name, "backward", name, here + cost, name == pick(costs))


def _on_in_arcs(work: Work, forward: SplitCounts, transpose: SplitCounts, machine: MachineModel) -> Spent:
    """Return the cost of sums over in-arcs, of the transfers that these need, and of products that a plan computes."""
    units = [step for step in work.steps if isinstance(step, Unit) and step.rows is not S]
    gathered = sum(map(gathered_by, units))
    found = summed(forward, forward.rows, gathered, sum(v.size for unit in units for v in unit.results), machine)
    fetched = [step.size for step in work.steps if isinstance(step, Value) and _is_fetched(step)]
    found += brought(forward, sum(fetched), len(fetched), machine)
    for product in (step.product for step in work.steps if isinstance(step, Scaled)):
        if product["back"] and len(product.inputs) == 1:
            continue  # its schedule is a choice
        split = transpose if product["back"] else forward
        found += summed(split, split.rows, product.size, product.size, machine) + brought(
            split, product.size, 1, machine
        )
    return found


def _is_fetched(v: Value) -> bool:
    return v.op == "cast" and v.space is S and v.inputs[0].space is D
