"""Measure how long the phases of an epoch take: aggregate, dense, communication and other.

Wrappers around a training's world, plans and operations measure; without ``phases`` there are no wrappers and no
overhead. On CPUs ``communication`` covers every call that fetches from other PEs or waits for them, also inside an
aggregation. On GPUs aggregations overlap transfers with arithmetic. There ``aggregate`` includes both, also for the
halo that models fetch to work arc by arc, and ``communication`` covers sums over all PEs and transfers through the
hosts; ``mgg aggregate --breakdown`` separates the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from mgg.backend.api import Timeline, World
from mgg.model.halo.weighed import Weighed, WeighedArcs
from mgg.model.neighborhood import Neighborhood

PHASES = ("aggregate", "dense", "communication", "other")
_TEAM = ("broadcast", "all_gather", "reduce_scatter")
_WORLD = (
    "broadcast", "get_rows", "put_rows", "wait_signal", "shift", "barrier", "all_reduce", "gather", "exchange",
    "transfer",
)  # fmt: skip
_BY_WEIGHTS = ("product", "transposed_product", "head_products", "head_products_backward", "inner_products")
#: Work arc by arc counts as aggregation, and so does fetching the halo for it.
_BY_ARC = ("arc_sums", "arc_work")
_OF_HALO = ("fetch", "start_return", "finish_return", "give_back")
_BETWEEN_GPUS = ("all_reduce", "gather", "exchange", "transfer")


class _Wrapped:
    """A proxy for ``inner`` that counts the methods ``names`` as ``phase``; ``inner`` must have them all."""

    def __init__(self, inner: Any, timeline: Timeline, phase: str, names: tuple[str, ...]) -> None:
        self._inner, self._timeline = inner, timeline
        for name in names:
            setattr(self, name, counted(getattr(inner, name), timeline, phase))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _PhasedWorld(_Wrapped):
    """A world of CPU PEs whose teams are measured, too."""

    def team(self, pes: Any) -> Any:
        """Return a measured team."""
        return _Wrapped(self._inner.team(pes), self._timeline, "communication", _TEAM)


class _PhasedPlan(_Wrapped):
    """A plan whose products and reweighing are measured."""

    def __init__(self, plan: Any, timeline: Timeline) -> None:
        super().__init__(plan, timeline, "aggregate", ("reweigh",))
        self._product = counted(plan, timeline, "aggregate")

    def __call__(self, *args: Any) -> Any:
        return self._product(*args)


def counted(function: Callable[..., Any], timeline: Timeline, phase: str) -> Callable[..., Any]:
    """Return ``function``, measured as a phase of ``timeline``."""

    def call(*args: Any, **named: Any) -> Any:
        timeline.enter(phase)
        try:
            return function(*args, **named)
        finally:
            timeline.leave()

    return wraps(function)(call) if hasattr(function, "__name__") else call


def phased_world(world: World, timeline: Timeline) -> Any:
    """Return ``world`` with its communication measured."""
    if world.gpu:
        return _Wrapped(world, timeline, "communication", _BETWEEN_GPUS)
    return _PhasedWorld(world, timeline, "communication", _WORLD)


def count_products(graph: Neighborhood, timeline: Timeline) -> None:
    """Measure the aggregations of ``graph``, by plan or arc by arc, and the products with weights."""
    if graph.plan is not None:
        both = graph.transposed is graph.plan
        graph.plan = _PhasedPlan(graph.plan, timeline)
        graph.transposed = graph.plan if both else _PhasedPlan(graph.transposed, timeline)
    if graph.weighed is not None:
        forward, back = (_phased_arcs(arcs, timeline) for arcs in (graph.weighed.forward, graph.weighed.back))
        graph.weighed = Weighed(forward, back)
    halo: Any = _Wrapped(graph.halo, timeline, "aggregate", _OF_HALO)
    arrays: Any = _Wrapped(graph.arrays, timeline, "dense", _BY_WEIGHTS)
    graph.halo, graph.arrays = halo, _Wrapped(arrays, timeline, "aggregate", _BY_ARC)


def _phased_arcs(arcs: WeighedArcs, timeline: Timeline) -> WeighedArcs:
    halo: Any = _Wrapped(arcs.halo, timeline, "aggregate", _OF_HALO)
    return replace(arcs, plan=_PhasedPlan(arcs.plan, timeline), halo=halo)
