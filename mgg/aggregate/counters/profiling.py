"""Add occupancy and SM utilization to timing records by running each product again under Nsight Compute."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgg.aggregate.counters import ncu
from mgg.aggregate.counters.profiled import ProfiledCase
from mgg.errors import InputError, MachineError
from mgg.records import AggregateRecord, add_lines, read_lines

ON_CPUS = "CPU ranks have no multiprocessors that could be profiled"
_ON_HOSTS = "its PEs were on several hosts, and those of a profile are threads of one process"
#: Seconds that a product may take under Nsight Compute, including startup and compilation.
TIMEOUT = 300.0
_log = logging.getLogger(__name__)


def add(layout: Path, path: Path, records: Sequence[AggregateRecord]) -> list[AggregateRecord]:
    """Profile the products that this job has timed, and add the results to their records.

    Args:
        layout: folder of the layout that they were measured on.
        path: JSON lines that end with ``records``; replaced as a whole or left unchanged.
        records: the records as written.

    Returns:
        The updated records; those that could not be profiled give the reason.

    Raises:
        MachineError: ncu is missing, or may not read the counters.
    """
    program = version = ""
    if any(record.machine.gpus for record in records):
        program = ncu.find()
        version = ncu.version(program)
        if any(record.emulated for record in records):
            _log.warning("--profile: profiles the same kernels without the emulated network")
    profiled = [
        record.model_copy(update=_fields(program, version, layout.resolve(), record, TIMEOUT)) for record in records
    ]
    before = read_lines(path, AggregateRecord)[: -len(records)]
    add_lines(path, [*before, *profiled], replace=True)
    return profiled


def _fields(program: str, version: str, layout: Path, record: AggregateRecord, timeout: float) -> dict[str, Any]:
    """Return the profile fields of one record."""
    if not record.machine.gpus:
        return {"profile_untold": ON_CPUS}
    if record.machine.hosts > 1:
        return {"profile_untold": _ON_HOSTS}
    case = ProfiledCase(
        layout=layout,
        pes=record.pes,
        technique=record.technique,
        options=record.options,
        direction=record.direction,
        dim=record.dim,
        dtype=record.dtype,
    )
    command = [sys.executable, "-m", "mgg.aggregate.counters.profiled", case.model_dump_json()]
    try:
        kernels = ncu.profile(program, command, timeout)
    except ncu.PermissionMissing:
        raise
    except (InputError, MachineError) as error:
        return {"profile_untold": str(error), "profiler": version}
    return {**ncu.means(kernels), "profiler": version}
