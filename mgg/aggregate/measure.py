"""Check and time techniques at several widths: what ``mgg aggregate`` does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mgg.aggregate import AUTO, accepted, memory, oracle, parse_options, prepare
from mgg.aggregate import technique as technique_of
from mgg.aggregate.auto import Forecast, forecast, tell_left_out
from mgg.aggregate.foreseen import of_products
from mgg.aggregate.group_needs import told
from mgg.aggregate.muted import MutedWorld
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.plan import Plan
from mgg.aggregate.workgroups import WorkgroupOptions, makes_groups, members_of, settled, tell_difference
from mgg.backend import World, job_fields
from mgg.backend.api import told_of_gpu_memory
from mgg.backend.compiling import compile_ahead
from mgg.errors import NOT_ENOUGH_MEMORY, CheckError, InputError, MachineError, MggError
from mgg.kernel.bf16 import ELEMENTS
from mgg.layout import PeLayout
from mgg.partition.quality import volumes
from mgg.record import AggregateRecord

_SHORT = f"{NOT_ENOUGH_MEMORY}: "


@dataclass
class Protocol:
    """How products are measured, the same for all techniques of a job.

    Attributes:
        direction: ``forward`` or ``transpose``.
        dtype: type of the embeddings.
        warmup, iterations: untimed and timed products of a launch.
        check: compare with a float64 product first, in the first launch.
        breakdown: also time the product without its transfers.
        launches: how often a technique is measured, each time on a plan prepared anew.
        references: this PE's float64 products by width, made once for all techniques and dtypes.
    """

    direction: str
    warmup: int
    iterations: int
    check: bool
    breakdown: bool = False
    dtype: str = "fp32"
    launches: int = 1
    references: dict[int, oracle.Reference] = field(default_factory=dict)


def sweep(
    world: World,
    layout: PeLayout,
    chosen: Iterable[tuple[str, TechniqueOptions]],
    *,
    dims: list[int],
    protocol: Protocol,
    dtypes: Sequence[str] = ("fp32",),
    auto: bool = False,
) -> tuple[list[AggregateRecord], list[MggError]]:
    """Measure each (technique, options) of ``chosen`` with every type of ``dtypes`` and width of ``dims`` (collective).

    Launches go in rounds: each measures everything once, on plans that it prepares and closes, so that the launches
    of a technique lie apart in time. Results are checked in the first round.

    With ``auto`` the cost model's pick of each type and width is measured, too, once; records say which it was, and
    what the model says of every technique.

    What a technique refuses on every PE (a type that it does not take, a setting that the device cannot run, a
    technique for one PE on several, too little memory) is left out of this round and all later ones, as long as
    something else can be measured; launches before stay.

    Returns:
        The records, the same on every PE; and what was refused, each naming its technique, options, type and width.

    Raises:
        InputError, MachineError: everything was refused; the first of the refusals.
        CheckError: a result differs from the float64 product.
    """
    trials: list[_Trial] = []
    refused: list[MggError] = []
    chosen = list(dict.fromkeys((name, settled(world, options)) for name, options in chosen))
    tell_difference(world, layout, [options for _, options in chosen])
    if auto:
        tell_left_out(world, layout, dtypes)
    for dtype in dtypes:
        how = replace(protocol, dtype=dtype)
        said = forecast(world, layout, protocol.direction, dtype) if auto else None
        picks = {} if said is None else _picks(world, layout, said, dims, how, refused)
        queue = _queue(chosen, dims, picks)
        # Whose kernel does not compile is refused by itself.
        compile_ahead(world, of_products([each[:2] for each in queue], [dtype], shmem=world.shmem), must=False)
        trials += [_Trial(*each, how, said, picks) for each in queue]
    for _ in range(protocol.launches):
        for trial in trials:
            refused += trial.launch(world, layout)
    records = [record for trial in trials for record in trial.told()]
    if refused and not records:
        raise refused[0]
    return records, refused


@dataclass
class _Trial:
    """A technique with options and a type, measured once a round; ``widths`` are those that it has not refused."""

    name: str
    options: TechniqueOptions
    widths: list[int]
    protocol: Protocol
    said: Forecast | None
    picks: Mapping[int, str]
    rounds: int = 0
    records: dict[int, AggregateRecord] = field(default_factory=dict)
    parts: dict[int, list[tuple[float | None, float | None]]] = field(default_factory=lambda: defaultdict(list))

    def launch(self, world: World, layout: PeLayout) -> list[MggError]:
        """Measure every width once more (collective); returns an error for each that is refused, and drops it."""
        self.rounds += 1
        again = self.rounds > 1
        protocol = replace(self.protocol, check=False) if again else self.protocol
        refused: list[MggError] = []
        left = sorted(self.widths)
        while left:
            try:
                for record in products(world, layout, self.name, left, self.options.model_dump(), protocol):
                    before = self.records.get(record.dim)
                    self.records[record.dim] = record if before is None else _joined(before, record)
                    self.parts[record.dim].append((record.compute, record.transfer))
                    left = [dim for dim in left if dim != record.dim]
            except (InputError, MachineError) as error:
                if not error.everywhere:
                    raise
                # The limits of a plan are those of its widest product: the others may still fit.
                dim = left.pop()
                self.widths = [each for each in self.widths if each != dim]
                which = f", launch {self.rounds}" if again else ""
                refused.append(_named(error, self.name, self.options, dim, protocol.dtype, which))
        return refused

    def told(self) -> list[AggregateRecord]:
        """A record for each width that has one, with all of its launches and what the cost model said."""
        records = [_with_parts(self.records[dim], self.parts[dim]) for dim in sorted(self.records)]
        if self.said is None:
            return records
        return [_foretold(record, self.options, self.said, self.picks) for record in records]


def _joined(before: AggregateRecord, now: AggregateRecord) -> AggregateRecord:
    """A record of the launches of both; ``before`` has what only the first launch is asked for."""
    first: dict[str, Any] = before.model_dump(include={"error", "tolerance"})
    memory = [each for each in (before.gpu_memory, now.gpu_memory) if each is not None]
    first["gpu_memory"] = max(memory, default=None)
    times = _times([*before.seconds, *now.seconds], [*before.launches, *now.launches])
    return now.model_copy(update=first | times)


def _with_parts(record: AggregateRecord, launches: list[tuple[float | None, float | None]]) -> AggregateRecord:
    """The record with medians over launches of its parts, where each launch has them."""
    medians = [None if None in each else float(np.median(each)) for each in zip(*launches, strict=True)]
    return record.model_copy(update=dict(zip(("compute", "transfer"), medians, strict=True)))


def _times(seconds: list[float], launches: list[float]) -> dict[str, Any]:
    """The fields of a record on ``seconds`` of products and the medians of their ``launches``."""
    q1, q3 = np.percentile(seconds, [25, 75]).tolist()
    middle = float(np.median(launches))
    spread = {"low": min(launches), "median": middle, "high": max(launches)}
    return {"seconds": seconds, "launches": launches, **spread, "q1": q1, "q3": q3}


def _picks(
    world: World, layout: PeLayout, said: Forecast, dims: list[int], protocol: Protocol, refused: list[MggError]
) -> dict[int, str]:
    """The pick of each width that has one; of the others the errors, added to ``refused``."""
    picks = {}
    for dim in dims:
        try:
            picks[dim] = _pick(world, layout, said, dim, protocol)
        except (InputError, MachineError) as error:
            if not error.everywhere:
                raise
            refused.append(_named(error, AUTO, TechniqueOptions(), dim, protocol.dtype))
    return picks


def _pick(world: World, layout: PeLayout, said: Forecast, dim: int, protocol: Protocol) -> str:
    """The cheapest technique whose memory there is on every PE (collective)."""
    short: MggError | None = None
    for name in said.ranking(dim):
        try:
            for check in (memory.check, memory.check_host):
                check(
                    world, technique_of(name), layout, protocol.direction, dim, parse_options(name, {}), protocol.dtype
                )
        except MachineError as error:
            short = short or error
        else:
            return name
    assert short is not None
    raise short


def _queue(
    chosen: Iterable[tuple[str, TechniqueOptions]], dims: list[int], picks: Mapping[int, str]
) -> list[tuple[str, TechniqueOptions, list[int]]]:
    """What is measured at which widths: all that was named, and of the picks those that were not."""
    queue = [
        (name, options, some)
        for name, options in chosen
        for some in ([[dim] for dim in dims] if technique_of(name).by_width(options) else [dims])
    ]
    named = {(name, options) for name, options, _ in queue}
    for name in dict.fromkeys(picks.values()):
        options = parse_options(name, {})
        if (name, options) not in named:
            queue.append((name, options, [dim for dim in dims if picks.get(dim) == name]))
    return queue


def _foretold(
    record: AggregateRecord, options: TechniqueOptions, said: Forecast, picks: Mapping[int, str]
) -> AggregateRecord:
    name, dim = record.technique, record.dim
    picked = picks.get(dim) == name and options == parse_options(name, {})
    return record.model_copy(update={"chosen": picked, "predicted": said.seconds(name, dim, options)})


def _named(
    error: MggError, technique: str, options: TechniqueOptions, dim: int, dtype: str, which: str = ""
) -> MggError:
    given = " ".join(f"{key}={value}" for key, value in options.model_dump(exclude_defaults=True).items())
    what = f"{technique} ({given})" if given else technique
    at = (f"D = {dim}" if dtype == "fp32" else f"D = {dim}, {dtype}") + which
    said = str(error).removeprefix(_SHORT)
    begin = "" if said == str(error) else _SHORT  # the workflow looks for it at the beginning
    return type(error)(f"{begin}{what}, {at}: {said}").on_every_pe()


def products(
    world: World, layout: PeLayout, technique: str, dims: list[int], options: Mapping[str, Any], protocol: Protocol
) -> Iterator[AggregateRecord]:
    """Check, then time one launch of ``technique`` at every width of ``dims`` (collective).

    Returns:
        A record for each width as it is measured, the same on every PE; the plan is closed at the end and after an
        error of every PE.

    Raises:
        CheckError: a result differs from the float64 product by more than ``oracle.TOLERANCE``.
        InputError: unknown technique or option, or a width that it cannot run.
        MachineError: a GPU, or a host of CPU PEs, has too little memory left.
    """
    parsed = accepted(technique, world, layout, options, protocol.dtype)
    memory.check_host(world, technique_of(technique), layout, protocol.direction, max(dims), parsed, protocol.dtype)
    world.measure_memory()
    plan = prepare(technique, world, layout, protocol.direction, max(dims), options, protocol.dtype)
    try:
        for dim in dims:
            with told_of_gpu_memory(world):
                plan.write(dim, world.upload(oracle.embeddings(layout.node_ids, dim)))
                error = _checked(world, layout, plan, dim, protocol) if protocol.check else None
                crossed = world.counters.between()
                seconds, moved = timed(world, plan, dim, protocol)
                crossed = (world.counters.between() - crossed) // (protocol.warmup + protocol.iterations)
                parts = parts_alone(world, plan, dim, protocol) if protocol.breakdown and any(moved) else {}
            record = _record(world, layout, plan, dim, error, seconds, moved, parts, protocol)
            yield record.model_copy(update=_between(world, layout, plan, dim, crossed, protocol))
            plan.forget(dim)
    except MggError as error:
        # Closing is collective: an error of one PE alone ends the job instead.
        if error.everywhere:
            plan.close()
        raise
    plan.close()


def _checked(world: World, layout: PeLayout, plan: Plan, dim: int, protocol: Protocol) -> float:
    result = world.download(plan(dim))
    if dim not in protocol.references:
        protocol.references[dim] = oracle.reference(layout, protocol.direction, dim)
    errors = world.gather(protocol.references[dim].error(result))
    worst = max(errors)
    if worst > oracle.TOLERANCE[plan.dtype]:
        raise CheckError(
            f"technique {plan.name}, {protocol.direction}, D = {dim}: PE {errors.index(worst)} differs from the float64"
            f" product by {worst:.3g} of |A| |B|, allowed is {oracle.TOLERANCE[plan.dtype]:.0e}"
        ).on_every_pe()
    return worst


def timed(
    world: World, plan: Plan, dim: int, protocol: Protocol, part: str | None = None
) -> tuple[list[float], list[int]]:
    """Seconds of each product, or of a part of it, on the slowest PE, and the bytes each PE moved in one product."""
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


def parts_alone(world: World, plan: Plan, dim: int, protocol: Protocol) -> dict[str, float]:
    """Median seconds of ``transfer`` and ``compute`` alone, as far as the technique's can be told apart."""
    if plan.part("compute", dim, world.xp.empty((plan.layout.rows, dim), np.float32)):
        alone = {name: timed(world, plan, dim, protocol, name)[0] for name in ("transfer", "compute")}
        return {name: float(np.median(seconds)) for name, seconds in alone.items()}
    compute = _without_transfers(world, plan, dim, protocol)
    return {} if compute is None else {"compute": compute}


