"""Page faults and occupancy on this machine: python benchmarks/gpu_counters.py [--scale 0.02] [--out FILE].

Checks first, each a line that says ``ok`` or why not: CUPTI counts the pages of unified memory that the host has
written and a kernel reads, all of their bytes and then none; Nsight Compute profiles a product. Then ``mgg aggregate
--faults --profile`` on reddit-like: on one PE, on two or more as threads (which share GPUs where there are too few),
and with several GPUs on ranks. FILE gets the records. Exit code 1 where a check failed.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import cupy as cp
import numpy as np

from mgg.aggregate.counters import ncu
from mgg.backend.machine.page_faults import Faults, begin
from mgg.errors import MggError
from mgg.record import AggregateRecord, add_lines, read_lines

BYTES = 64 * 2**20


def read_by_kernel(values: cp.ndarray) -> Faults:
    """What is counted while a kernel reads all of ``values``, long after the CUDA context was made."""
    cp.cuda.Device().synchronize()
    counter = begin()
    total = float(values.sum())
    cp.cuda.Device().synchronize()
    found = counter.stop()
    assert total == values.size, total
    return found


def counts_faults() -> bool:
    """Whether pages that the host wrote are counted once, and none when they are on the GPU."""
    memory = cp.cuda.malloc_managed(BYTES)
    values = cp.ndarray((BYTES // 4,), np.float32, memory)
    values.sum()  # the kernel is loaded
    cp.cuda.Device().synchronize()
    np.ctypeslib.as_array((ctypes.c_float * values.size).from_address(memory.ptr))[:] = 1
    try:
        first, again = read_by_kernel(values), read_by_kernel(values)
    except MggError as error:
        print(f"page faults: NOT COUNTED: {error}")
        return False
    right = first.faults > 0 and first.migrated == BYTES and again == (0, 0.0, 0)
    print(
        f"page faults: {'ok' if right else 'WRONG'}: {first.faults} groups in {first.seconds * 1e3:.3f} ms move"
        f" {first.migrated} of {BYTES} bytes; then {again.faults} move {again.migrated}"
    )
    return right


def has_ncu() -> bool:
    """Whether there is an ncu that runs."""
    try:
        program = ncu.find()
        print(f"ncu: ok: {program}, version {ncu.version(program)}")
    except MggError as error:
        print(f"ncu: MISSING: {error}")
        return False
    return True


def mgg(*arguments: object, ranks: int = 0, **variables: str) -> None:
    """Run a command of mgg, and print what it says."""
    launcher = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks)] if ranks else []
    command = [*launcher, sys.executable, "-m", "mgg.cli", *map(str, arguments)]
    print("$", " ".join(["mgg", *map(str, arguments)]), flush=True)
    subprocess.run(command, check=True, env=os.environ | variables)


def told(path: Path) -> list[bool]:
    """Print the records of a file; of each whether it has what was asked for."""
    known = []
    for record in read_lines(path, AggregateRecord):
        faults = record.technique != "mgg_uvm" or record.page_faults is not None
        known.append(faults and record.occupancy is not None)
        values = {
            name: getattr(record, name)
            for name in (
                "page_faults", "fault_seconds", "migrated_bytes", "faults_untold",
                "occupancy", "occupancy_limit", "sm_utilization", "profile_untold",
            )
            if getattr(record, name) is not None
        }  # fmt: skip
        where = f"{record.technique} D={record.dim} P={record.pes} {record.backend} {record.median * 1e3:.3f} ms"
        print(f"  {'ok' if known[-1] else 'INCOMPLETE'}: {where} {values}")
    return known


@click.command()
@click.option("--scale", default=0.02, show_default=True, help="of reddit-like")
@click.option("--out", type=click.Path(path_type=Path), help="file of the records")
def main(scale: float, out: Path | None) -> None:
    """Check, then measure."""
    gpus = cp.cuda.runtime.getDeviceCount()
    print(f"{gpus} x {cp.cuda.runtime.getDeviceProperties(0)['name'].decode()}")
    good = [counts_faults(), has_ncu()]
    several = max(2, gpus)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        mgg("generate", "reddit-like", "--scale", scale, "--out", here / "graph")
        for pes in (1, several):
            mgg("partition", here / "graph", "--pes", pes, "--out", here / f"split{pes}")
            mgg("layout", here / "graph", here / f"split{pes}", "--out", here / f"layout{pes}")
        shared = {"MGG_SHARED_GPUS": "1"} if gpus < several else {}
        runs = [("one", 1, "mgg,mgg_uvm,local", 0), ("threads", several, "mgg_uvm", 0)]
        runs += [("ranks", several, "mgg,mgg_uvm", several)] if gpus > 1 else []
        for name, pes, techniques, ranks in runs:
            path = here / f"{name}.jsonl"
            asked = ["--dim", "16,64", "--warmup", 1, "--iterations", 3, "--faults", "--profile", "--out", path]
            try:
                mgg("aggregate", here / f"layout{pes}", "--technique", techniques, *asked, ranks=ranks, **shared)
            except subprocess.CalledProcessError as error:
                print(f"{name}: FAILED with exit code {error.returncode}")
                good.append(False)
            if path.exists():
                good += told(path)
                if out is not None:
                    add_lines(out, read_lines(path, AggregateRecord), replace=False)
    print("all ok" if all(good) else "SOMETHING IS MISSING: see above")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
