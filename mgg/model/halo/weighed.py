"""Sums over neighbors with new arc weights for each sum: a technique's products with A + I, for attention.

The numbers that the weights are made of, a few per row and head, cross first, by the same technique. Then the PE at
either end of an arc computes its weight. So both directions are products, and no arc sends anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numba
import numpy as np

from mgg.aggregate import TechniqueOptions, accepted, all_techniques, prepare
from mgg.aggregate import technique as technique_of
from mgg.aggregate.neighbor_partitions.settings import untuned
from mgg.backend.api import Array, World
from mgg.errors import InputError
from mgg.graph.csr import Csr
from mgg.kernel.random import Draws
from mgg.layout import PeLayout, Product
from mgg.layout.store import Direction
from mgg.model.arrays import Arrays
from mgg.model.halo import Halo, host_halo
from mgg.vertex import ir
from mgg.vertex.arcs import ArcTables
from mgg.vertex.cpu import host
from mgg.vertex.cuda.device import DeviceTables, DeviceWork
from mgg.vertex.ir import S
from mgg.vertex.rewrites.passes import optimized
from mgg.vertex.run import Part, Work
from mgg.vertex.trace import Program
from mgg.vertex.units import schedule

#: Numbers that cross back per row and head.
BACK = 4


class Weighing(NamedTuple):
    """The most columns of a product, and the most weights per arc: one per head, each for a product of its own."""

    columns: int
    heads: int


NOTHING_WEIGHED = Weighing(0, 0)


class ArcProgram:
    """A program that computes arc weights, ready to run.

    Args:
        program: a program whose features are [heads], with a parameter ``rate``, that keeps one value of arcs.
        heads: entries of each feature.
        rate: rate of its dropout; 0: no dropout.
        rows, ends: names of the features of rows, and of the other ends of their arcs, in the order of their arrays.
    """

    def __init__(
        self, program: Program, heads: int, rate: float, rows: Sequence[str], ends: Sequence[str]
    ) -> None:  # fmt: skip
        trace = program.trace(dict.fromkeys((*rows, *ends), (heads,)), {"rate": rate}, training=True)
        self.name, self.outputs = program.name, optimized(trace.outputs)
        self.rows = [trace.inputs[name] for name in rows]
        seen = {v.inputs[0]: v for v in ir.walk(self.outputs) if v.op == "cast" and v.space is S}
        self.ends = [seen[trace.inputs[name]] for name in ends]
        known = {*self.rows, *self.ends}
        self.work = Work(schedule(self.outputs).steps, known, self.outputs)
        assert self.work.reads == known, "numbers cross as they are given"


@dataclass(frozen=True)
class WeighedArcs:
    """The arcs of one direction, their products, and the transfer of the numbers that their weights are made of.

    Attributes:
        plan: the technique's plan.
        halo: fetches rows of few columns.
        tables: the arcs, for programs.
        ids: int64 [rows] on the device, the original ids of this PE's nodes.
        places: int64 on the device, the positions in ``tables`` of the plan's local and of its remote arcs.
        on_device: ``tables`` on the device; None on a host.
        works: programs in the form that this device runs.
    """

    plan: Any
    halo: Halo
    tables: ArcTables
    ids: Array
    places: tuple[Array, Array]
    on_device: DeviceTables | None
    works: dict[ArcProgram, Work | DeviceWork] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Any, halo: Halo, product: Product, ids: np.ndarray, arrays: Arrays) -> WeighedArcs:
        """Make the arcs of ``product``.

        Args:
            plan, halo: see the attributes.
            product: a product of a ``looped`` layout.
            ids: int64 [rows + halo], the original ids of the nodes at the arcs' ends.
            arrays: operations of the PE's device.
        """
        local, remote = product.local, product.remote
        # Use arc numbers as weights, to see where the tables put each arc.
        numbers = np.split(np.arange(local.arcs + remote.arcs), [local.arcs])
        numbered = [replace(csr, weights=number) for csr, number in zip((local, remote), numbers, strict=True)]
        tables = ArcTables.of(replace(product, local=numbered[0], remote=numbered[1]), ids)
        assert tables.weights is not None
        places = np.argsort(tables.weights)
        tables = replace(tables, weights=None)
        on_device = None
        if arrays.operators is not None:
            on_device = DeviceTables(lambda: tables, product.rows, arrays.upload, arrays.operators)
        kept = arrays.upload(places[: local.arcs]), arrays.upload(places[local.arcs :])
        return cls(plan, halo, tables, arrays.upload(ids[: product.rows]), kept, on_device)

    def work(self, program: ArcProgram) -> Work | DeviceWork:
        """Return ``program`` in the form that this PE's device runs."""
        if program not in self.works:
            device = self.on_device
            self.works[program] = program.work if device is None else DeviceWork(program.work, device, program.name)
        return self.works[program]

    def worked_off(
        self, program: ArcProgram, rows: Sequence[Array], ends: Sequence[Array], arrays: Arrays, draws: Draws, real: Any
    ) -> tuple[list[Array], list[Array]]:
        """Return the results of ``program``: [rows, H] per value of rows, and [arcs, H] of local and of remote arcs.

        Args:
            program: the program.
            rows: [rows, H] per feature of rows.
            ends: [rows + halo, H] per feature of other ends.
            arrays: operations of the PE's device.
            draws: random numbers of its dropout.
            real: type of the computation.
        """
        found = dict(zip((*program.rows, *program.ends), (*rows, *ends), strict=True))
        part = Part(
            self.tables.rows, lambda: self.tables, arrays, self.ids, np.empty(0), _nothing, _nothing, _nothing,
            _nothing, work=host.run, real=real, place=draws.place,
        )  # fmt: skip
        epoch = draws.epoch
        epoch = int(epoch[0]) if isinstance(epoch, np.ndarray) else epoch
        self.work(program).run(found, part, (draws.seed, epoch))
        *of_rows, of_arcs = (found[each] for each in program.outputs)
        return of_rows, [arrays.rows(of_arcs, places) for places in self.places]

    def __call__(self, x: Array, weights: Sequence[Array], arrays: Arrays) -> Array:
        """Sum the columns of each head of ``x`` with the head's weights, [rows, H * F] (collective).

        Args:
            x: [rows, H * F].
            weights: [arcs, H] of local and of remote arcs.
            arrays: operations of the PE's device.
        """
        heads = weights[0].shape[1]
        columns = x.shape[1] // heads
        out = None if heads == 1 else arrays.empty(x.shape, x.dtype)
        for head in range(heads):
            mine = slice(head * columns, (head + 1) * columns)
            self.plan.reweigh(*(each[:, head] for each in weights))
            self.plan.write(columns, x[:, mine])
            found = self.plan(columns)
            if out is None:
                return found
            out[:, mine] = found
        return out

    def close(self) -> None:
        """Free the symmetric arrays (collective)."""
        self.plan.close()
        self.halo.close()


