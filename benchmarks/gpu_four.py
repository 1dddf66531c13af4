"""All benchmarks on the GPUs of one host, within a time limit: bash benchmarks/gpu_four.sh OUT.

graphs    generate, partition and lay out the graphs, side by side, once for all parts
tests     tests/gpu with as many PEs as GPUs, while the graphs are made
halo      products of every technique on all GPUs, as one workgroup and as two; halo on 1, 2, 4, ... GPUs
auto      how far auto's pick is from the fastest, and the cost model's error, of the same products
train     epochs of every model on one GPU and on all; GCN and GAT beside PyTorch Geometric on one
network   products of two workgroups with an emulated network, which stands in for two hosts
papers    a papers-like graph of --papers-scale through every stage: GCN, stopped after half of its epochs and resumed

mgg aggregate compares each product with float64 before it times it. A training's first loss must be that of one PE
(relative tolerance 1e-4). Epochs include the evaluation, so a training step takes less. OUT gets products.jsonl,
network.jsonl and training.jsonl, whose lines hold machine, versions and commit, tests.json, the log, and summary.json
with commands, their seconds and peak memory, failures, runs left out, and the comparisons. Exit code 1: something
failed. With ``--only papers --papers-scale 1`` it takes some 120 GB of disk (--work).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
from common import ALONE, OUT, SCALE, SETTINGS

from mgg import hashed
from mgg.backend.machine.facts import these_versions, this_machine
from mgg.errors import InputError
from mgg.records import read_run

ROOT = Path(__file__).resolve().parents[1]
MGG = [sys.executable, "-m", "mgg.cli"]
#: Graph: options of mgg generate, its scale as a multiple of --scale. The last is directed.
GRAPHS: dict[str, tuple[list[str], float]] = {
    "reddit-like": (["--features", "602", "--classes", "41"], 1),
    "products-like": (["--features", "100", "--classes", "47"], 1),
    "orkut-like": (["--features", "128", "--classes", "32"], 1),
    "web-like": ([], 1),
    "citation-like": ([], 20),
}
TRAINED = ("reddit-like", "products-like", "orkut-like")
TECHNIQUES = "auto,halo,cola,mgg,broadcast_pipelined,features"
NETWORK = "20GB/s,5us"
#: Milliseconds of CoLa's released kernel on four H200s, by graph and D (docs/results/gpu.md).
COLA = {
    "products-like": {16: 1.52, 64: 1.28, 128: 2.50},
    "reddit-like": {16: 1.26, 64: 1.07, 128: 2.13},
    "orkut-like": {16: 3.08, 64: 2.93, 128: 5.89},
    "web-like": {16: 1.21, 64: 0.99, 128: 1.74},
}
TESTS = ("halo", "techniques", "world", "train", "epoch", "faults", "sanitizer")
#: Part: its share of the time; time that a part leaves goes to later ones.
SHARES = {"graphs": 30, "tests": 25, "halo": 30, "auto": 10, "train": 25, "network": 8, "papers": 20}
LOSS_TOLERANCE = 1e-4
WARMUP, EPOCHS, OF_PAPERS = 5, 25, 50


def launcher(ranks: int) -> list[str]:
    """The mpiexec beside this Python, else the one on $PATH, for ``ranks`` ranks that are not bound to cores."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        raise SystemExit("error: no mpiexec beside this Python or on $PATH: pip install mpich")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    flags = []
    if "Open MPI" in version or "OpenRTE" in version:
        flags = ["--bind-to", "none", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    return [found, *flags, "-n", str(ranks)]


class Host:
    """Runs commands within the time limit, and keeps their outcomes."""

    def __init__(self, out: Path, work: Path, pes: int, backend: str, scale: float, seconds: float) -> None:
        self.out, self.work, self.pes, self.backend, self.scale = out, work, pes, backend, scale
        self.started, self.seconds = time.monotonic(), seconds
        self.jobs: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self.limit = seconds
        self._lock = threading.Lock()
        self.log = (out / "log.txt").open("w", encoding="utf-8", buffering=1)

    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def fail(self, what: str) -> None:
        with self._lock:
            self.failures.append(what)
        click.echo(f"FAILED {what}")

    def run(
        self, what: str, command: list[str], limit: float, gpus: Iterable[int] | None = None, stop: int = 0
    ) -> bool:
        """Whether the command ended with code 0 by second ``limit``.

        Args:
            gpus: the visible ones, as indices into those that this process sees.
            stop: for a training, the epoch after which it gets a signal to stop, which ends it with code 5.
        """
        left = limit - self.now()
        if left <= 0:
            self.fail(f"{what}: not run, no time left")
            return False
        variables = dict(os.environ)
        if gpus is not None and self.backend == "nvshmem":
            visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(self.pes)))
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(visible.split(",")[gpu] for gpu in gpus)
        start, output = self.now(), list[str]()
        job = subprocess.Popen(
            command, cwd=ROOT, env=variables, text=True, errors="replace", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

        def listen(signalled: bool = False) -> None:
            for line in job.stdout or ():
                output.append(line)
                epoch = re.search(r"epoch (\d+)/", line)
                if stop and not signalled and epoch and int(epoch[1]) >= stop:
                    os.kill(job.pid, signal.SIGUSR1)
                    signalled = True

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        listener.join(left)
        late = listener.is_alive()
        for number in (signal.SIGTERM, signal.SIGKILL):  # the command and all that it started
            if listener.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(job.pid, number)
                listener.join(5)
        _, status, used = os.wait4(job.pid, 0)
        job.returncode = code = 124 if late else os.waitstatus_to_exitcode(status)
        code = 0 if stop and code == 5 else code
        with self._lock:
            peak = round(used.ru_maxrss * 1024 / 1e9, 3)
            line = {"what": what, "command": command, "code": code, "seconds": round(self.now() - start, 2)}
            self.jobs.append(line | {"peak_gb": peak})
            self.log.write(f"=== {what}: code {code}, second {start:.0f} to {self.now():.0f}\n{''.join(output)}\n")
        if code:
            outcome = "ended when its time was over" if code == 124 else f"code {code}"
            self.fail(f"{what}: {outcome}: {' | '.join(''.join(output).strip().splitlines()[-3:])[-400:]}")
        else:
            click.echo(f"{self.now():4.0f} s {what}")
        return code == 0

    # Parts.

    def make(self, name: str, limit: float) -> bool:
        """Make the graph and its layouts; returns whether all are there."""
        options, times = GRAPHS[name]
        graph = self.work / name
        commands = [("generate", [name, "--scale", f"{times * self.scale:g}", *options, "--out", str(graph)])]
        for pes, groups in self.cuts():
            part, layout = self.layout(name, pes, groups, "partition"), self.layout(name, pes, groups)
            size = ["--workgroup", str(pes // groups)]
            commands += [
                ("partition", [str(graph), "--pes", str(pes), *size, "--out", str(part)]),
                ("layout", [str(graph), str(part), "--memory", "16GiB", "--out", str(layout)]),
            ]
        return all(
            Path(arguments[-1]).exists() or self.run(f"{stage} {name}", [*MGG, stage, *arguments], limit)
            for stage, arguments in commands
        )

    def cuts(self) -> list[tuple[int, int]]:
        """(PEs, workgroups) of the layouts, those of all GPUs first."""
        fewer = [1 << power for power in range(self.pes.bit_length()) if 1 << power < self.pes]
        return [(self.pes, 1), *([(self.pes, 2)] if self.pes % 2 == 0 else []), *((pes, 1) for pes in fewer)]

    def layout(self, name: str, pes: int, groups: int, stage: str = "layout") -> Path:
        return self.work / f"{name}-{stage}-{pes}-{groups}"

    def products(
        self, name: str, pes: int, groups: int, techniques: str, more: list[str], limit: float, **at: Any
    ) -> None:
        """Check and time products; records go to work/FILE-NAME-PES-GROUPS.jsonl."""
        file = at.pop("file", "products")
        records, layout = self.work / f"{file}-{name}-{pes}-{groups}.jsonl", self.layout(name, pes, groups)
        if records.exists():
            return
        command = [*launcher(pes), *MGG, "aggregate", str(layout), "--technique", techniques, "--dim", "16,64,128"]
        command += ["--backend", self.backend, "--launches", "1", "--warmup", "5", "--iterations", "20", *more]
        self.run(f"{file} {name} {pes} PEs, {groups} workgroups", [*command, "--out", str(records)], limit, **at)

    def lanes(self, pes: int, names: Iterable[str], action: Callable[[str, range], None]) -> None:
        """Call ``action(name, gpus)`` for every name, side by side on disjoint sets of ``pes`` GPUs."""
        free = [range(first, first + pes) for first in range(0, self.pes - pes + 1, pes)]
        with ThreadPoolExecutor(len(free)) as pool:

            def one(name: str) -> None:
                with self._lock:
                    gpus = free.pop()
                try:
                    action(name, gpus)
                finally:
                    with self._lock:
                        free.append(gpus)

            for each in [pool.submit(one, name) for name in names]:
                each.result()

    def part_halo(self, names: list[str], limit: float) -> None:
        for pes, groups in self.cuts():
            whole = pes == self.pes
            techniques = TECHNIQUES if whole else "halo" if pes > 1 else "local"
            more = ["--dtype", "fp32,bf16", *(["--breakdown"] if whole else [])]
            self.lanes(
                pes,
                names,
                lambda name, gpus, pes=pes, groups=groups, techniques=techniques, more=more: self.products(
                    name, pes, groups, techniques, more, limit, gpus=gpus
                ),
            )

    def part_auto(self, names: list[str], limit: float) -> None:
        for name in names:
            self.products(name, self.pes, 1, TECHNIQUES, ["--dtype", "fp32,bf16", "--breakdown"], limit)

    def part_network(self, names: list[str], limit: float) -> None:
        if self.pes % 2:
            self.fail(f"network: not run, {self.pes} PEs are not two workgroups")
            return
        variants = ["--variant", "halo", "--variant", "halo:wire=bf16,int8", "--emulate-network", NETWORK]
        for name in names:
            self.products(name, self.pes, 2, "halo,cola,broadcast_pipelined", variants, limit, file="network")

    def part_train(self, names: list[str], limit: float) -> None:
        def one(name: str, gpus: range) -> None:
            for model in SETTINGS | ALONE:
                self.training(name, model, 1, "mgg", limit, gpus)

        trained = [name for name in TRAINED if name in names]
        self.lanes(1, trained, one)
        for name in trained:
            for model in SETTINGS | ALONE:
                if self.pes > 1:
                    self.training(name, model, self.pes, "mgg", limit, range(self.pes))
        # PyTorch Geometric needs more memory: orkut-like does not fit a GPU.
        small = [f"{name} {model}" for name in trained if name != "orkut-like" for model in ("gat", "gcn")]
        self.lanes(1, small, lambda each, gpus: self.training(*each.split(), 1, "pyg", limit, gpus))

    def training(self, name: str, model: str, pes: int, side: str, limit: float, gpus: range) -> None:
        """Train for EPOCHS epochs."""
        run = self.work / f"run-{name}-{model}-{pes}-{side}"
        settings = [f"--set={key}={value}" for key, value in (SETTINGS | ALONE)[model].items()]
        command = [*launcher(pes), *MGG, "train", str(self.layout(name, pes, 1)), "--model", model, *settings]
        command += ["--epochs", str(EPOCHS), "--side", side]
        if side == "mgg":  # other sides have no techniques
            command += ["--technique", "local" if pes == 1 else "halo"]
        if not run.exists():
            self.run(
                f"train {name} {model} {pes} PEs, {side}",
                [*command, "--backend", self.backend, "--out", str(run)], limit, gpus,
            )  # fmt: skip

    def part_tests(self, limit: float) -> None:
        """Run the GPU tests with as many PEs as GPUs; with eight GPUs also those of four and two PEs, side by side."""
        sets = [[(self.pes, range(self.pes))]]
        if self.pes == 8:
            sets.append([(4, range(4)), (2, range(4, 6))])
        found: dict[str, Any] = {}
        files = [f"tests/gpu/test_gpu_{name}.py" for name in TESTS]

        def lane(pes: int, gpus: range) -> None:
            report = self.work / f"tests-{pes}.xml"
            command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "--pes", str(pes), f"--junitxml={report}"]
            self.run(f"tests of {pes} PEs", [*command, *files], limit, gpus)
            if report.exists():
                found[str(pes)] = results = outcomes(report)
                if self.backend == "nvshmem" and not results["passed"]:
                    self.fail(f"tests of {pes} PEs: none ran")

        for lanes in sets:
            with ThreadPoolExecutor(len(lanes)) as pool:
                for each in [pool.submit(lane, *at) for at in lanes]:
                    each.result()
        (self.out / "tests.json").write_text(json.dumps(self.about() | {"pes": found}, indent=1), encoding="utf-8")

    def part_papers(self, scale: float, limit: float) -> None:
        graph, part, layout, run = (self.work / f"papers-{name}" for name in ("graph", "partition", "layout", "run"))
        memory = ["--memory", "64GiB"]
        for folder, command in (
            (graph, ["generate", "papers-like", "--scale", str(scale), *memory]),
            (part, ["partition", str(graph), "--pes", str(self.pes)]),
            (layout, ["layout", str(graph), str(part), *memory]),
        ):
            done = folder.exists() or layout.exists()
            if not (done or self.run(folder.name, [*MGG, *command, "--out", str(folder)], limit)):
                return
        shutil.rmtree(graph, ignore_errors=True)
        train = [*launcher(self.pes), *MGG, "train", str(layout), "--model", "gcn", "--set", "hidden=128", "--resume"]
        train += ["--technique", "halo", "--backend", self.backend, "--epochs", str(OF_PAPERS), "--out", str(run)]
        started = run.exists() or run.with_name(f"{run.name}.checkpoint").exists()
        if started or self.run("papers-train, stopped", train, limit, stop=OF_PAPERS // 2):
            self.run("papers-train, resumed", train, limit)

    # Results.

    def papers(self) -> dict[str, Any]:
        """The record of the training on papers-like, with its first and last loss."""
        run = self.work / "papers-run"
        if not run.exists():
            return {}
        record, epochs = read_run(run)
        return record.model_dump(mode="json") | {"losses": [epochs[0].loss, epochs[-1].loss]}

    def about(self) -> dict[str, Any]:
        """Machine, versions, commit."""

        def output_of(*command: str) -> str:
            try:
                return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
            except FileNotFoundError:
                return ""

        gpus = output_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
        return {
            "commit": output_of("git", "rev-parse", "HEAD") or os.environ.get("MGG_COMMIT"), "command": sys.argv,
            "gpus": gpus.splitlines(), "machine": this_machine().model_dump(), "versions": these_versions(),
            "backend": self.backend, "scale": self.scale,
        }  # fmt: skip

    def gathered(self, file: str) -> list[dict[str, Any]]:
        """Records of all products of a kind, with the number of workgroups; they are also written into OUT."""
        records: list[dict[str, Any]] = []
        groups: list[int] = []
        for each in sorted(self.work.glob(f"{file}-*.jsonl")):
            try:
                here = [
                    values for _, values in hashed.read_lines(each.read_text(encoding="utf-8"), each, "run it again")
                ]
            except InputError as error:
                self.fail(str(error))
                continue
            records += here
            groups += [int(each.stem.rpartition("-")[2])] * len(here)  # not every technique records it
        if records:
            (self.out / f"{file}.jsonl").write_text(hashed.lines(records), encoding="utf-8")
        for each in records:
            if each["error"] is None or not each["error"] <= each["tolerance"]:
                self.fail(f"{label(each)}: error {each['error']} of {each['tolerance']}")
        return [each | {"groups": number} for each, number in zip(records, groups, strict=True)]

    def trainings(self) -> list[dict[str, Any]]:
        """One line per training; first losses are compared with those of one PE."""
        found: list[dict[str, Any]] = []
        for name in TRAINED:
            for model in SETTINGS | ALONE:
                runs = {}
                for pes, side in ((1, "mgg"), (self.pes, "mgg"), (1, "pyg")):
                    run = self.work / f"run-{name}-{model}-{pes}-{side}"
                    if run.exists():
                        record, epochs = read_run(run)
                        runs[pes, side] = {"graph": name, "model": model, "pes": pes, "side": side} | {
                            "epoch_ms": 1e3 * statistics.median(each.seconds for each in epochs[WARMUP:]),
                            "first_loss": epochs[0].loss, "record": record.model_dump(mode="json"),
                        }  # fmt: skip
                one = runs.get((1, "mgg"))
                for (pes, side), line in runs.items():
                    if one is None:
                        self.fail(f"train {name} {model} {pes} PEs, {side}: no loss of one PE to compare with")
                    else:
                        line["loss_difference"] = off = abs(line["first_loss"] / one["first_loss"] - 1)
                        if not off <= LOSS_TOLERANCE:
                            self.fail(f"train {name} {model} {pes} PEs, {side}: first loss differs by {off:.2g}")
                    found.append(line)
        if found:
            (self.out / "training.jsonl").write_text("".join(json.dumps(each) + "\n" for each in found))
        return found

    def end(self) -> None:
        """Write summary.json."""
        records, runs = self.gathered("products"), self.trainings()
        self.gathered("network")
        summary = self.about() | {
            "seconds": round(self.now(), 1), "failures": self.failures, "jobs": self.jobs,
            "products": compared(records, self.pes), "papers": self.papers(),
            "training": [{key: value for key, value in run.items() if key != "record"} for run in runs],
        }  # fmt: skip
        (self.out / "summary.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
        click.echo(json.dumps(summary["products"], indent=1))
        for run in summary["training"]:
            click.echo(
                f"{run['graph']} {run['model']} {run['pes']} PEs, {run['side']}: {run['epoch_ms']:.2f} ms an epoch"
            )


def label(record: dict[str, Any]) -> str:
    return f"{record['dataset']} {record['technique']} {record['dtype']} D={record['dim']} P={record['pes']}"


def outcomes(report: Path) -> dict[str, Any]:
    """Numbers of passed and skipped tests, and the names of failed ones, in a JUnit file."""
    text = report.read_text(encoding="utf-8")
    ran, skipped = len(re.findall("<testcase ", text)), len(re.findall("<skipped ", text))
    found = re.findall(r'<testcase classname="([^"]*)" name="([^"]*)"[^>]*><(?:failure|error) ', text)
    failed = [f"{where}::{name}" for where, name in found]
    return {"passed": ran - skipped - len(failed), "skipped": skipped, "failed": failed}


def compared(records: list[dict[str, Any]], pes: int) -> dict[str, Any]:
    """Comparisons with CoLa's released kernel (four PEs), the larger part, fewer PEs, the fastest, predictions."""
    whole = [each for each in records if each["pes"] == pes and each["groups"] == 1]
    halo = [each for each in whole if each["technique"] == "halo"]
    found: dict[str, Any] = {}
    for dtype in ("fp32", "bf16"):
        ratios = [
            COLA[each["dataset"]][each["dim"]] / (1e3 * each["median"])
            for each in halo
            if each["dtype"] == dtype and each["dataset"] in COLA and pes == 4
        ]
        mean = statistics.geometric_mean(ratios) if ratios else None
        found[f"halo_{dtype}_over_released_cola"] = {"mean": mean, "least": min(ratios, default=None)}
    found["halo_over_larger_part"] = {
        label(each): each["median"] / max(each["transfer"], each["compute"])
        for each in halo
        if each["transfer"] and each["compute"]
    }
    times: dict[str, dict[int, float]] = defaultdict(dict)
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in records:
        case = f"{each['dataset']} {each['dtype']} D={each['dim']}"
        if each["groups"] == 1 and each["technique"] in ("halo", "local"):
            times[case][each["pes"]] = 1e3 * each["median"]
        if each["groups"] == 1 and each["pes"] == pes:
            groups[case].append(each)
    found["halo_ms_by_pes"] = {case: dict(sorted(by.items())) for case, by in sorted(times.items())}
    found["auto_over_fastest"] = {
        case: next((each["median"] for each in group if each["chosen"]), math.nan)
        / min(each["median"] for each in group)
        for case, group in groups.items()
        if len(group) > 1
    }
    off = [abs(each["predicted"] / each["median"] - 1) for each in whole if each["predicted"]]
    found["cost_model_error"] = {"mean": statistics.fmean(off), "largest": max(off)} if off else None
    return found


def visible_gpus() -> int:
    """GPUs that this process may use."""
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        return len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
    if not shutil.which("nvidia-smi"):
        return 0
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout.count("GPU ")


@click.command()
@OUT
@click.option("--only", default="halo,auto,train,tests,papers,network", show_default=True, help="parts, by commas")
@click.option("--graphs", default=",".join(GRAPHS), show_default=True, help="separated by commas")
@click.option("--seconds", default=570.0, show_default=True, help="time of the whole")
@click.option("--pes", type=click.IntRange(1), help="default: all GPUs; two with CPU ranks")
@click.option("--backend", type=click.Choice(["nvshmem", "mpi"]), default="nvshmem", show_default=True)
@SCALE
@click.option("--papers-scale", default=0.05, show_default=True, help="the same of papers-like, times --scale")
@click.option("--work", type=click.Path(path_type=Path), help="keep graphs, layouts and runs here, and use those there")
def main(
    out: Path, only: str, graphs: str, seconds: float, pes: int | None, backend: str, scale: float, papers_scale: float,
    work: Path | None,
) -> None:  # fmt: skip
    """Make all runs that fit the time; continue after failures."""
    parts, names = only.split(","), graphs.split(",")
    unknown = (set(parts) - (set(SHARES) - {"graphs"})) | (set(names) - set(GRAPHS))
    if unknown:
        raise click.UsageError(f"no such part or graph: {', '.join(sorted(unknown))}")
    pes = pes or (visible_gpus() if backend == "nvshmem" else 2)
    if not pes:
        raise click.UsageError("no GPU here: --backend mpi tries it on CPU ranks")
    out.mkdir(parents=True, exist_ok=True)
    kept = work or Path(tempfile.mkdtemp(prefix="mgg-four-"))
    kept.mkdir(parents=True, exist_ok=True)
    host = Host(out.resolve(), kept.resolve(), pes, backend, scale, seconds)
    try:
        perform(host, parts, names, papers_scale * scale)
    finally:
        if work is None:
            shutil.rmtree(kept, ignore_errors=True)
    click.echo(f"{len(host.failures)} failures, {host.now():.0f} s")
    sys.exit(1 if host.failures else 0)


def perform(host: Host, parts: list[str], names: list[str], papers_scale: float) -> None:
    """Run all parts, each within its share of the remaining time; the tests run while the graphs are made."""
    waiting = [part for part in SHARES if part in parts]
    if set(parts) & {"halo", "auto", "train", "network"}:
        waiting.insert(0, "graphs")
    end = host.seconds - min(10, host.seconds / 20)  # the rest is for the summary

    def limit_of(*first: str) -> float:
        share = sum(SHARES[part] for part in first) / sum(SHARES[part] for part in waiting)
        waiting[:] = [part for part in waiting if part not in first]
        return host.now() + share * (end - host.now())

    def attempt(part: str, *given: Any) -> None:
        try:
            getattr(host, f"part_{part}")(*given)
        except Exception as error:  # the other parts go on
            host.fail(f"{part}: {type(error).__name__}: {error}")

    first = [part for part in ("graphs", "tests") if part in waiting]
    limit = limit_of(*first) if first else 0.0
    with ThreadPoolExecutor() as pool:
        made = {name: pool.submit(host.make, name, limit) for name in names if "graphs" in first}
        if "tests" in first:
            attempt("tests", limit)
        ready = [name for name, each in made.items() if each.result()]
    for part in list(waiting):
        limit = limit_of(part)
        attempt(part, papers_scale if part == "papers" else ready, limit)
    host.end()


if __name__ == "__main__":
    main()
