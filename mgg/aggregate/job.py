"""A job of products: most techniques run on ranks, single-process ones on threads; all records go to one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mgg.aggregate import technique
from mgg.aggregate.counters import ncu, profiling
from mgg.aggregate.expected_kernels import of_auto, of_products
from mgg.aggregate.measure import TimingProtocol, sweep
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
from mgg.kernel.compile_ahead import ahead
from mgg.layout import load, read_manifest
from mgg.network import Network
from mgg.records import AggregateRecord, add_lines, check_lines_output

#: Techniques, each with a set of options.
Chosen = Sequence[tuple[str, TechniqueOptions]]
#: Records, and refusals.
Found = tuple[list[AggregateRecord], list[MggError]]


@dataclass(frozen=True)
class AggregateJob:
    """What to measure.

    Attributes:
        backend: kind of PEs, a name of ``config.Backend``.
        dims: embedding columns.
        auto: also measure the cost model's picks.
        out: file of the records.
        profile: after all measurements, run each product once more under Nsight Compute.
        replace: replace the records in the file instead of appending to them.
        network: emulated network between the layout's workgroups; None: no emulation.
        threads: threads of each CPU PE.
    """

    layout: Path
    backend: str
    dims: list[int]
    dtypes: list[str]
    protocol: TimingProtocol
    auto: bool
    out: Path
    replace: bool = False
    profile: bool = False
    network: Network | None = None
    threads: int = 1

    def run(self, chosen: Chosen) -> Found:
        """Measure ``chosen`` and write ``out``; skip refused cases as long as something else can be measured.

        Returns:
            The records, and an error for each refusal. Every rank gets the records of ranks; rank 0 also gets those of
            threads.

        Raises:
            InputError, MachineError: everything was refused, or ``out`` cannot be written; or a profile was requested,
                but Nsight Compute is missing or may not read the counters: ``out`` then has timings without profiles.
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
        """Measure ``apart`` on threads of rank 0, and add the results to the records and refusals of the ranks."""
        try:
            found = launch_threads(self._pes, lambda world: self._measure(world, apart, False, records, True))
        except (InputError, MachineError) as refusal:
            if not records:
                raise
            # Keep what the ranks have measured.
            if job_rank() == 0:
                self._write(records)
            return records, [*refused, refusal]
        return (records + found[0], refused + found[1]) if found else (records, refused)

    def _check_output(self) -> None:
        """Raise InputError, before any measurement, if records cannot be added to ``out``."""
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
        """Measure a ``part`` of the chosen techniques; the ``last`` part writes its records and ``earlier`` ones."""
        together(world, lambda: self._check_output() if world.rank == 0 else None)
        mine = together(world, lambda: load(self.layout, world.rank))
        world = emulating(world, self.network, mine.manifest.workgroup)
        protocol = replace(self.protocol, references={})  # references belong to one PE
        try:
            records, refused = sweep(
                world, mine, part, dims=self.dims, dtypes=self.dtypes, protocol=protocol, auto=auto
            )
        except (InputError, MachineError) as error:
            # One of several parts may be refused as a whole.
            if not error.everywhere or (last and not earlier):
                raise
            records, refused = [], [error]
        if last:
            together(world, lambda: self._write(earlier + records) if world.rank == 0 else None)
        return records, refused