@dataclass
class Weighed:
    """Both directions: ``forward`` sums over sources per target, ``back`` over targets per source."""

    forward: WeighedArcs
    back: WeighedArcs

    @classmethod
    def prepare(
        cls, world: World, layout: PeLayout, technique: str, options: TechniqueOptions, columns: int,
        halos: Sequence[Halo], arrays: Arrays,
    ) -> Weighed:  # fmt: skip
        """Prepare products of up to ``columns`` (collective).

        Args:
            world, layout: the PEs and this PE's part.
            technique, options: the technique and its options, as returned by ``able``.
            columns: most columns of a product.
            halos: the halos of both directions, forward first.
            arrays: operations of the PE's device.

        Raises:
            MachineError: a GPU has too little memory left.
        """
        whole, both = looped(world, layout), []
        for direction, halo in zip(("forward", "transpose"), halos, strict=True):
            product = whole.product(direction)
            # Tuned values hold for the graph itself, not for the looped one.
            settled = technique_of(technique).resolved(world, layout, direction, columns, options, "fp32")
            chosen = untuned(settled.model_dump())
            plan = prepare(technique, world, whole, direction, columns, chosen)
            ids = host_halo(world, product, layout.source_ids)
            both.append(WeighedArcs.of(plan, halo, product, ids, arrays))
        return cls(*both)

    @property
    def plans(self) -> dict[str, list[Any]]:
        """All plans, by purpose."""
        return {
            "forward": [self.forward.plan],
            "transpose": [self.back.plan],
            "halo": [plan for arcs in (self.forward, self.back) for plan in getattr(arcs.halo, "plans", [])],
        }

    def close(self) -> None:
        """Free the symmetric arrays (collective)."""
        self.forward.close()
        self.back.close()


