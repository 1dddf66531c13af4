"""The graph as models see it: products with A and its transpose, arcs, degrees, ids, and sums over all PEs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from mgg.aggregate import TechniqueOptions, accepted, prepare
from mgg.aggregate.workgroups.stale import Stale
from mgg.backend.api import Array, World
from mgg.backend.offloaded_arrays import OutsideArrays
from mgg.errors import InputError
from mgg.graph.csr import Csr
from mgg.layout import PeLayout, Product
from mgg.layout.halo_matrix import flipped
from mgg.model.arrays import Arrays, HostArrays, arrays_of
from mgg.model.halo import FetchedHalo, Halo, NoHalo
from mgg.model.halo.of_product import ProductHalo, takes_product
from mgg.model.halo.turned import NOTHING_TURNED, OutArcs, Outward, Turning
from mgg.model.halo.weighed import BACK, NOTHING_WEIGHED, Weighed, Weighing, able
from mgg.vertex.arcs import ArcTables
from mgg.vertex.cuda.device import DeviceTables


@dataclass
class Neighborhood:
    """One PE's part of the graph.

    Attributes:
        nodes: number of nodes over all PEs.
        node_ids: int64 [rows] on the device, the original ids of this PE's nodes: the same for any order and
            partition.
        degrees: float64 [rows] on the host, row sums of A: weighted in-degrees, without self-loops added.
        plan: aggregation with A (collective); None if nothing uses it.
        transposed: aggregation with the transpose of A (collective), ``plan`` itself if ``one_plan``; None if nothing
            uses it.
        total: returns the sum of an array over the PEs in rank order, on every PE (collective).
        arrays: row-wise operations of the PE's device.
        product: the forward arcs, on the host.
        ids: ``node_ids`` on the host.
        gathered: returns the arguments of all PEs in rank order (collective).
        halo: other PEs' rows, for models that work arc by arc.
        numbers: int64 [rows] on the host, this PE's nodes in 0..nodes-1, the same for any partition.
        arc_types: number of arc types.
        dtype: type of the embeddings in plans and halo: ``fp32``, or ``bf16``, to which they round.
        real: NumPy type of the computation.
        outward: state shared by turned layers.
        weighed: sums with new arc weights; None if nothing uses them.
        plans: all plans by purpose: ``forward``, ``transpose``, ``halo``.
        outside: memory for lists and values of arcs outside the device; None: these are on the device.
    """

    nodes: int
    node_ids: Array
    degrees: np.ndarray
    plan: Any
    transposed: Any
    total: Callable[[Array], Array]
    arrays: Arrays = field(default_factory=HostArrays)
    product: Product | None = None
    ids: np.ndarray | None = None
    gathered: Callable[[Any], list[Any]] = lambda given: [given]
    halo: Halo = field(default_factory=NoHalo)
    numbers: np.ndarray | None = None
    arc_types: int = 0
    dtype: str = "fp32"
    real: Any = np.float32
    outward: Outward = field(default_factory=Outward)
    weighed: Weighed | None = None
    plans: dict[str, list[Any]] = field(default_factory=dict)
    outside: OutsideArrays | None = None
    _tables: dict[tuple[bool, bool], ArcTables] = field(default_factory=dict)
    _weights: dict[tuple[bool, bool], Array] = field(default_factory=dict)
    _device_tables: dict[tuple[bool, bool], DeviceTables] = field(default_factory=dict)
    _out_arcs: dict[tuple[bool, bool], OutArcs] = field(default_factory=dict)
    _norms: dict[bool, Array] = field(default_factory=dict)
    _scalers: dict[bool, Array] = field(default_factory=dict)

    @classmethod
    def prepare(
        cls, world: World, layout: PeLayout, technique: str, options: dict[str, Any], width: int, fetched: int = 0,
        dtype: str = "fp32", real: type = np.float32, turned: Turning = NOTHING_TURNED,
        weighing: Weighing = NOTHING_WEIGHED, *, arcs_outside: bool = False,
    ) -> Neighborhood:  # fmt: skip
        """Prepare both directions of ``technique`` and the halo (collective).

        Args:
            world, layout: the PEs and this PE's part.
            technique, options: how products are computed.
            width: the most columns of a product; 0: there are no products.
            fetched: the most columns of fetched rows; 0: none are fetched.
            dtype: type of the embeddings in products and halos.
            turned: the most that turned layers fetch.
            weighing: the most that is summed with new arc weights.
            real: type of the computation; float64 rows need technique halo, and products do not support them.
            arcs_outside: keep lists and values of arcs in ``World.outside``.

        Raises:
            InputError: ``aggregate.prepare`` or ``weighed.able`` refuses the arguments, or the rows are float64 with
                another technique than halo.
            MachineError: a GPU has too little memory left.
        """
        several, arrays = world.size > 1, arrays_of(world)
        plan = prepare(technique, world, layout, "forward", width, options, dtype) if width else None
        transposed = plan
        if width and not one_plan(world, layout, accepted(technique, world, layout, options, dtype)):
            transposed = prepare(technique, world, layout, "transpose", width, options, dtype)
        halo = (
            NoHalo(world, dtype)
            if not fetched
            else halo_by(world, layout, technique, options, fetched, dtype, arrays, real)
        )
        made = {"forward": [plan], "transpose": [transposed], "halo": getattr(halo, "plans", [])}
        weighed = weighed_by(world, layout, technique, options, weighing, arrays, dtype, real)
        if weighed is not None:
            made = {name: each + weighed.plans[name] for name, each in made.items()}
        return cls(
            nodes=layout.manifest.nodes,
            node_ids=world.upload(layout.source_ids),
            degrees=_row_sums(layout.forward.local) + _row_sums(layout.forward.remote),
            plan=plan,
            transposed=transposed,
            # The sum of a single PE is the total.
            total=world.all_reduce if several else lambda values: values,
            arrays=arrays,
            dtype=dtype,
            product=layout.forward,
            ids=layout.source_ids,
            gathered=world.gather,
            numbers=layout.node_ids if layout.graph_nodes is None else np.asarray(layout.graph_nodes, np.int64),
            arc_types=layout.manifest.relations,
            halo=halo,
            real=real,
            weighed=weighed,
            outward=outward_by(world, layout, technique, options, turned, arrays, real),
            plans={name: found for name, each in made.items() if (found := [plan for plan in each if plan])},
            outside=OutsideArrays(world) if arcs_outside else None,
        )

    def begin(self, seed: int, epoch: Array | None) -> None:
        """Begin a pass: a training pass of ``epoch``, float64 [1] on the device, or another one (collective)."""
        for plans in self.plans.values():
            for plan in plans:
                plan.begin(seed, epoch)
        for stale in self.stale.values():
            stale.begin(epoch is not None)

    @property
    def stale(self) -> dict[str, Stale]:
        """State that plans keep between training passes, by purpose; empty if they keep none."""
        plans = {name: self.plans[name][0].stale for name in ("forward", "transpose") if name in self.plans}
        return {name: found for name, found in plans.items() if found is not None}

    def tables(self, *, loops: bool, typed: bool = False) -> ArcTables:
        """Return the arcs for vertex programs, built on first use (collective).

        Args:
            loops: add an arc from every row to itself.
            typed: sort the arcs by type; otherwise types are ignored.

        Raises:
            InputError: ``loops`` for a graph whose arcs have types.
        """
        if (loops, typed) not in self._tables:
            assert self.product is not None and self.ids is not None
            types = self.arc_types if typed else 0
            # Not a cached property: CPython 3.11 locks those, and PEs that are threads wait for each other here.
            outside = self.outside if self.arrays.operators is None else None
            empty = outside.empty if outside is not None else np.empty
            made = ArcTables.of(self.product, self.halo.host(self.ids), types, loops=loops, empty=empty)
            self._tables[loops, typed] = made
        return self._tables[loops, typed]

    def device_tables(self, *, loops: bool, typed: bool = False) -> DeviceTables | None:
        """Return ``tables`` on the device; None on a host."""
        if self.arrays.operators is None:
            return None
        if (loops, typed) not in self._device_tables:
            arcs = partial(self.tables, loops=loops, typed=typed)
            operators, upload = self.arrays.operators, self.arrays.upload
            made = DeviceTables(arcs, len(self.node_ids), upload, operators, self.outside)
            self._device_tables[loops, typed] = made
        return self._device_tables[loops, typed]

    def out_arcs(self, *, loops: bool, typed: bool = False) -> OutArcs:
        """Return the arcs that begin at this PE's rows, for turned layers, built on first use (collective)."""
        if (loops, typed) not in self._out_arcs:
            assert self.product is not None and self.ids is not None
            tables = self.tables(loops=loops, typed=typed)
            self._out_arcs[loops, typed] = OutArcs(self.outward, tables, self.product, self.ids, self.arrays)
        return self._out_arcs[loops, typed]

    def norm(self, *, loops: bool) -> np.ndarray:
        """Return D^-1/2 on the host, [rows]. D has the row sums of A, or of A + I with ``loops``; entries are 0 where
        these are not positive.
        """
        sums = self.degrees + loops
        positive = sums > 0
        return np.where(positive, 1 / np.sqrt(np.where(positive, sums, 1)), 0).astype(self.real)

    def arc_weights(self, *, loops: bool, typed: bool = False) -> Array:
        """Return the weight of each arc of ``tables`` on the device, always the same array."""
        if (loops, typed) not in self._weights:
            tables = self.tables(loops=loops, typed=typed)
            weights = tables.weights
            if self.outside is None:
                made = self.arrays.upload(np.ones(len(tables.ends), self.real) if weights is None else weights)
            else:
                ones = np.broadcast_to(np.ones(1, self.real), len(tables.ends))
                made = self.outside.upload(ones if weights is None else weights)
            self._weights[loops, typed] = made
        return self._weights[loops, typed]

    def norm_on_device(self, *, loops: bool) -> Array:
        """Return ``norm`` on the device, always the same array."""
        if loops not in self._norms:
            self._norms[loops] = self.arrays.upload(self.norm(loops=loops))
        return self._norms[loops]

    def scaler(self, *, loops: bool) -> Array:
        """Return log(d + 1) divided by its mean over all nodes, on the device, [rows] (the first call is collective).

        d is the number of arcs that end at a node, its loop included with ``loops``. All 0 if the graph has no arcs.
        """
        if loops not in self._scalers:
            logs = np.log1p(np.diff(self.tables(loops=loops).ptr))
            mean = sum(self.gathered(float(logs.sum()))) / self.nodes
            self._scalers[loops] = self.arrays.upload((logs / mean if mean else logs).astype(self.real))
        return self._scalers[loops]

    def close(self) -> None:
        """Free the symmetric arrays (collective)."""
        self.halo.close()
        self.outward.close()
        if self.weighed is not None:
            self.weighed.close()
        for out in self._out_arcs.values():
            out.close()
        if self.plan is not None:
            self.plan.close()
        if self.transposed is not self.plan:
            self.transposed.close()
        if self.outside is not None:
            self._tables.clear()
            self._weights.clear()
            self._device_tables.clear()
            self.outside.close()


