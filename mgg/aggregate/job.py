"""A job of products: techniques on ranks, then those that need one process on threads; all records into one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mgg.aggregate import technique
from mgg.aggregate.counters import ncu, profiling
from mgg.aggregate.expected_kernels import of_auto, of_products
from mgg.aggregate.measure import Protocol, sweep
from mgg.aggregate.options import TechniqueOptions
from mgg.backend import (
    World,
    job_rank,
    launch,
    launch_threads,
    on_first_rank,
    refuse_threads,
    resolve,
    splits,
    together,
)
from mgg.backend.emulated import emulating
from mgg.errors import InputError, MachineError, MggError
from mgg.kernel.ahead import ahead
from mgg.layout import load, read_manifest
from mgg.network import Network
from mgg.record import AggregateRecord, add_lines, check_lines_output

#: Techniques, each with a set of options.
Chosen = Sequence[tuple[str, TechniqueOptions]]
#: Records, and what was refused.
Found = tuple[list[AggregateRecord], list[MggError]]


@dataclass(frozen=True)
class Job:
    """What is measured.

    Attributes:
        layout: folder of the layout.
        backend: what the PEs are, a name of ``config.Backend``.
        dims: embedding columns.
        dtypes: types of the embeddings.
        protocol: how products are measured.
        auto: measure the cost model's picks, too.
        out: file of the records.
        profile: run each product once more under Nsight Compute, when all is measured.
        replace: they take the place of those in the file, instead of coming after them.
        network: what transfers between the layout's workgroups are held to; None: to nothing.
        threads: of each CPU PE, for row-wise products.
    """

    layout: Path
    backend: str
    dims: list[int]
    dtypes: list[str]
    protocol: Protocol
    auto: bool
    out: Path
    replace: bool = False
    profile: bool = False
    network: Network | None = None
    threads: int = 1

    def run(self, chosen: Chosen) -> Found:
        """Measure ``chosen`` and write ``out``; what is refused is left out as long as something else can be measured.

        Returns:
            On every rank the records of ranks, on rank 0 those of threads, too; and what was refused, an error each.

        Raises:
            InputError, MachineError: everything was refused, or ``out`` cannot be written; or a profile is asked for,
                and Nsight Compute is missing or may not read the counters: then ``out`` has the timings without.
            CheckError: a result differs from the float64 product.
        """
        if self.profile and resolve(self.backend, self._pes) == "nvshmem":
            on_first_rank(self._pes, ncu.find)  # before anything is measured
        records, refused = self._run(chosen)
        if self.profile:
            records = on_first_rank(self._pes, lambda: profiling.add(self.layout, self.out, records)) or records
        return records, refused

    def _run(self, chosen: Chosen) -> Found:
        ahead.expect(of_products(chosen, self.dtypes) + (of_auto(self.dtypes) if self.auto else []))
        apart = [each for each in chosen if technique(each[0]).one_process]
        if not (apart and splits(self.backend, self._pes, len(apart) == len(chosen) and not self.auto)):
            apart = []
        records: list[AggregateRecord] = []
        refused: list[MggError] = []
        if apart:
            refuse_threads(self.threads)
        if len(apart) < len(chosen) or self.auto:
            ranks = [each for each in chosen if each not in apart]
            records, refused = launch(
                self.backend,
                self._pes,
                lambda world: self._measure(world, ranks, self.auto, [], not apart),
                self.threads,
            )[0]
        return self._on_threads(apart, records, refused) if apart else (records, refused)

    def _on_threads(self, apart: Chosen, records: list[AggregateRecord], refused: list[MggError]) -> Found:
        """Measure ``apart`` on threads of rank 0, beside what the ranks have measured and refused."""
        try:
            found = launch_threads(self._pes, lambda world: self._measure(world, apart, False, records, True))
        except (InputError, MachineError) as refusal:
            if not records:
                raise
            # What the ranks have measured is kept.
            if job_rank() == 0:
                self._write(records)
            return records, [*refused, refusal]
        return (records + found[0], refused + found[1]) if found else (records, refused)

    def _check_output(self) -> None:
        """Raise InputError, before anything is measured, where records cannot be added to ``out``."""
        manifest = read_manifest(self.layout)
        for record in check_lines_output(self.out, AggregateRecord, replace=self.replace):
            if (record.graph_hash, record.layout) != (manifest.graph_hash, manifest.digest()):
                raise InputError(
                    f"{self.out}: holds records of another layout ({record.dataset}, P = {record.pes},"
                    f" {record.scheme}): choose another name, or replace them with --replace"
                )

    def _write(self, records: list[AggregateRecord]) -> None:
        add_lines(self.out, records, replace=self.replace)

    def _pes(self) -> int:
        return read_manifest(self.layout).pes

    def _measure(self, world: World, part: Chosen, auto: bool, earlier: list[AggregateRecord], last: bool) -> Found:
        """Measure a ``part`` of what was chosen; the ``last`` one writes its records and ``earlier`` ones."""
        together(world, lambda: self._check_output() if world.rank == 0 else None)
        mine = together(world, lambda: load(self.layout, world.rank))
        world = emulating(world, self.network, mine.manifest.workgroup)
        protocol = replace(self.protocol, references={})  # a PE's own
        try:
            records, refused = sweep(
                world, mine, part, dims=self.dims, dtypes=self.dtypes, protocol=protocol, auto=auto
            )
        except (InputError, MachineError) as error:
            # Of several parts one may be refused as a whole.
            if not error.everywhere or (last and not earlier):
                raise
            records, refused = [], [error]
        if last:
            together(world, lambda: self._write(earlier + records) if world.rank == 0 else None)
        return records, refused