def _nothing(*_: Any) -> Any:
    raise AssertionError("what arcs weigh is made without other PEs")


def able(
    world: World, layout: PeLayout, technique: str, options: dict[str, Any], dtype: str, real: Any
) -> TechniqueOptions:
    """Return the options of ``technique``, if it can sum with new arc weights (collective).

    Raises:
        InputError: ``aggregate.accepted`` refuses, the technique cannot change weights, or these are not float32.
    """
    plan, parsed = technique_of(technique), accepted(technique, world, layout, options, dtype)
    if not plan.reweighs(layout, parsed):
        usual = {name: each for name, each in all_techniques().items() if each.reweighs(layout, each.Options())}
        others = [name for name, each in usual.items() if world.size == 1 or not each.single_pe]
        told = f"technique {technique} keeps the weights of its arcs"
        if plan.reweighs(layout, plan.Options()):
            told += " with these options"
        raise InputError(f"attention=product: {told}: take {', '.join(others)}, or attention=rows").on_every_pe()
    if dtype != "fp32" or real is not np.float32:
        given = dtype if dtype != "fp32" else np.dtype(real).name
        raise InputError(f"attention=product: takes fp32 alone, not {given}: or take attention=rows").on_every_pe()
    return parsed


def looped(world: World, layout: PeLayout) -> PeLayout:
    """Return ``layout`` with exactly one arc from each row to itself, and weights to be set (collective).

    The loop is the last local arc of each row; the other arcs keep their order, whatever their types.
    """
    products = [_looped(layout.product(direction)) for direction in ("forward", "transpose")]
    every = world.gather([each.local.arcs + each.remote.arcs for each in products])
    facts = layout.manifest
    forward, transpose = (
        Direction(arcs=list(arcs), remote_arcs=each.remote_arcs, halo_rows=each.halo_rows)
        for arcs, each in zip(zip(*every, strict=True), (facts.forward, facts.transpose), strict=True)
    )
    manifest = facts.model_copy(
        update={
            "arcs": sum(forward.arcs), "forward": forward, "transpose": transpose, "symmetric": False, "weighted": True,
            "relations": 0,
        }
    )  # fmt: skip
    return replace(layout, manifest=manifest, forward=products[0], transpose=products[1])


def _looped(product: Product) -> Product:
    local = _with_loops(product.local, Csr(np.zeros_like(product.local.indptr), product.local.indices[:0], None, 0))
    remote = product.remote
    return replace(
        product,
        local=replace(local, weights=np.zeros(local.arcs, np.float32)),
        remote=replace(remote, weights=np.zeros(remote.arcs, np.float32), types=None),
    )


def _with_loops(local: Csr, remote: Csr) -> Csr:
    """Join both into one CSR with a loop at the end of each row; weights are float64, and loops get 1 added."""
    arcs = local.arcs + remote.arcs + local.rows
    indptr, width = np.zeros(local.rows + 1, np.int64), np.int32 if local.rows + remote.columns < 2**31 else np.int64
    indices, weights = np.empty(arcs, width), np.empty(arcs)
    none = np.empty(0)
    _join_rows(
        local.indptr, local.indices, none if local.weights is None else local.weights,
        remote.indptr, remote.indices, none if remote.weights is None else remote.weights,
        indptr, indices, weights,
    )  # fmt: skip
    used = int(indptr[-1])
    return Csr(indptr, indices[:used], weights[:used], local.rows + remote.columns)


@numba.njit(cache=True, nogil=True)
def _join_rows(lptr, lidx, lw, rptr, ridx, rw, indptr, indices, weights):  # type: ignore[no-untyped-def]
    rows, at = lptr.size - 1, 0
    for row in range(rows):
        loop = 1.0
        for k in range(lptr[row], lptr[row + 1]):
            weight = lw[k] if lw.size else 1.0
            if lidx[k] == row:
                loop += weight
            else:
                indices[at], weights[at] = lidx[k], weight
                at += 1
        for k in range(rptr[row], rptr[row + 1]):
            indices[at], weights[at] = rows + ridx[k], rw[k] if rw.size else 1.0
            at += 1
        indices[at], weights[at] = row, loop
        at += 1
        indptr[row + 1] = at
