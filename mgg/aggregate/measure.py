"""Check and time techniques at several widths, for ``mgg aggregate``."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np

from mgg.aggregate import AUTO, accepted, memory, oracle, prepare
from mgg.aggregate import technique as technique_of
from mgg.aggregate.auto import Forecast, forecast, tell_left_out
from mgg.aggregate.boundary_sampling import sampled
from mgg.aggregate.counters.page_faults import counted
from mgg.aggregate.expected_kernels import of_products
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.plan import Plan
from mgg.aggregate.workgroups import WorkgroupOptions, makes_groups, members_of, resolved_workgroup, tell_difference
from mgg.aggregate.workgroups.cover import HaloOptions, Way
from mgg.aggregate.workgroups.memory import halo_sizes
from mgg.backend import World, job_fields
from mgg.backend.api import gpu_memory_errors
from mgg.backend.compiling import compile_ahead
from mgg.errors import NOT_ENOUGH_MEMORY, CheckError, InputError, MachineError, MggError
from mgg.kernel.bf16 import ELEMENTS
from mgg.layout import PeLayout
from mgg.partition.quality import volumes
from mgg.records import AggregateRecord

#: A technique and its options.
Pick = tuple[str, TechniqueOptions]
_log = logging.getLogger(__name__)
_SHORT = f"{NOT_ENOUGH_MEMORY}: "
_FAULTS = ("page_faults", "fault_seconds", "migrated_bytes", "faults_untold")
#: Record fields that are medians over launches.
_PARTS = ("prepare", "compute", "transfer")


class MutedWorld:
    """``world`` with transfers of embeddings that do nothing, to time the computation alone (MGG arXiv, figure 2).

    Results are wrong but times are right: barriers and launches are the same, on arrays of the same shapes. Fetches
    inside a technique's kernels, or through an object made earlier, still move data and are counted.
    """

    def __init__(self, world: World):
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def get_rows(self, *_: Any) -> None:
        """Fetch nothing."""

    def put_rows(self, *_: Any, **__: Any) -> None:
        """Write nothing."""

    def broadcast(self, *_: Any, **__: Any) -> None:
        """Copy nothing."""

    def shift(self, *_: Any) -> None:
        """Send nothing."""


@dataclass
class TimingProtocol:
    """How products are measured; the same for all techniques of a job.

    Attributes:
        warmup, iterations: untimed and timed products per launch.
        check: first compare with a float64 product, in the first launch.
        breakdown: also time the product without its transfers.
        faults: also count the page faults of techniques that use unified memory, in the first launch.
        launches: number of measurements per technique, each on a newly prepared plan.
        references: this PE's float64 products by width, shared by all techniques and dtypes.
    """

    direction: str
    warmup: int
    iterations: int
    check: bool
    breakdown: bool = False
    faults: bool = False
    dtype: str = "fp32"
    launches: int = 1
    references: dict[int, oracle.Reference] = field(default_factory=dict)


def sweep(
    world: World,
    layout: PeLayout,
    chosen: Iterable[tuple[str, TechniqueOptions]],
    *,
    dims: list[int],
    protocol: TimingProtocol,
    dtypes: Sequence[str] = ("fp32",),
    auto: bool = False,
) -> tuple[list[AggregateRecord], list[MggError]]:
    """Measure each (technique, options) of ``chosen`` with every type of ``dtypes`` and width of ``dims`` (collective).

    Launches run in rounds. Each round prepares, measures and closes every plan once, so that the launches of one
    technique are spread over time. The first round checks the results.

    With ``auto``, the cost model's pick for each type and width is measured once, too. Records then state whether they
    are the pick and what the model predicted for every technique.

    If a technique refuses a case on every PE (dtype, device setting, number of PEs, too little memory), the case is
    dropped from this and all later rounds as long as something else can be measured. Its earlier launches are kept.

    Returns:
        The records, the same on every PE; and the refusals, each with its technique, options, type and width.

    Raises:
        InputError, MachineError: everything was refused; this is the first refusal.
        CheckError: a result differs from the float64 product.
    """
    trials: list[_Trial] = []
    refused: list[MggError] = []
    chosen = list(dict.fromkeys((name, resolved_workgroup(world, options)) for name, options in chosen))
    tell_difference(world, layout, [options for _, options in chosen])
    for name, options in chosen:
        alone = not makes_groups(layout.size, members_of(options, layout)) if getattr(options, "wire", None) else False
        if alone and world.rank == 0:
            _log.warning("technique %s: option wire changes nothing: all PEs are one workgroup", name)
    if auto:
        tell_left_out(world, layout, dtypes)
    for dtype in dtypes:
        how = replace(protocol, dtype=dtype)
        said = forecast(world, layout, protocol.direction, dtype, _ways(layout, chosen)) if auto else None
        picks = {} if said is None else _picks(world, layout, said, dims, how, refused)
        queue = _queue(chosen, dims, picks)
        builds = of_products([each[:2] for each in queue], [dtype], shmem=world.shmem)
        if world.gpu:
            for name, options, widths in queue:
                made = technique_of(name).generated(layout, how.direction, widths, options)
                builds += [build for build in made if build not in builds]
        # If a kernel does not compile, only the technique that needs it is refused, when it is measured.
        compile_ahead(world, builds, must=False)
        trials += [_Trial(*each, how, said, picks) for each in queue]
    for _ in range(protocol.launches):
        for trial in trials:
            refused += trial.launch(world, layout)
    records = [record for trial in trials for record in trial.finished_records()]
    if refused and not records:
        raise refused[0]
    return records, refused


@dataclass
class _Trial:
    """A technique with options and a dtype, measured once per round; ``widths`` are those not refused so far."""

    name: str
    options: TechniqueOptions
    widths: list[int]
    protocol: TimingProtocol
    said: Forecast | None
    picks: Mapping[int, Pick]
    rounds: int = 0
    records: dict[int, AggregateRecord] = field(default_factory=dict)
    parts: dict[int, list[tuple[float | None, ...]]] = field(default_factory=lambda: defaultdict(list))

    def launch(self, world: World, layout: PeLayout) -> list[MggError]:
        """Measure every width once more (collective); drop the refused widths and return their errors."""
        self.rounds += 1
        again = self.rounds > 1
        protocol = replace(self.protocol, check=False, faults=False) if again else self.protocol
        refused: list[MggError] = []
        left = sorted(self.widths)
        while left:
            try:
                for record in products(world, layout, self.name, left, self.options.model_dump(), protocol):
                    before = self.records.get(record.dim)
                    self.records[record.dim] = record if before is None else _joined(before, record)
                    self.parts[record.dim].append(tuple(getattr(record, part) for part in _PARTS))
                    left = [dim for dim in left if dim != record.dim]
            except (InputError, MachineError) as error:
                if not error.everywhere:
                    raise
                # A plan's limits are those of its widest product, so narrower products may still fit.
                dim = left.pop()
                self.widths = [each for each in self.widths if each != dim]
                which = f", launch {self.rounds}" if again else ""
                refused.append(_named(error, self.name, self.options, dim, protocol.dtype, which))
        return refused

    def finished_records(self) -> list[AggregateRecord]:
        """Return a record per measured width, with all its launches and the cost model's prediction."""
        records = [_with_parts(self.records[dim], self.parts[dim]) for dim in sorted(self.records)]
        if self.said is None:
            return records
        return [_with_prediction(record, self.options, self.said, self.picks) for record in records]


