"""Run a job of lookups: sides on ranks or threads, all records in one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mgg.backend import World, job_size, launch, together
from mgg.errors import InputError, MggError
from mgg.lookup.measure import LookupProtocol, sweep
from mgg.lookup.samples import load
from mgg.records import add_lines, check_lines_output
from mgg.records.lookup import LookupRecord


@dataclass(frozen=True)
class LookupJob:
    """A job to measure.

    Attributes:
        data: folder of samples.
        backend: a name of ``config.Backend``.
        pes: number of PEs; None: the ranks of the job, or one.
        sides: names of ``mgg.lookup.SIDES``.
        out: file of the records, or None.
        replace: replace the records in the file instead of appending.
    """

    data: Path
    backend: str
    pes: int | None
    sides: Sequence[str]
    protocol: LookupProtocol
    out: Path | None
    replace: bool

    def run(self) -> tuple[list[LookupRecord], list[MggError]]:
        """Measure and write ``out``; return the records and the errors of refused sides, on every rank.

        Raises:
            InputError, MachineError: every side was refused, the number of ranks differs from ``pes``, or ``out``
                cannot be written.
            CheckError: a result differs from the float64 sums.
        """
        ranks = job_size()
        if self.pes is not None and ranks > 1 and self.pes != ranks:
            raise InputError(f"--pes {self.pes}: the job has {ranks} ranks: leave --pes out, or start as many")
        return launch(self.backend, lambda: self.pes or job_size() or 1, self._measure)[0]

    def _measure(self, world: World) -> tuple[list[LookupRecord], list[MggError]]:
        together(world, lambda: self._check_output() if world.rank == 0 else None)
        # One PE's check is enough to notice altered files.
        samples = together(world, lambda: load(self.data, verify=world.rank == 0))
        records, refused = sweep(world, samples, self.sides, self.protocol)
        together(world, lambda: self._write(records) if world.rank == 0 else None)
        return records, refused

    def _check_output(self) -> None:
        """Raise InputError before any measurement if records cannot be added to ``out``."""
        if self.out is None:
            return
        digest = load(self.data, verify=False).digest
        for record in check_lines_output(self.out, LookupRecord, replace=self.replace):
            if record.samples_hash != digest:
                raise InputError(
                    f"{self.out}: holds records of other samples ({record.dataset}): choose another name, or replace"
                    " them with --replace"
                )

    def _write(self, records: list[LookupRecord]) -> None:
        if self.out is not None:
            add_lines(self.out, records, replace=self.replace)
