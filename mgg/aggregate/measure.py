"""Check and time one technique at one width: what ``mgg aggregate`` does for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mgg.aggregate import oracle, prepare
from mgg.aggregate.plan import Plan
from mgg.backend import World, job_machine
from mgg.errors import CheckError
from mgg.layout import PeLayout
from mgg.partition.quality import volumes
from mgg.record import AggregateRecord, these_versions


def measure(
    world: World,
    layout: PeLayout,
    technique: str,
    *,
    dims: list[int],
    direction: str,
    options: Mapping[str, Any],
    warmup: int,
    iterations: int,
    check: bool,
) -> list[AggregateRecord]:
    """Check, then time ``technique`` at every width of ``dims`` (collective).

    Returns:
        A record for each width, the same on every PE.

    Raises:
        CheckError: a result differs from the float64 product by more than ``oracle.TOLERANCE``.
        InputError: unknown technique or option.
    """
    plan = prepare(technique, world, layout, direction, max(dims), options)
    records = []
    for dim in dims:
        plan.input(dim)[:] = world.upload(oracle.embeddings(layout.node_ids, dim))
        error = _checked(world, layout, plan, direction, dim) if check else None
        seconds, moved = _timed(world, plan, dim, warmup, iterations)
        records.append(_record(world, layout, plan, direction, dim, error, seconds, moved, warmup))
    plan.close()
    return records


def _checked(world: World, layout: PeLayout, plan: Plan, direction: str, dim: int) -> float:
    errors = world.gather(oracle.relative_error(layout, direction, world.download(plan(dim))))
    worst = max(errors)
    if worst > oracle.TOLERANCE["fp32"]:
        raise CheckError(
            f"technique {plan.name}, {direction}, D = {dim}: PE {errors.index(worst)} differs from the float64 product"
            f" by {worst:.3g} of |A| |B|, allowed is {oracle.TOLERANCE['fp32']:.0e}"
        ).on_every_pe()
    return worst


def _timed(world: World, plan: Plan, dim: int, warmup: int, iterations: int) -> tuple[list[float], list[int]]:
    """Seconds of each product on the slowest PE, and the bytes each PE moved in one product."""
    out = world.xp.empty((plan.layout.rows, dim), np.float32)
    clock = world.clock()
    for _ in range(warmup):
        plan(dim, out)
    mine, before = [], world.counters.embeddings()
    for _ in range(iterations):
        world.barrier()
        clock.start()
        plan(dim, out)
        mine.append(clock.stop())
    moved = (world.counters.embeddings() - before) // iterations
    slowest = np.max(world.gather(mine), axis=0)
    return slowest.tolist(), world.gather(moved)


def _record(
    world: World, layout: PeLayout, plan: Plan, direction: str, dim: int,
    error: float | None, seconds: list[float], moved: list[int], warmup: int,
) -> AggregateRecord:  # fmt: skip
    manifest = layout.manifest
    counts = manifest.direction(direction)
    v_cg, v_fr, v_fc = volumes(layout.nodes, layout.size, sum(counts.remote_arcs), sum(counts.halo_rows), dim)
    q1, median, q3 = np.percentile(seconds, [25, 50, 75]).tolist()
    return AggregateRecord(
        dataset=manifest.name,
        graph_hash=manifest.graph_hash,
        nodes=manifest.nodes,
        arcs=manifest.arcs,
        technique=plan.name,
        options=plan.options.model_dump(),
        backend=world.name,
        pes=world.size,
        dtype="fp32",
        machine=job_machine(world),
        versions=these_versions(),
        direction=direction,
        dim=dim,
        scheme=manifest.scheme,
        imbalance=max(counts.arcs) * layout.size / manifest.arcs if manifest.arcs else 1.0,
        edge_cut=sum(counts.remote_arcs),
        halo_rows=sum(counts.halo_rows),
        warmup=warmup,
        seconds=seconds,
        median=median,
        q1=q1,
        q3=q3,
        bytes_wire=sum(moved),
        bytes_per_pe=moved,
        v_cg=v_cg,
        v_fr=v_fr,
        v_fc=v_fc,
        error=error,
        tolerance=None if error is None else oracle.TOLERANCE["fp32"],
    )