def one_plan(world: World, layout: PeLayout, options: TechniqueOptions) -> bool:
    """Return whether one plan multiplies by A and by its transpose, so that the second takes no memory (collective).

    That holds for symmetric matrices. Weights are compared: a graph whose arcs were mirrored counts as symmetric, and
    of repeated arcs the first weight may stay.
    """
    if not layout.manifest.symmetric or options.per_direction:
        return False
    if not layout.manifest.weighted:
        return True
    forward, back = layout.forward, layout.transpose
    same = _same_weights(forward.local, back.local) and _same_weights(forward.remote, back.remote)
    return all(world.gather(same))


def _same_weights(one: Csr, other: Csr) -> bool:
    return one.weights is not None and other.weights is not None and np.array_equal(one.weights, other.weights)


def halo_by(
    world: World, layout: PeLayout, technique: str, options: dict[str, Any], width: int, dtype: str, arrays: Arrays,
    real: type, *, returns: bool = True,
) -> Halo:  # fmt: skip
    """Return a halo for up to ``width`` columns of other PEs' rows by ``technique`` (collective); see ``prepare``.

    Without ``returns``, no gradients are given back.
    """
    parsed = accepted(technique, world, layout, options, dtype)
    if not any(layout.manifest.forward.halo_rows):
        return NoHalo(world, dtype)
    if not takes_product(technique, parsed, layout):
        return FetchedHalo(world, layout, width, dtype, real)
    if real is not np.float32:
        raise InputError(
            f"float64: technique {technique} brings float32 rows: take technique halo in one workgroup, or float32"
        ).on_every_pe()
    return ProductHalo(world, layout, technique, options, width, dtype, arrays, returns=returns)


