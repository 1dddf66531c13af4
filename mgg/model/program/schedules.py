"""Choose the gradients' schedule of vertex programs, *return* or *turned*, by cost model (docs/guides/vertex.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, cast

import numpy as np

from mgg.aggregate.auto import EQUAL
from mgg.aggregate.options import TechniqueOptions
from mgg.cost.product import (
    FLOAT,
    Cost,
    MachineModel,
    SplitCounts,
    Workload,
    fetched_rows,
    meetings,
    network_blocks,
    slowest,
)
from mgg.errors import InputError
from mgg.model.halo.turned import NOTHING_TURNED, Turning
from mgg.model.module import Chain
from mgg.model.program import VertexLayer, asked_of, programs_of
from mgg.vertex.ir import E, S, Value
from mgg.vertex.run import Scaled
from mgg.vertex.units import Unit, is_returned

Name = Literal["return", "turned"]
NAMES: tuple[Name, Name] = ("return", "turned")


@dataclass(frozen=True)
class Columns:
    """Entries that a schedule of one layer's gradients moves.

    Attributes:
        halo: entries sent per halo row: of the forward halo for *return*, of the transpose's for *turned*.
        arcs: entries sent per remote arc.
        gathered: entries read per out-arc.
        written: entries summed per source.
        transfers: number of transfers, each of which makes PEs wait for each other's rows.
    """

    halo: int
    arcs: int
    gathered: int
    written: int
    transfers: int


def can_turn(chain: Chain) -> list[VertexLayer]:
    """Return the layers of ``chain`` whose arcs send gradients to other PEs' rows, in order."""
    return [layer for layer in programs_of(chain) if columns_of(chain, layer, "return").halo]


def columns_of(chain: Chain, layer: VertexLayer, name: Name) -> Columns:
    """Return what the schedule ``name`` moves for ``layer`` in ``chain``."""
    (constant, inputs), plan = asked_of(chain, layer), layer.plan(training=True, gradients=True)
    back = plan.returned(constant, inputs)
    products = [step.product.size for step in back.steps if isinstance(step, Scaled) and step.product["back"]
                and len(step.product.inputs) == 1]  # fmt: skip
    turned = plan.turned(constant, inputs) if name == "turned" else None
    units = [step for step in (turned.own if turned else back).steps if isinstance(step, Unit) and step.rows is S]
    gathered, written = sum(map(gathered_by, units)), sum(v.size for unit in units for v in unit.results)
    gathered, written, own = gathered + sum(products), written + sum(products), sum(products)
    if turned is not None:
        transfers = bool(turned.fetched) + len(turned.crossing) + len(products)
        return Columns(turned.columns + own, turned.columns_of_arcs, gathered, written, transfers)
    home = [step.size for step in back.steps if isinstance(step, Value) and is_returned(step)]
    return Columns(sum(home) + own, 0, gathered, written, len(home) + len(products))


def gathered_by(unit: Unit) -> int:
    """Return the entries that a pass over arcs reads per arc, in all its loops."""
    stored = [v for v in unit.reads.get(E, ()) if v.op != "mask"]
    return len(unit.stages) * sum(v.size for v in (*unit.gathers, *stored))


@dataclass(frozen=True)
class Spent:
    """Cost of a part of a pass on each PE, arrays float64 [P].

    Attributes:
        arithmetic, transfer: seconds.
        moved: bytes fetched from other PEs.
        fixed: seconds of barriers, the same on every PE.
    """

    arithmetic: np.ndarray
    transfer: np.ndarray
    moved: np.ndarray
    fixed: float = 0.0

    def __add__(self, then: Spent) -> Spent:
        """Return the sum of both costs."""
        return Spent(*(getattr(self, each.name) + getattr(then, each.name) for each in fields(self)))

    @property
    def seconds(self) -> np.ndarray:
        """The total; nothing overlaps."""
        return self.arithmetic + self.transfer + self.fixed

    @property
    def cost(self) -> Cost:
        """The cost of the slowest PE."""
        return slowest(self.arithmetic, self.transfer, self.fixed)