def _without_transfers(world: World, plan: Plan, dim: int, protocol: Protocol) -> float | None:
    """Median seconds of the same launches while embeddings stay where they are; None where some moved all the same."""
    plan.world = MutedWorld(world)
    try:
        seconds, moved = timed(world, plan, dim, protocol)
    finally:
        plan.world = world
    return float(np.median(seconds)) if not any(moved) else None


def _between(
    world: World, layout: PeLayout, plan: Plan, dim: int, crossed: int, protocol: Protocol
) -> dict[str, int | None]:
    """The fields of a record on workgroups, out of the bytes that ``crossed`` for this PE in a product (collective)."""
    if not isinstance(plan.options, WorkgroupOptions):
        return {}
    members = members_of(plan.options, layout)
    if not makes_groups(layout.size, members):
        return {"workgroup": members}
    case = memory.Case(layout, protocol.direction, dim, plan.options, plan.dtype)
    needs = told(case, members)
    once_a_pe, once_a_group = case.product.halo - needs.near, sum(needs.messages)
    everywhere = world.gather((crossed, case.sent(once_a_pe), case.sent(once_a_group)))
    between, vi_fc, vi_cola = (sum(column) for column in zip(*everywhere, strict=True))
    return {"workgroup": members, "bytes_between": between, "vi_fc": vi_fc, "vi_cola": vi_cola}


def _record(
    world: World, layout: PeLayout, plan: Plan, dim: int,
    error: float | None, seconds: list[float], moved: list[int], parts: dict[str, float], protocol: Protocol,
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
        error=error,
        tolerance=None if error is None else oracle.TOLERANCE[plan.dtype],
    )
