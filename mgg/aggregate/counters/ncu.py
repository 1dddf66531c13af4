"""Nsight Compute's command line (ncu): its command, and the parser of its CSV page."""

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

#: Where CUDA toolkits install it, for shells without it on PATH.
_USUAL = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/ncu")
_TIME = "gpu__time_duration.sum"
#: Record field -> metric, in percent. One pass collects all of them. A repeated kernel would find the pages of unified
#: memory where the pass before left them, so sm__throughput, which needs several passes, is left out. For SM
#: utilization, NVIDIA's guide for migrating from nvprof (sm_efficiency) names the last metric.
METRICS = {
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "occupancy_limit": "sm__maximum_warps_per_active_cycle_pct",
    "sm_utilization": "smsp__cycles_active.avg.pct_of_peak_sustained_elapsed",
}
_COLUMNS = (_TIME, *METRICS.values())
#: Nanoseconds per unit, for the units that its versions print.
_UNITS = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
_NO_PERMISSION = "ERR_NVGPUCTRPERM"


class ProfiledKernel(NamedTuple):
    """A profiled launch.

    Attributes:
        device: its GPU, as ncu names it.
        nanoseconds: run time.
        shares: values by record field, 0 to 1.
    """

    name: str
    device: str
    nanoseconds: float
    shares: dict[str, float]


def find() -> str:
    """Find ncu on PATH, in ``$CUDA_HOME``, or where CUDA toolkits install it; raise MachineError if it is missing."""
    home = os.environ.get("CUDA_HOME")
    for place in ("ncu", *([f"{home}/bin/ncu"] if home else []), *_USUAL):
        if found := shutil.which(place):
            return found
    raise MachineError(
        "Nsight Compute (ncu) measures occupancy and is not installed: install nsight-compute of the CUDA toolkit,"
        " put ncu on PATH, or leave out --profile (aggregate.profile)"
    )


def version(ncu: str) -> str:
    """Return ncu's version, for example 2025.3.1.0; raise MachineError if it does not run."""
    try:
        done = subprocess.run([ncu, "--version"], capture_output=True, text=True, timeout=60, check=False)  # nosec B603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"{ncu} does not run: {error}") from None
    matched = re.search(r"^Version (\S+)", done.stdout, re.MULTILINE)
    if done.returncode or matched is None:
        raise MachineError(f"{ncu} --version ends with exit code {done.returncode}: {_last(done.stdout + done.stderr)}")
    return matched[1]


def command(ncu: str, log: Path, program: Sequence[str]) -> list[str]:
    """Return the command that profiles ``program`` between its calls that start and stop a profiler; CSV to ``log``.

    Clocks and caches are not controlled, as in the timings.
    """
    options = ["--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log), "--profile-from-start", "off"]
    options += ["--clock-control", "none", "--cache-control", "none", "--metrics", ",".join(_COLUMNS)]
    return [ncu, *options, *program]


def profile(ncu: str, program: Sequence[str], timeout: float) -> list[ProfiledKernel]:
    """Run ``program`` under ncu and return its kernels.

    Args:
        ncu: path of Nsight Compute.
        program: command and arguments.
        timeout: seconds after which the program and all its child processes are killed.

    Raises:
        MachineError: Nsight Compute may not read the counters (``PermissionMissing``), or finds no kernels.
        InputError, MachineError: the program itself failed this way, with the same message.
    """
    with tempfile.TemporaryDirectory(prefix="mgg-ncu-") as folder:
        log = Path(folder) / "ncu.csv"
        environment = alone() | {"LC_ALL": "C"}  # a decimal point in numbers
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


class PermissionMissing(MachineError):  # noqa: N818 - reported like any MachineError
    """Nsight Compute may not read the hardware counters, so profiling any other product would fail, too."""


def check_permission(text: str) -> None:
    """Raise PermissionMissing if ncu's output says that it may not read the counters."""
    if _NO_PERMISSION in text:
        raise PermissionMissing(
            f"Nsight Compute may not read the GPU's performance counters ({_NO_PERMISSION}): run as root, in a"
            " container with CAP_SYS_ADMIN, have the driver loaded with NVreg_RestrictProfilingToAdminUsers=0, or leave"
            " out --profile (aggregate.profile)"
        )


def parse(text: str) -> list[ProfiledKernel]:
    """Parse ncu's CSV of page ``raw``: a line of names, a line of units, then a line per launch, among other output.

    Raises:
        MachineError: a metric is missing, in another unit, or not a number; the ncu version differs.
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
        ProfiledKernel(
            row["Kernel Name"],
            row["Device"],
            _number(row, _TIME) * _UNITS[units[_TIME]],
            # Averages over multiprocessors can slightly exceed the peak.
            {field: min(_number(row, name) / 100, 1.0) for field, name in METRICS.items()},
        )
        for row in launches
    ]


def means(kernels: Sequence[ProfiledKernel]) -> dict[str, float]:
    """Return record fields: means over all launches and GPUs, weighted by time."""
    whole = sum(each.nanoseconds for each in kernels)
    return {field: sum(each.nanoseconds * each.shares[field] for each in kernels) / whole for field in METRICS}


def _number(row: dict[str, str], name: str) -> float:
    try:
        return float(row[name].replace(",", ""))  # thousands separators
    except ValueError:
        raise MachineError(f"ncu has {row[name] or 'nothing'} as {name} of kernel {row['Kernel Name']}") from None


def _own(said: str) -> str:
    """Return the last line that MGG itself wrote before it ended."""
    return next((line.removeprefix("mgg: ") for line in reversed(said.splitlines()) if line.startswith("mgg: ")), "")


def _last(said: str) -> str:
    """Return the first error line of ncu, else the last line that is not empty."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("==ERROR==")]
    return (errors[:1] or lines[-1:] or ["it says nothing"])[0]