def summed(split: SplitCounts, rows: np.ndarray, gathered: int, written: int, machine: MachineModel) -> Spent:
    """Return the cost of loops over the arcs of ``split``: ``gathered`` entries per arc, ``written`` ones per row."""
    none = np.zeros(split.pes)
    if not gathered and not written:
        return Spent(none, none, none)
    work = machine.rates["rows"].seconds(split.arcs, rows, FLOAT * gathered, FLOAT * written)
    return Spent(np.asarray(work, float), none, none)


def brought(split: SplitCounts, columns: int, transfers: int, machine: MachineModel) -> Spent:
    """Return the cost of fetching ``columns`` of the halo of ``split`` in ``transfers``, as technique ``halo`` does."""
    none = np.zeros(split.pes)
    if split.pes == 1 or not columns:
        return Spent(none, none, none)
    moves = np.asarray(fetched_rows(Workload(split, columns, TechniqueOptions()), machine), float)
    again = max(0, transfers - 1) * (split.members - 1) * machine.links[machine.links.rows].latency
    fixed = meetings(split, machine, 2 * transfers)
    return Spent(none, moves + again, FLOAT * columns * split.halo_rows.astype(float), fixed)


def spent(needs: Columns, name: Name, ways: Mapping[Name, SplitCounts], machine: MachineModel) -> Spent:
    """Return the cost of what differs between the schedules: sums over out-arcs, and transfers.

    Args:
        needs: ``columns_of`` the layer.
        name: the schedule.
        ways: the split of the forward direction for ``return``, of the transpose for ``turned``.
        machine: the machine.
    """
    split, home = ways[name], name == "return"
    rows = split.rows + split.halo_rows if home else split.rows
    found = summed(split, rows, needs.gathered, needs.written, machine)
    if split.pes == 1:
        return found
    found += brought(split, needs.halo, needs.transfers, machine)
    if home:  # returned gradients are summed
        bytes_ = FLOAT * needs.halo
        added = machine.rates["rows"].seconds(split.halo_rows, split.rows, bytes_, bytes_, needs.transfers)
        found = replace(found, arithmetic=found.arithmetic + added)
    if needs.arcs:
        link, outside = machine.links[machine.links.rows], split.remote_arcs * split.outside_share_of_arcs
        arcs = link.seconds(split.remote_arcs - outside, FLOAT * needs.arcs, 0)  # its requests are counted already
        if split.groups > 1:
            far = Workload(split, needs.arcs, TechniqueOptions())
            arcs = arcs + network_blocks(far, machine, outside, split.groups - 1)
        moved = found.moved + FLOAT * needs.arcs * split.remote_arcs
        found = replace(found, transfer=found.transfer + arcs, moved=moved)
    return found


def picked(chain: Chain, ways: Mapping[Name, SplitCounts], machine: MachineModel) -> list[Name]:
    """Return the cheaper schedule of each layer of ``can_turn``; ``return`` if the model cannot tell them apart."""
    found: list[Name] = []
    for layer in can_turn(chain):
        found.append(pick({name: spent(columns_of(chain, layer, name), name, ways, machine) for name in NAMES}))
    return found


def pick(costs: Mapping[Name, Spent]) -> Name:
    """Return the cheaper schedule; ``return`` if they cost about the same."""
    return "turned" if EQUAL * costs["turned"].cost.seconds < costs["return"].cost.seconds else "return"


def asked(model: str, chain: Chain, setting: str) -> list[Name]:
    """Return the schedule of each layer of ``can_turn`` by the setting ``backward`` (other than ``auto``).

    Raises:
        InputError: there is no layer to turn, or the number of schedules differs from the number of layers.
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
    """Turn the layers of ``can_turn`` that ``names`` says are turned; return the most that these fetch at once."""
    turned = [layer for layer, name in zip(can_turn(chain), names, strict=True) if name == "turned"]
    needs = [NOTHING_TURNED]
    for layer in turned:
        layer.turn()
        needs.append(layer.turning())
    return Turning(*(max(column) for column in zip(*needs, strict=True)))