def _joined(before: AggregateRecord, now: AggregateRecord) -> AggregateRecord:
    """Join the launches of two records; ``before`` supplies the fields that only the first launch has."""
    first: dict[str, Any] = before.model_dump(include={"error", "tolerance", *_FAULTS})
    memory = [each for each in (before.gpu_memory, now.gpu_memory) if each is not None]
    first["gpu_memory"] = max(memory, default=None)
    times = _times([*before.seconds, *now.seconds], [*before.launches, *now.launches])
    return now.model_copy(update=first | times)


def _with_parts(record: AggregateRecord, launches: list[tuple[float | None, ...]]) -> AggregateRecord:
    """Return the record with medians of its parts over launches, where every launch has the part."""
    medians = [None if None in each else float(np.median(each)) for each in zip(*launches, strict=True)]
    return record.model_copy(update=dict(zip(_PARTS, medians, strict=True)))


def _times(seconds: list[float], launches: list[float]) -> dict[str, Any]:
    """Return the time fields of a record from ``seconds`` of products and the medians of their ``launches``."""
    q1, q3 = np.percentile(seconds, [25, 75]).tolist()
    middle = float(np.median(launches))
    spread = {"low": min(launches), "median": middle, "high": max(launches)}
    return {"seconds": seconds, "launches": launches, **spread, "q1": q1, "q3": q3}