def outward_by(
    world: World, layout: PeLayout, technique: str, options: dict[str, Any], turned: Turning, arrays: Arrays, real: type
) -> Outward:
    """Return the state shared by turned layers (collective); see ``prepare``. Fetched values are never rounded."""
    halo: Halo = NoHalo(world)
    if turned.rows and any(layout.manifest.transpose.halo_rows):
        halo = halo_by(world, flipped(layout), technique, options, turned.rows, "fp32", arrays, real, returns=False)
    return Outward(world, layout, halo, real, turned.arcs)


def weighed_by(
    world: World, layout: PeLayout, technique: str, options: dict[str, Any], weighing: Weighing, arrays: Arrays,
    dtype: str, real: type,
) -> Weighed | None:  # fmt: skip
    """Return the sums with new arc weights, or None (collective); see ``prepare``."""
    columns, heads = weighing
    if not columns:
        return None
    parsed = able(world, layout, technique, options, dtype, real)
    halos = [
        halo_by(world, part, technique, options, width, dtype, arrays, real, returns=False)
        for part, width in ((layout, heads), (flipped(layout), BACK * heads))
    ]
    return Weighed.prepare(world, layout, technique, parsed, columns, halos, arrays)


def _row_sums(csr: Csr) -> np.ndarray:
    """Return the row sums, float64 [rows]."""
    if csr.weights is None:
        return np.diff(csr.indptr).astype(np.float64)
    return np.asarray(csr.to_scipy(np.float64).sum(axis=1)).ravel()
