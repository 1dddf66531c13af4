"""Which schedule gradients of vertex programs take, *return* or *turned*, by the cost model (docs/vertex.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from mgg.aggregate.auto import EQUAL
from mgg.aggregate.costs import FLOAT, Cost, Machine, Split, Workload, fetched_rows, meetings, network_blocks, slowest
from mgg.aggregate.options import TechniqueOptions
from mgg.errors import InputError
from mgg.model.module import Chain
from mgg.model.program import VertexLayer, programs_of
from mgg.model.turned import NOTHING_TURNED, Turning
from mgg.vertex.ir import D, E, S, Value
from mgg.vertex.run import Scaled
from mgg.vertex.units import Unit

Name = Literal["return", "turned"]
NAMES: tuple[Name, Name] = ("return", "turned")


@dataclass(frozen=True)
class Columns:
    """Numbers that a schedule of one layer's gradients takes.

    Attributes:
        halo: a halo row, that cross; forward's halo of *return*, the transpose's of *turned*.
        arcs: a remote arc, that cross.
        gathered: an out-arc, that are read.
        written: a source, that are summed up.
        transfers: how often PEs wait for each other's rows.
    """

    halo: int
    arcs: int
    gathered: int
    written: int
    transfers: int


def can_turn(chain: Chain) -> list[VertexLayer]:
    """The layers of ``chain`` from whose arcs gradients go to other PEs' rows, in their order."""
    return [layer for layer in programs_of(chain) if columns_of(chain, layer, "return").halo]


def columns_of(chain: Chain, layer: VertexLayer, name: Name) -> Columns:
    """What ``name`` takes of ``layer`` in ``chain``, of whose first module nobody needs the gradient by the input."""
    first, plan = layer is next(chain.leaves()), layer.plan(training=True, gradients=True)
    back = plan.returned(first, not first)
    products = [step.product.size for step in back.steps if isinstance(step, Scaled) and step.product["back"]
                and len(step.product.inputs) == 1]  # fmt: skip
    turned = plan.turned(first, not first) if name == "turned" else None
    units = [step for step in (turned.own if turned else back).steps if isinstance(step, Unit) and step.rows is S]
    gathered, written = sum(map(_gathered, units)), sum(v.size for unit in units for v in unit.results)
    gathered, written, own = gathered + sum(products), written + sum(products), sum(products)
    if turned is not None:
        transfers = bool(turned.fetched) + len(turned.crossing) + len(products)
        return Columns(turned.columns + own, turned.columns_of_arcs, gathered, written, transfers)
    home = [step.size for step in back.steps if isinstance(step, Value) and _goes_home(step)]
    return Columns(sum(home) + own, 0, gathered, written, len(home) + len(products))


def _gathered(unit: Unit) -> int:
    stored = [v for v in unit.reads.get(E, ()) if v.op != "mask"]
    return len(unit.stages) * sum(v.size for v in (*unit.gathers, *stored))


def _goes_home(v: Value) -> bool:
    return v.op == "total" and v.space is D and v.inputs[0].space is S


def cost_of(needs: Columns, name: Name, ways: Mapping[Name, Split], machine: Machine) -> Cost:
    """Predicted seconds of what ``name`` does otherwise than the other schedule: sums over out-arcs, and transfers.

    Args:
        needs: ``columns_of`` the layer.
        name: of the schedule.
        ways: the split of the forward direction for ``return``, of the transpose for ``turned``.
        machine: what it runs on. Rows come as technique ``halo`` brings them.
    """
    split, rate = ways[name], machine.rates["rows"]
    home = name == "return"
    rows = split.rows + split.halo_rows if home else split.rows
    work = np.asarray(rate.seconds(split.arcs, rows, FLOAT * needs.gathered, FLOAT * needs.written))
    if split.pes == 1:
        return slowest(work, 0, 0)
    if home:  # what came home is added up
        work = work + rate.seconds(split.halo_rows, split.rows, FLOAT * needs.halo, FLOAT * needs.halo, needs.transfers)
    moved = fetched_rows(Workload(split, needs.halo, TechniqueOptions()), machine) if needs.halo else 0.0
    moved = moved + max(0, needs.transfers - 1) * (split.members - 1) * machine.links[machine.links.rows].latency
    if needs.arcs:
        link, outside = machine.links[machine.links.rows], split.remote_arcs * split.outside_share_of_arcs
        arcs = link.seconds(split.remote_arcs - outside, FLOAT * needs.arcs, 0)  # its requests are counted
        if split.groups > 1:
            far = Workload(split, needs.arcs, TechniqueOptions())
            arcs = arcs + network_blocks(far, machine, outside, split.groups - 1)
        moved = moved + arcs
    return slowest(work, moved, meetings(split, machine, 2 * needs.transfers))


def picked(chain: Chain, ways: Mapping[Name, Split], machine: Machine) -> list[Name]:
    """The cheaper schedule of each of ``can_turn``; where the model cannot tell them apart, ``return``."""
    found: list[Name] = []
    for layer in can_turn(chain):
        seconds = {name: cost_of(columns_of(chain, layer, name), name, ways, machine).seconds for name in NAMES}
        found.append("turned" if EQUAL * seconds["turned"] < seconds["return"] else "return")
    return found


def asked(model: str, chain: Chain, setting: str) -> list[Name]:
    """What the setting ``backward``, other than ``auto``, says of each of ``can_turn``.

    Raises:
        InputError: there is no layer to turn, or another number of them.
    """
    layers, names = can_turn(chain), setting.split(",")
    if not layers and "turned" in names:
        raise InputError(
            f"setting backward={setting}: in model {model} no gradients go from arcs to other PEs' rows but those of"
            " plain products, which are the technique's: leave it out"
        ).on_every_pe()
    if len(names) == 1:
        names *= len(layers)
    if len(names) != len(layers):
        raise InputError(
            f"setting backward={setting}: these are {len(names)} schedules, and model {model} takes"
            f" {len(layers)}: one for all, or one for each of {', '.join(layer.name for layer in layers)}"
        ).on_every_pe()
    return [cast(Name, name) for name in names]


def turn(chain: Chain, names: Sequence[Name]) -> Turning:
    """Have those of ``can_turn`` turned that ``names`` say; what they fetch at most."""
    turned = [layer for layer, name in zip(can_turn(chain), names, strict=True) if name == "turned"]
    needs = [NOTHING_TURNED]
    for layer in turned:
        layer.turn()
        needs.append(layer.turning())
    return Turning(*(max(column) for column in zip(*needs, strict=True)))