def _picks(
    world: World, layout: PeLayout, said: Forecast, dims: list[int], protocol: TimingProtocol, refused: list[MggError]
) -> dict[int, Pick]:
    """Return the pick for each width; where there is none, append the error to ``refused``."""
    picks = {}
    for dim in dims:
        try:
            picks[dim] = _pick(world, layout, said, dim, protocol)
        except (InputError, MachineError) as error:
            if not error.everywhere:
                raise
            refused.append(_named(error, AUTO, TechniqueOptions(), dim, protocol.dtype))
    return picks


def _ways(layout: PeLayout, chosen: Iterable[tuple[str, TechniqueOptions]]) -> set[Way]:
    """Return which kinds of crossing sums to count: those named, and covers for the pick. Covers of symmetric graphs
    are skipped: they gain too little for the time it takes to find them."""
    named: set[Way] = {options.split for _, options in chosen if isinstance(options, HaloOptions)}
    return named | (set() if layout.manifest.symmetric else {"cover"})


def _pick(world: World, layout: PeLayout, said: Forecast, dim: int, protocol: TimingProtocol) -> Pick:
    """Return the cheapest technique and options that fit in the memory of every PE (collective)."""
    short: MggError | None = None
    for name in said.ranking(dim):
        options = said.pick(name, dim)
        try:
            for check in (memory.check, memory.check_host):
                check(world, technique_of(name), layout, protocol.direction, dim, options, protocol.dtype)
        except MachineError as error:
            short = short or error
        else:
            return name, options
    assert short is not None
    raise short


def _queue(
    chosen: Iterable[tuple[str, TechniqueOptions]], dims: list[int], picks: Mapping[int, Pick]
) -> list[tuple[str, TechniqueOptions, list[int]]]:
    """Return the measurements with their widths: everything named, and the picks that were not named."""
    queue = [
        (name, options, some)
        for name, options in chosen
        for some in ([[dim] for dim in dims] if technique_of(name).by_width(options) else [dims])
    ]
    named = {(name, options) for name, options, _ in queue}
    for pick in dict.fromkeys(picks.values()):
        if pick not in named:
            queue.append((*pick, [dim for dim in dims if picks.get(dim) == pick]))
    return queue


def _with_prediction(
    record: AggregateRecord, options: TechniqueOptions, said: Forecast, picks: Mapping[int, Pick]
) -> AggregateRecord:
    name, dim = record.technique, record.dim
    picked = picks.get(dim) == (name, options)
    return record.model_copy(update={"chosen": picked, "predicted": said.seconds(name, dim, options)})


def _named(
    error: MggError, technique: str, options: TechniqueOptions, dim: int, dtype: str, which: str = ""
) -> MggError:
    given = " ".join(f"{key}={value}" for key, value in options.model_dump(exclude_defaults=True).items())
    what = f"{technique} ({given})" if given else technique
    at = (f"D = {dim}" if dtype == "fp32" else f"D = {dim}, {dtype}") + which
    said = str(error).removeprefix(_SHORT)
    begin = "" if said == str(error) else _SHORT  # the workflow searches for this prefix
    return type(error)(f"{begin}{what}, {at}: {said}").on_every_pe()


