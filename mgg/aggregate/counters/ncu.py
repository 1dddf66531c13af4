"""Nsight Compute's command line (ncu): its command, and what its CSV page says of a product's kernels."""

from __future__ import annotations

import csv
import os
import re
import shutil
import signal
import subprocess  # nosec B404
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mgg.backend.job import alone
from mgg.errors import InputError, MachineError

#: Where CUDA toolkits put it, for shells whose PATH does not have it.
_USUAL = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/ncu")
_TIME = "gpu__time_duration.sum"
#: Field of a record -> metric, in percent. All of them are had in one pass: a kernel that is repeated for another one
#: finds the pages of unified memory where the pass before has left them, so sm__throughput, which takes several, is
#: not among them. For SM utilization NVIDIA's guide from nvprof names the last (sm_efficiency).
METRICS = {
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "occupancy_limit": "sm__maximum_warps_per_active_cycle_pct",
    "sm_utilization": "smsp__cycles_active.avg.pct_of_peak_sustained_elapsed",
}
_COLUMNS = (_TIME, *METRICS.values())
#: Nanoseconds of the units that versions of it print.
_UNITS = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
_NO_PERMISSION = "ERR_NVGPUCTRPERM"


class Kernel(NamedTuple):
    """A launch that was profiled.

    Attributes:
        name: of the kernel.
        device: its GPU, as ncu calls it.
        nanoseconds: how long it ran.
        shares: by field of a record, 0 to 1.
    """

    name: str
    device: str
    nanoseconds: float
    shares: dict[str, float]


def find() -> str:
    """The program: on PATH, else of ``$CUDA_HOME``, else where CUDA toolkits put it; raises MachineError for none."""
    home = os.environ.get("CUDA_HOME")
    for place in ("ncu", *([f"{home}/bin/ncu"] if home else []), *_USUAL):
        if found := shutil.which(place):
            return found
    raise MachineError(
        "Nsight Compute (ncu) measures occupancy and is not installed: install nsight-compute of the CUDA toolkit,"
        " put ncu on PATH, or leave out --profile (aggregate.profile)"
    )


def version(ncu: str) -> str:
    """Its version, for example 2025.3.1.0; raises MachineError where it does not run."""
    try:
        done = subprocess.run([ncu, "--version"], capture_output=True, text=True, timeout=60, check=False)  # nosec B603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"{ncu} does not run: {error}") from None
    told = re.search(r"^Version (\S+)", done.stdout, re.MULTILINE)
    if done.returncode or told is None:
        raise MachineError(f"{ncu} --version ends with exit code {done.returncode}: {_last(done.stdout + done.stderr)}")
    return told[1]


def command(ncu: str, log: Path, program: Sequence[str]) -> list[str]:
    """What profiles what ``program`` does between the calls that start and stop a profiler, with CSV to ``log``.

    Clocks and caches stay as they are, as in the timings.
    """
    options = ["--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log), "--profile-from-start", "off"]
    options += ["--clock-control", "none", "--cache-control", "none", "--metrics", ",".join(_COLUMNS)]
    return [ncu, *options, *program]


def profile(ncu: str, program: Sequence[str], timeout: float) -> list[Kernel]:
    """The kernels of ``program``.

    Args:
        ncu: Nsight Compute.
        program: command and arguments.
        timeout: seconds that it may take; then it is killed with all that it has started.

    Raises:
        MachineError: Nsight Compute may not read the counters (``PermissionMissing``), or finds no kernels.
        InputError, MachineError: the program itself ends so; its line.
    """
    with tempfile.TemporaryDirectory(prefix="mgg-ncu-") as folder:
        log = Path(folder) / "ncu.csv"
        environment = alone() | {"LC_ALL": "C"}  # numbers with a point
        with subprocess.Popen(  # nosec B603
            command(ncu, log, program), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment, start_new_session=True,
        ) as started:  # fmt: skip
            try:
                said, _ = started.communicate(timeout=timeout)
            except BaseException as error:
                os.killpg(started.pid, signal.SIGKILL)
                started.communicate()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise MachineError(
                        f"not done within {timeout:g} s: kernels of PEs that wait for each other never end under"
                        " Nsight Compute, which runs them one by one"
                    ) from None
                raise
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    check_permission(text + said)
    if line := _own(said):
        raise (InputError if started.returncode == InputError.exit_code else MachineError)(line)
    if started.returncode:
        raise MachineError(f"the profiled program ended with exit code {started.returncode}: {_last(said or text)}")
    kernels = parse(text)
    if not kernels:
        raise MachineError(f"Nsight Compute saw no kernels: {_last(text or said)}")
    return kernels


class PermissionMissing(MachineError):  # noqa: N818 - a MachineError by its nature, told as one
    """Nsight Compute may not read the hardware counters: no other product will fare better."""


def check_permission(text: str) -> None:
    """Raise PermissionMissing where ncu's output says that counters may not be read."""
    if _NO_PERMISSION in text:
        raise PermissionMissing(
            f"Nsight Compute may not read the GPU's performance counters ({_NO_PERMISSION}): run as root, in a"
            " container with CAP_SYS_ADMIN, have the driver loaded with NVreg_RestrictProfilingToAdminUsers=0, or leave"
            " out --profile (aggregate.profile)"
        )


def parse(text: str) -> list[Kernel]:
    """The launches in ncu's CSV of page raw: a line of names, one of units, then a line a launch, among others.

    Raises:
        MachineError: a metric is missing, in another unit, or not a number: Nsight Compute of another kind.
    """
    lines = text.splitlines()
    first = next((place for place, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        return []
    rows = list(csv.DictReader(line for line in lines[first:] if line.startswith('"')))
    missing = [name for name in ("Kernel Name", "Device", *_COLUMNS) if rows and name not in rows[0]]
    if not rows or missing:
        raise MachineError(f"ncu's CSV has no column {missing[0] if missing else _TIME}: another version of it?")
    units, launches = rows[0], rows[1:]
    for name in _COLUMNS:
        known = [*_UNITS] if name == _TIME else ["%", "pct", ""]
        if units[name] not in known:
            raise MachineError(f"ncu's CSV has {name} in {units[name] or 'no unit'}, not in {known[0]}")
    return [
        Kernel(
            row["Kernel Name"],
            row["Device"],
            _number(row, _TIME) * _UNITS[units[_TIME]],
            # Averages over multiprocessors can come out a little above the peak.
            {field: min(_number(row, name) / 100, 1.0) for field, name in METRICS.items()},
        )
        for row in launches
    ]


def means(kernels: Sequence[Kernel]) -> dict[str, float]:
    """Fields of a record: the mean of all launches and GPUs, each by its time."""
    whole = sum(each.nanoseconds for each in kernels)
    return {field: sum(each.nanoseconds * each.shares[field] for each in kernels) / whole for field in METRICS}


def _number(row: dict[str, str], name: str) -> float:
    try:
        return float(row[name].replace(",", ""))  # thousands
    except ValueError:
        raise MachineError(f"ncu has {row[name] or 'nothing'} as {name} of kernel {row['Kernel Name']}") from None


def _own(said: str) -> str:
    """The last line that our own program wrote about its end."""
    return next((line.removeprefix("mgg: ") for line in reversed(said.splitlines()) if line.startswith("mgg: ")), "")


def _last(said: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("==ERROR==")]
    return (errors[:1] or lines[-1:] or ["it says nothing"])[0]
