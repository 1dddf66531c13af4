"""Records of embedding lookups (``mgg lookup``), and the batch sizes between which one side overtakes another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from mgg.records import Count, Machine, Origin, Seconds, Sha256, Used

#: How bytes cross PEs.
Transport = Literal["one-sided", "nccl"]


class LookupRecord(Origin):
    """Timing of one side, width and batch size on one data set.

    The timing is repeated in launches. Each launch allocates buffers and tables anew, and the job measures everything
    else between two launches. Batches repeat only after ``distinct`` different ones.
    """

    schema_version: Literal[1] = 1
    kind: Literal["lookup"] = "lookup"
    dataset: str = Field(description="name of the samples")
    samples_hash: Sha256 = Field(description="hash of the samples' manifest; samples with equal hashes are equal")
    samples: int = Field(ge=1, description="samples that it has")
    tables: list[Annotated[int, Field(ge=1)]] = Field(min_length=1, description="rows of each table")
    source: str = Field(description="where the samples come from: a generator, or a file and how its ids were made")
    side: str = Field(description="how rows were looked up: mgg, direct, alltoall, alltoall_tables or halo")
    split: Literal["rows", "tables"] = Field(
        description="rows: each table is split by rows; tables: whole tables are dealt out to PEs"
    )
    transport: Transport = Field(
        "one-sided",
        description="how bytes crossed PEs: one-sided (loads, gets and puts) or nccl (grouped sends and receives)",
    )
    dim: int = Field(ge=1, description="D, the number of embedding columns")
    batch: int = Field(ge=1, description="number of samples of a batch, all PEs together")
    backend: str = Field(description="what the PEs were: simulated (threads), mpi (processes) or nvshmem (GPUs)")
    pes: int = Field(ge=1, description="number of PEs")
    machine: Machine
    versions: dict[str, str] = Field(description="versions of MGG and of the libraries that do the work")
    used: Used | None = Field(None, description="what the job had used until then; None: unknown")
    gpu_memory: Count | None = Field(
        None, description="most bytes of a GPU's memory at a time, as of timings, since the job began; None: CPUs"
    )
    warmup: int = Field(ge=0, description="batches of a launch before the timed ones")
    seconds: list[Seconds] = Field(
        min_length=1, description="seconds of each timed batch, slowest PE; launch after launch, as many of each"
    )
    launches: list[Seconds] = Field(min_length=1, description="median seconds of each launch")
    low: float = Field(description="smallest median of a launch")
    median: float = Field(description="time of a batch on the slowest PE: median of the medians of the launches")
    high: float = Field(description="largest median of a launch")
    q1: float = Field(description="first quartile of the time of a batch, over all launches")
    q3: float = Field(description="third quartile of the time of a batch, over all launches")
    distinct: int = Field(ge=1, description="number of batches that differ; after the last of them they start again")
    indices: int = Field(ge=1, description="rows that a batch asks for, all PEs together")
    remote: Count = Field(description="of those of all timed batches, how many another PE owned")
    bytes_wire: Count = Field(description="bytes of embeddings that crossed PEs in all timed batches, counted")
    bytes_ids: Count = Field(description="bytes of row numbers that crossed PEs in them, counted")
    v_fr: Count = Field(description="4 D remote: bytes where each remote index fetches its row")
    error: float | None = Field(
        description="max |C - C*| / sum |rows|, where C* is the float64 result; None: not checked"
    )
    tolerance: float | None = Field(description="largest error allowed")

    @property
    def timed(self) -> int:
        """Number of timed batches."""
        return len(self.seconds)

    @property
    def rate(self) -> float:
        """Rows looked up per second."""
        return self.indices / self.median

    @property
    def remote_share(self) -> float:
        """Share of indices whose rows another PE owns."""
        return self.remote / (self.indices * self.timed)


class Crossover(NamedTuple):
    """Comparison of two sides over batch sizes.

    Attributes:
        side, against: names of the two sides.
        ratios: per batch size, the time of ``against`` over that of ``side``; above 1 ``side`` is faster.
        changes: pairs of neighboring batch sizes between which the faster one changes.
    """

    side: str
    against: str
    ratios: Mapping[int, float]
    changes: list[tuple[int, int]]


def crossovers(medians: Mapping[str, Mapping[int, float]]) -> list[Crossover]:
    """Compare the first side with each other side.

    Args:
        medians: per side and batch size, the median seconds of a batch.
    """
    side, *others = medians or [""]
    return [crossover(side, medians[side], other, medians[other]) for other in others]


def crossover(side: str, mine: Mapping[int, float], against: str, theirs: Mapping[int, float]) -> Crossover:
    """Compare the medians of two sides at the batch sizes that both have."""
    sizes = sorted(mine.keys() & theirs.keys())
    ratios = {size: theirs[size] / mine[size] for size in sizes}
    changes = [pair for pair in pairwise(sizes) if (ratios[pair[0]] > 1) != (ratios[pair[1]] > 1)]
    return Crossover(side, against, ratios, changes)


def told(found: Crossover) -> str:
    """Describe a crossover in words."""
    sizes = list(found.ratios)
    if not sizes:
        return f"{found.side} and {found.against} have no batch size in common"
    first = "less" if found.ratios[sizes[0]] > 1 else "more"
    ends = f"{found.ratios[sizes[0]]:.2f} at {sizes[0]}, {found.ratios[sizes[-1]]:.2f} at {sizes[-1]}"
    if not found.changes:
        return f"{found.side} takes {first} time than {found.against} at every batch size ({ends}): no crossover"
    at = ", ".join(f"{low} and {high}" for low, high in found.changes)
    return f"{found.side} takes {first} time than {found.against} at {sizes[0]} ({ends}); crossover between {at}"


def by_side(records: Iterable[LookupRecord]) -> dict[str, dict[int, float]]:
    """Return the argument of ``crossovers`` for records that differ only in side and batch."""
    found: dict[str, dict[int, float]] = {}
    for record in records:
        found.setdefault(record.side, {})[record.batch] = record.median
    return found
