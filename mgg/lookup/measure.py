"""Check and time sides at several batch sizes for ``mgg lookup``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mgg.aggregate import oracle
from mgg.backend import World, job_fields
from mgg.backend.compiling import compile_ahead
from mgg.errors import CheckError, InputError, MggError
from mgg.kernel.compile import build_of
from mgg.lookup import SIDES
from mgg.lookup.samples import Samples
from mgg.lookup.sides import IDS, Batch, Side
from mgg.lookup.tables import Tables
from mgg.records.lookup import LookupRecord, Transport

#: Kernels that sides use on GPUs.
KERNELS = ("bags", "gather")


@dataclass(frozen=True)
class LookupProtocol:
    """The measurement protocol, the same for all sides.

    Attributes:
        dim: columns of the tables.
        batches: batch sizes in samples.
        warmup, iterations: untimed and timed batches per launch.
        launches: number of repetitions of everything, each with new tables and buffers.
        check: compare with float64 sums first, in the first launch.
    """

    dim: int
    batches: Sequence[int]
    warmup: int
    iterations: int
    launches: int
    check: bool = True


@dataclass
class _Trial:
    """One side at one batch size."""

    side: str
    size: int
    transport: Transport = "one-sided"
    error: float | None = None
    seconds: list[float] = field(default_factory=list)
    launches: list[float] = field(default_factory=list)
    remote: int = 0
    wire: int = 0
    ids: int = 0


def sweep(
    world: World, samples: Samples, sides: Sequence[str], protocol: LookupProtocol
) -> tuple[list[LookupRecord], list[MggError]]:
    """Measure every side at every batch size (collective).

    Each launch measures everything once, so that the launches of a side are spread over time.

    Returns:
        The records, the same on every PE; and one error per refused side.

    Raises:
        InputError: a batch is larger than the data set, or every side was refused.
        MachineError: the tables do not fit.
        CheckError: a result differs from the float64 sums.
    """
    for size in protocol.batches:
        samples.batches(size)
    compile_ahead(world, [build_of(name, 32) for name in KERNELS])
    world.measure_memory()
    trials = {name: [_Trial(name, size) for size in protocol.batches] for name in sides}
    refused: list[MggError] = []
    for launch in range(protocol.launches):
        for split in dict.fromkeys(SIDES[name].split for name in trials):
            tables = Tables(world, split(samples.manifest.tables, world.size), protocol.dim)
            for name in [each for each in trials if SIDES[each].split is split]:
                try:
                    side = SIDES[name](tables, len(samples.manifest.tables), max(protocol.batches))
                except InputError as error:
                    if not error.everywhere:
                        raise
                    refused.append(error)
                    del trials[name]
                    continue
                for trial in trials[name]:
                    _launch(side, trial, samples, protocol, launch)
                side.close()
            tables.close()
    if refused and not trials:
        raise refused[0]
    about = job_fields(world)
    return [_record(about, samples, protocol, trial) for name in trials for trial in trials[name]], refused


def _launch(side: Side, trial: _Trial, samples: Samples, protocol: LookupProtocol, launch: int) -> None:
    """Run one launch of a side at one batch size: check it in the first launch, then time it (collective)."""
    world, counters, trial.transport = side.world, side.world.counters, side.transport
    if protocol.check and not launch:
        trial.error = _checked(side, samples, trial.size)
    clock, mine, remote = world.clock(), [], 0
    wire = ids = 0
    per_launch = protocol.warmup + protocol.iterations
    for number in range(per_launch):
        batch, _ = _batch(side, samples, launch * per_launch + number, trial.size)
        out = world.xp.empty((len(batch.ids), protocol.dim), np.float32)
        before, numbers = counters.embeddings(), counters.bytes.get(IDS, 0)
        world.barrier()
        clock.start()
        side(batch, out)
        seconds = clock.stop()
        if number >= protocol.warmup:
            mine.append(seconds)
            remote += batch.remote
            asked = counters.bytes.get(IDS, 0) - numbers
            wire, ids = wire + counters.embeddings() - before - asked, ids + asked
    everywhere = world.gather((mine, remote, wire, ids))
    slowest = np.max([each[0] for each in everywhere], axis=0)
    trial.seconds += slowest.tolist()
    trial.launches.append(float(np.median(slowest)))
    trial.remote += sum(each[1] for each in everywhere)
    trial.wire += sum(each[2] for each in everywhere)
    trial.ids += sum(each[3] for each in everywhere)


def _batch(side: Side, samples: Samples, number: int, size: int) -> tuple[Batch, np.ndarray]:
    """Return this PE's bags of a batch, on its device and on the host."""
    world = side.world
    ids = samples.batch(number, size, world.rank, world.size)
    return Batch(world.upload(ids), size, side.tables.split.remote(ids, world.rank)), ids


def _checked(side: Side, samples: Samples, size: int) -> float:
    """Return the first batch's largest error on any PE, or raise CheckError if it is too large (collective)."""
    world, dim = side.world, side.tables.dim
    batch, ids = _batch(side, samples, 0, size)
    out = world.xp.empty((len(ids), dim), np.float32)
    side(batch, out)
    rows = oracle.embeddings(ids.reshape(-1), dim).reshape(*ids.shape, dim).astype(np.float64)
    expected = oracle.Reference(rows.sum(axis=1), np.abs(rows).sum(axis=1))
    errors = world.gather(expected.error(world.download(out)))
    worst, allowed = max(errors), oracle.TOLERANCE["fp32"]
    if worst > allowed:
        raise CheckError(
            f"side {side.name}, batches of {size}: PE {errors.index(worst)} differs from the float64 sums by"
            f" {worst:.3g} of the sum of magnitudes, allowed is {allowed:.0e}"
        ).on_every_pe()
    return worst


def _record(about: dict[str, Any], samples: Samples, protocol: LookupProtocol, trial: _Trial) -> LookupRecord:
    manifest = samples.manifest
    q1, q3 = np.percentile(trial.seconds, [25, 75]).tolist()
    return LookupRecord(
        **about,
        dataset=manifest.name,
        samples_hash=samples.digest,
        samples=manifest.samples,
        tables=manifest.tables,
        source=manifest.origin,
        side=trial.side,
        split=SIDES[trial.side].split.name,
        transport=trial.transport,
        dim=protocol.dim,
        batch=trial.size,
        warmup=protocol.warmup,
        seconds=trial.seconds,
        launches=trial.launches,
        low=min(trial.launches),
        median=float(np.median(trial.launches)),
        high=max(trial.launches),
        q1=q1,
        q3=q3,
        distinct=samples.batches(trial.size),
        indices=trial.size * len(manifest.tables),
        remote=trial.remote,
        bytes_wire=trial.wire,
        bytes_ids=trial.ids,
        v_fr=4 * protocol.dim * trial.remote,
        error=trial.error,
        tolerance=None if trial.error is None else oracle.TOLERANCE["fp32"],
    )
