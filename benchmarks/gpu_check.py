"""Check the backend nvshmem on this host's GPUs and time its techniques: ``python benchmarks/gpu_check.py OUT``.

Everything is limited in time, so that the whole takes less than six minutes; what fails is reported and the rest goes
on. Products are compared with float64, bytes with the simulated backend's counters. The table goes to standard output
and to OUT/gpu_check.md; what ranks said on standard error goes to OUT/*.log.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)

import numpy as np  # noqa: E402
from support.gpus import GPUS  # noqa: E402
from support.graphs import awkward_graphs, make_layout  # noqa: E402
from support.products import simulated_bytes, worst, wrong_bytes  # noqa: E402
from support.ranks import mpiexec  # noqa: E402

BUDGET = 330.0  # seconds
DATASET, SCALE, DIMS = "products-like", 0.2, "16,64,128"
TIMED = "broadcast,cola,halo"
STARTED = time.monotonic()


class Check:
    """Rows of the table, and the folder of all output."""

    def __init__(self, out: Path):
        self.out = out
        self.rows: list[tuple[str, str, str]] = []

    def add(self, what: str, result: str, started: float) -> None:
        row = (what, result, f"{time.monotonic() - started:.1f}")
        self.rows.append(row)
        print(" | ".join(row), flush=True)

    def ranks(self, name: str, pes: int, arguments: list[str], limit: float = 90) -> subprocess.CompletedProcess | None:
        """Run ranks; None, and a row, where they fail or take too long."""
        started, left = time.monotonic(), BUDGET - (time.monotonic() - STARTED)
        if left < 5:
            self.add(name, "left out: no time", started)
            return None
        try:
            done = mpiexec(pes, arguments, timeout=min(limit, left))
        except subprocess.TimeoutExpired as error:
            (self.out / f"{name}.log").write_bytes((error.stdout or b"") + (error.stderr or b""))
            self.add(name, f"FAILED: more than {error.timeout:.0f} s", started)
            return None
        (self.out / f"{name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode:
            lines = (done.stdout + done.stderr).strip().splitlines()
            said = next(
                (line for line in lines if "Error" in line or line.startswith("mgg:")), lines[-1] if lines else ""
            )
            self.add(name, f"FAILED: exit code {done.returncode}: {said}", started)
            return None
        return done

    def write(self) -> None:
        table = ["| check | result | seconds |", "| --- | --- | --- |"]
        table += [f"| {' | '.join(row)} |" for row in self.rows]
        text = "\n".join(table) + "\n"
        (self.out / "gpu_check.md").write_text(text, encoding="utf-8")
        print(f"\n{text}\n{time.monotonic() - STARTED:.0f} s in all", flush=True)


def start_layouts(out: Path, counts: list[int]) -> subprocess.Popen:
    """Make the graph to be timed and its layouts, beside the checks."""
    mgg = f"{sys.executable} -m mgg.cli"
    steps = [f"{mgg} generate {DATASET} --scale {SCALE} --out {out / 'graph'}"]
    for pes in counts:
        steps.append(f"{mgg} partition {out / 'graph'} --pes {pes} --out {out / f'partition-{pes}'}")
        steps.append(f"{mgg} layout {out / 'graph'} {out / f'partition-{pes}'} --out {out / f'layout-{pes}'}")
    with (out / "layouts.log").open("w") as log:
        return subprocess.Popen(["bash", "-ec", "\n".join(steps)], stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def check_host(check: Check) -> None:
    import cupy

    arch = f"sm_{cupy.cuda.Device(0).compute_capability}"
    for name, arguments in (("compile", ["mgg.kernel.compile", "--arch", arch]), ("doctor", ["mgg.cli", "doctor"])):
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=200, check=False
        )
        (check.out / f"{name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        check.add(name, f"exit code {done.returncode}", started)
        print(done.stdout if name == "doctor" else (done.stdout + done.stderr)[-600:])


def check_products(check: Check, graphs: dict, pes: int) -> None:
    started, out = time.monotonic(), check.out / f"products-{pes}"
    out.mkdir(parents=True)
    folders = [make_layout(out / str(number), csr, pes) for number, csr in enumerate(graphs.values())]
    program = str(ROOT / "tests" / "support" / "spmm_program.py")
    name = f"products, {pes} PE"
    if check.ranks(name, pes, [program, "nvshmem", str(out), *map(str, folders)], 120) is None:
        return
    errors, wrong = {}, []
    for number, (graph, csr) in enumerate(graphs.items()):
        parts = [dict(np.load(out / f"{number}-{pe}.npz")) for pe in range(pes)]
        for technique in sorted({key.split(" ")[0] for key in parts[0]}):
            mine = [{key: part[key] for key in part if key.startswith(f"{technique} ")} for part in parts]
            errors[technique] = max(errors.get(technique, (0.0,)), (*worst(csr, mine), graph))
        found = [json.loads((out / f"{number}-{pe}.json").read_text()) for pe in range(pes)]
        wrong += [f"{graph}: {key}" for key in wrong_bytes(simulated_bytes(folders[number], pes), found)]
    for technique, (error, _, direction, dim, graph) in errors.items():
        verdict = "ok" if error <= 1e-6 else "FAILED"
        check.add(f"{name}, {technique}", f"{verdict}: {error:.2g} ({direction}, D={dim}, {graph})", started)
    check.add(f"bytes, {pes} PE", f"FAILED: {len(wrong)}, first {wrong[0]}" if wrong else "ok", started)


def check_fault(check: Check, name: str, pes: int, program: str, said: str, code: int) -> None:
    """Ranks that must end with one line and an exit code."""
    started = time.monotonic()
    text = (
        "import sys, time\nimport numpy as np\nfrom mgg.backend import nvshmem\nfrom mgg.errors import MggError\n"
        f"def program(world):\n    {program}\n"
        f"try:\n    nvshmem.run(lambda: {pes}, program, timeout=3)\n"
        "except MggError as error:\n    print(error, flush=True)\n"
        "    error.everywhere or nvshmem.abort(error.exit_code)\n    sys.exit(error.exit_code)\n"
    )
    try:
        done = mpiexec(pes, ["-c", text], timeout=60)
    except subprocess.TimeoutExpired:
        check.add(name, "FAILED: hangs", started)
        return
    output = done.stdout + done.stderr
    (check.out / f"{name}.log").write_text(output, encoding="utf-8")
    verdict = "ok" if said in output and done.returncode == code else f"FAILED: see {name}.log"
    check.add(name, f"{verdict}, exit code {done.returncode}", started)


def time_products(check: Check, pes: int) -> None:
    records = check.out / f"records-{pes}.jsonl"
    arguments = ["aggregate", str(check.out / f"layout-{pes}"), "--technique", TIMED, "--dim", DIMS]
    arguments += ["--backend", "nvshmem", "--out", str(records)]
    started = time.monotonic()
    if check.ranks(f"times, {pes} PE", pes, ["-m", "mgg.cli", *arguments], 100) is None:
        return
    for record in map(json.loads, records.read_text().splitlines()):
        result = f"{record['median'] * 1e3:.3f} ms, error {record['error']:.2g}, {record['bytes_wire']} bytes"
        check.add(f"{DATASET} x {SCALE}, {pes} PE, {record['technique']}, D={record['dim']}", result, started)


def main(out: Path) -> None:
    if not GPUS:
        sys.exit("no GPU here")
    out.mkdir(parents=True, exist_ok=True)
    counts = [pes for pes in (1, 2, 4) if pes <= GPUS]
    check = Check(out)
    layouts = start_layouts(out, counts)
    check_host(check)
    world = str(ROOT / "tests" / "support" / "world_program.py")
    for pes in counts:
        started = time.monotonic()
        done = check.ranks(f"world, {pes} PE", pes, [world, "nvshmem"])
        if done is not None:
            check.add(f"world, {pes} PE", "ok" if done.stdout.count("ok") == pes else "FAILED", started)
    graphs = awkward_graphs()
    for pes in counts:
        check_products(check, graphs, pes)
    started = time.monotonic()
    try:
        made = layouts.wait(max(1.0, BUDGET - (time.monotonic() - STARTED)))
    except subprocess.TimeoutExpired:
        layouts.kill()
        made = -1
    check.add("layouts", "ok" if made == 0 else "FAILED: see layouts.log", started)
    for pes in counts if made == 0 else []:
        time_products(check, pes)
    check_fault(check, "more ranks than GPUs", GPUS + 1, "pass", f"{GPUS + 1} PEs and {GPUS} GPUs", 3)
    if GPUS > 1:
        away = "time.sleep(20 * (world.rank == 1)); world.barrier(); world.download(world.upload(np.ones(1)))"
        check_fault(check, "a PE stays away", 2, away, "PE 1 did not reach a barrier within 3 s", 6)
        blocked = "world.rank or world.wait_signal(1); world.stream.synchronize(); time.sleep(60)"
        check_fault(check, "a blocked host", 2, blocked, "waited 3 s for a signal from PE 1", 6)
    check.write()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