def products(
    world: World,
    layout: PeLayout,
    technique: str,
    dims: list[int],
    options: Mapping[str, Any],
    protocol: TimingProtocol,
) -> Iterator[AggregateRecord]:
    """Check, then time one launch of ``technique`` at every width of ``dims`` (collective).

    Yields:
        A record for each width once it is measured, the same on every PE. The plan is closed at the end and after an
        error that every PE raises.

    Raises:
        CheckError: a result differs from the float64 product by more than ``oracle.TOLERANCE`` and ``Plan.rounding``.
        InputError: the technique or an option is unknown, or the technique cannot run a width.
        MachineError: a GPU, or a host of CPU PEs, has too little free memory.
    """
    parsed = accepted(technique, world, layout, options, protocol.dtype)
    if getattr(parsed, "stale", 0):
        raise InputError(f"technique {technique}: option stale is of trainings: products have no epochs").on_every_pe()
    memory.check_host(world, technique_of(technique), layout, protocol.direction, max(dims), parsed, protocol.dtype)
    world.measure_memory()
    world.barrier()
    start = perf_counter()
    plan = prepare(technique, world, layout, protocol.direction, max(dims), options, protocol.dtype)
    try:
        made = max(world.gather(perf_counter() - start))
        if plan.sample is not None:
            plan.begin(oracle.SEED, world.upload(np.ones(1)))
        for dim in dims:
            with gpu_memory_errors(world):
                plan.write(dim, world.upload(oracle.embeddings(layout.node_ids, dim)))
                error, allowed = _checked(world, layout, plan, dim, protocol) if protocol.check else (None, None)
                crossed = world.counters.intergroup_bytes()
                seconds, moved = timed(world, plan, dim, protocol)
                crossed = (world.counters.intergroup_bytes() - crossed) // (protocol.warmup + protocol.iterations)
                faults = counted(world, plan, dim, protocol.iterations) if protocol.faults else {}
                parts = parts_alone(world, plan, dim, protocol) if protocol.breakdown and any(moved) else {}
            record = _record(world, layout, plan, dim, (error, allowed), seconds, moved, parts, protocol)
            between = _between(world, layout, plan, dim, crossed, protocol)
            yield record.model_copy(update={"prepare": made, **between} | faults)
            plan.forget(dim)
    except MggError as error:
        # Closing is collective, so after an error of one PE alone the job ends instead.
        if error.everywhere:
            plan.close()
        raise
    plan.close()


def _checked(world: World, layout: PeLayout, plan: Plan, dim: int, protocol: TimingProtocol) -> tuple[float, float]:
    """Return the largest error and the largest allowed error over all PEs; raise CheckError."""
    result = world.download(plan(dim))
    if plan.sample is not None:  # of the first epoch
        product = sampled(layout, protocol.direction, plan.sample.share, oracle.SEED, 1)
        reference = oracle.reference(layout, protocol.direction, dim, product)
    else:
        if dim not in protocol.references:
            protocol.references[dim] = oracle.reference(layout, protocol.direction, dim)
        reference = protocol.references[dim]
    nodes = oracle.halo_nodes(layout, layout.product(protocol.direction))
    beyond = plan.rounding(oracle.embeddings(nodes, dim))
    found = world.gather(reference.judged(result, oracle.TOLERANCE[plan.dtype], beyond))
    wrong = [(error, allowed, pe) for pe, (error, allowed, right) in enumerate(found) if not right]
    if wrong:
        error, allowed, pe = max(wrong)
        raise CheckError(
            f"technique {plan.name}, {protocol.direction}, D = {dim}: PE {pe} differs from the float64"
            f" product by {error:.3g} of |A| |B|, allowed is {allowed:.{0 if beyond is None else 2}e}"
        ).on_every_pe()
    return max(error for error, _, _ in found), max(allowed for _, allowed, _ in found)


def timed(
    world: World, plan: Plan, dim: int, protocol: TimingProtocol, part: str | None = None
) -> tuple[list[float], list[int]]:
    """Time products, or one part of them: return their seconds on the slowest PE, and the bytes per PE and product."""
    out = world.xp.empty((plan.layout.rows, dim), np.float32)
    clock = world.clock()

    def product() -> None:
        if part is None:
            plan(dim, out)
        else:
            plan.part(part, dim, out)

    for _ in range(protocol.warmup):
        product()
    mine, before = [], world.counters.embeddings()
    for _ in range(protocol.iterations):
        world.barrier()
        clock.start()
        product()
        mine.append(clock.stop())
    moved = (world.counters.embeddings() - before) // protocol.iterations
    slowest = np.max(world.gather(mine), axis=0)
    return slowest.tolist(), world.gather(moved)


def parts_alone(world: World, plan: Plan, dim: int, protocol: TimingProtocol) -> dict[str, float]:
    """Return the median seconds of ``transfer`` and ``compute`` alone, where the technique can separate them."""
    if plan.part("compute", dim, world.xp.empty((plan.layout.rows, dim), np.float32)):
        alone = {name: timed(world, plan, dim, protocol, name)[0] for name in ("transfer", "compute")}
        return {name: float(np.median(seconds)) for name, seconds in alone.items()}
    plan.world = MutedWorld(world)
    try:
        seconds, moved = timed(world, plan, dim, protocol)
    finally:
        plan.world = world
    return {} if any(moved) else {"compute": float(np.median(seconds))}


def _between(
    world: World, layout: PeLayout, plan: Plan, dim: int, crossed: int, protocol: TimingProtocol
) -> dict[str, int | None]:
    """Return the record fields on workgroups; ``crossed``: bytes moved between them per product (collective)."""
    if not isinstance(plan.options, WorkgroupOptions):
        return {}
    members = members_of(plan.options, layout)
    if not makes_groups(layout.size, members):
        return {"workgroup": members}
    case = memory.MemoryCase(layout, protocol.direction, dim, plan.options, plan.dtype)
    sizes = halo_sizes(case, members)
    once_a_pe, once_a_group = case.product.halo - sizes.near, sum(sizes.messages)
    everywhere = world.gather((crossed, case.sent(once_a_pe), case.sent(once_a_group)))
    between, vi_fc, vi_cola = (sum(column) for column in zip(*everywhere, strict=True))
    return {"workgroup": members, "bytes_between": between, "vi_fc": vi_fc, "vi_cola": vi_cola}


def _record(
    world: World, layout: PeLayout, plan: Plan, dim: int,
    checked: tuple[float | None, float | None], seconds: list[float], moved: list[int], parts: dict[str, float],
    protocol: TimingProtocol,
) -> AggregateRecord:  # fmt: skip
    manifest = layout.manifest
    counts = manifest.direction(protocol.direction)
    fp32 = volumes(layout.nodes, layout.size, sum(counts.remote_arcs), sum(counts.halo_rows), dim)
    v_cg, v_fr, v_fc = (volume * np.dtype(ELEMENTS[plan.dtype]).itemsize // 4 for volume in fp32)
    return AggregateRecord(
        dataset=manifest.name,
        graph_hash=manifest.graph_hash,
        nodes=manifest.nodes,
        arcs=manifest.arcs,
        technique=plan.name,
        options=plan.options.model_dump(),
        repeats=plan.repeats,
        **plan.facts(dim),
        defaults=plan.Options().model_dump(),
        dtype=plan.dtype,
        **job_fields(world),
        emulated=None if world.emulated is None else str(world.emulated.network),
        layout=manifest.digest(),
        direction=protocol.direction,
        dim=dim,
        scheme=manifest.scheme,
        imbalance=max(counts.arcs) * layout.size / manifest.arcs if manifest.arcs else 1.0,
        edge_cut=sum(counts.remote_arcs),
        halo_rows=sum(counts.halo_rows),
        warmup=protocol.warmup,
        **_times(seconds, [float(np.median(seconds))]),
        compute=parts.get("compute"),
        transfer=parts.get("transfer"),
        bytes_wire=sum(moved),
        bytes_per_pe=moved,
        v_cg=v_cg,
        v_fr=v_fr,
        v_fc=v_fc,
        error=checked[0],
        tolerance=checked[1],
    )
