"""Shared by the fault tests: a small workflow of all stages, its results without times, and a log of faults.

``FAULTS=full`` injects all faults, otherwise a selection. ``FAULTS_RECORD`` names a file of JSON lines: a line with
fault and case when a fault was injected, and a second one with the seconds of the recovering command and the repeated
work, once weights and tables equal those of an undisturbed run. ``python -m support.workflow.faults FILE`` prints a
table of it.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pandas as pd
from pyarrow import parquet

from mgg.records import PARTITION_FILE, AggregateRecord, read_lines, read_partition, read_run
from mgg.report.tables.columns import TABLES
from support.programs import fault_program
from support.workflow import Folder, made, pattern
from support.workflow.attempts import newest_checkpoint, work_lost
from support.workflow.left import half_written, processes, wait_until_quiet

FULL = os.environ.get("FAULTS") == "full"
#: Stages in order; rules and folders of results have the same names.
STAGES = ("retrieve", "graph", "partition", "layout", "aggregate", "train", "report")
CONFIG = {
    "graph": {"datasets": {"digits": {}}},
    "partition": {"pes": [2], "quality_pes": []},
    "aggregate": {"techniques": ["halo"], "dims": [4], "warmup": 1, "iterations": 2},
    "train": {
        "models": ["gcn"],
        "pes": [2],
        "epochs": 200,
        "checkpoint_every": 0.2,
        "stall_after": 5 if not FULL else 45,
    },
}
RUN = "train/digits/gcn-halo-p2-s0"
OUTPUTS = {
    "retrieve": "retrieve/digits",
    "graph": "graph/digits",
    "partition": "partition/digits/p2",
    "layout": "layout/digits/p2",
    "aggregate": "aggregate/digits/p2.jsonl",
    "train": RUN,
    "report": "report/index.html",
}
#: Measured values and what follows from them: fields of records, columns of the report's tables.
FROM_TIMES = {"median", "q1", "q3", "seconds", "predicted", "prepare", "compute", "transfer", "used", "gpu_memory"}
FROM_TIMES |= {"launches", "low", "high", "starred", "unstarred", "place", "machine", "gpu_memory_bytes"}
FROM_TIMES |= {"run_id", "recorded_at", "overlap_ratio", "fastest", "close", "speedup", "efficiency", "ratio"}
#: The same for ``model_dump`` of records, which have the place below machine.
OF_THE_RUN = {**dict.fromkeys(FROM_TIMES, True), "machine": {"place"}}
#: Least seconds per epoch on any machine, so that a training has a checkpoint before a fault.
PAUSE = 0.01
#: The program ``mgg`` of the folder: the kernel names its process mgg, as that of the installed entry point.
_MGG = """\
#!{python}
import runpy
runpy.run_path({program!r}, run_name="__main__")
"""


class FaultFolder(Folder):
    """A working folder for faults; trainings log their epochs and checkpoints in ``epochs``."""

    limit = 400

    def __init__(self, path: Path):
        super().__init__(path)
        self.overlay(CONFIG)
        self.program("mgg", _MGG.format(python=sys.executable, program=fault_program.__file__))

    @property
    def epochs(self) -> Path:
        """The log of ``fault_program``."""
        return self.path / "epochs"

    def environment(self, **changes: str) -> dict[str, str]:
        return super().environment(FAULT_LOG=str(self.epochs), FAULT_PAUSE=str(PAUSE), **changes)

    @classmethod
    def before(cls, stage: str, finished: Folder, path: Path) -> FaultFolder:
        """A copy of a finished folder as it was before ``stage``."""
        shutil.copytree(finished.path, path, symlinks=True)
        folder = cls.at(path)
        folder.forget(stage)
        return folder

    def forget(self, stage: str) -> None:
        """Remove the results of ``stage`` and of later ones, and all logs."""
        self.epochs.unlink(missing_ok=True)
        for name in [*STAGES[STAGES.index(stage) :], "logs", "benchmarks"]:
            shutil.rmtree(self.results / name, ignore_errors=True)

    def ended(self, stage: str) -> bool:
        """Whether ``stage`` has ended."""
        return bool(
            made(self.results, OUTPUTS[stage]) if stage != "report" else (self.results / OUTPUTS[stage]).exists()
        )

    @property
    def training(self) -> Path:
        """The path of its training, which may have only checkpoints so far."""
        return training(self.results, RUN)

    def end(self) -> None:
        """Kill all processes here, including stopped ones, which a failed test leaves behind."""
        while left := processes(self.path):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def wait_for(self, words: str, run: subprocess.Popen, file: Path | None = None, seconds: float = 300) -> None:
        """Wait until ``file``, by default the output of ``run`` from ``start``, contains ``words``."""
        file, deadline = file or self.path / "run.log", time.monotonic() + seconds
        while words not in (file.read_text(errors="replace") if file.exists() else ""):
            assert run.poll() is None and time.monotonic() < deadline, (self.path / "run.log").read_text()
            time.sleep(0.01)

    def wait_for_checkpoint(self, run: subprocess.Popen, seconds: float = 300) -> None:
        """Wait until the training of ``run`` has a checkpoint."""
        deadline = time.monotonic() + seconds
        while not newest_checkpoint(self.training):
            assert run.poll() is None and time.monotonic() < deadline, (self.path / "run.log").read_text()
            time.sleep(0.01)

    def recover(self, finished: Folder, env: dict[str, str] | None = None) -> float:
        """Run the same command again, compare with an undisturbed run, check for leftovers; returns seconds.

        A training must have resumed from its newest checkpoint. Before the run, an unfinished part of a layout is put
        there, as if left by a writer on another node.
        """
        newest = newest_checkpoint(self.training)
        if not self.ended("report"):  # otherwise the run has nothing to do
            (self.results / "layout/digits/.p2.another-node.1.part").mkdir(parents=True)
        started = time.monotonic()
        run = self.run(env=env)
        seconds = time.monotonic() - started
        assert run.returncode == 0, run.stdout
        assert self.resumed() == newest, (
            f"resumed after epoch {self.resumed()}, but the newest checkpoint was of {newest}"
        )
        assert outcome(self.results) == outcome(finished.results)
        wait_until_quiet(self.path)
        assert half_written(self.results) == []
        return seconds

    def resumed(self) -> int:
        """The epoch after which its training was last resumed, by its log; 0 if it was not."""
        logs = made(self.results, f"logs/{RUN}.log")
        resumed = re.search(r"goes on after epoch (\d+)/", logs[0].read_text()) if logs else None
        return int(resumed[1]) if resumed else 0

    def lost(self) -> str:
        """The work that its recovered training repeated: at most an interval of checkpoints."""
        return work_lost(self.epochs, self.resumed(), CONFIG["train"]["checkpoint_every"])


def outcome(results: Path) -> dict[str, object]:
    """All results of a run of CONFIG, except measured times and the machine's state."""
    (timings,) = made(results, OUTPUTS["aggregate"])
    records = read_lines(timings, AggregateRecord)
    found: dict[str, object] = {"aggregate": [each.model_dump(exclude=OF_THE_RUN) for each in records]}
    for stage in ("graph", "partition", "layout"):
        folder = results / stage
        found[stage] = {
            str(path.relative_to(folder)): read_partition(path.parent).model_dump(exclude=FROM_TIMES)
            if path.name == PARTITION_FILE
            else path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
    found["report"] = sorted(path.name for path in (results / "report").iterdir())
    return found | tables(results / "report") | trained(training(results, RUN))


def training(results: Path, run: str) -> Path:
    """The path of the training with a plain name, which may have only checkpoints so far."""
    paths = {path.with_name(path.name.removesuffix(".checkpoint")) for path in results.glob(pattern(run))}
    (path,) = paths or {results / run}
    return path


def tables(report: Path) -> dict[str, object]:
    """The report's tables, without times, resources of jobs and places."""
    found = {}
    for file in report.rglob("*.csv"):
        if file.stem in ("jobs", "requests", "machines"):
            continue
        names = [each.name for each in TABLES[file.stem] if each.unit != "seconds" and each.name not in FROM_TIMES]
        with file.open(newline="") as opened:
            found[file.name] = [[row[name] for name in names] for row in csv.DictReader(opened)]
    assert found
    return found


def trained(out: Path) -> dict[str, object]:
    """Weights, predictions, epochs and record of a training run, without times."""
    record, epochs = read_run(out)
    return {
        "run": record.model_dump(exclude=OF_THE_RUN),
        "epochs": [epoch.model_dump(exclude={"seconds"}) for epoch in epochs],
        "weights": (out / "weights.safetensors").read_bytes(),
        "predictions": parquet.read_table(out / "predictions.parquet").to_pydict(),
    }


@contextmanager
def full_disk(folder: FaultFolder, pages: int) -> Iterator[None]:
    """A context in which the results are on a disk with ``pages`` free pages of 4 KiB; after it, with plenty."""
    kept = folder.path / "kept"
    folder.results.rename(kept)
    folder.results.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(folder.results)], check=True)
    shutil.copytree(kept, folder.results, symlinks=True, dirs_exist_ok=True)
    disk = os.statvfs(folder.results)
    used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    resize(folder, used + pages * 4096)
    try:
        yield
    finally:
        resize(folder, 2**28)


def resize(folder: FaultFolder, size: int) -> None:
    """Change the size of the disk under the results."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(folder.results)], check=True)


def injected(fault: str, case: str) -> Callable[[float, str], None]:
    """Log an injected fault; returns a function to call after recovery.

    That takes the seconds of the recovering command, and the repeated work.
    """
    log_line(fault=fault, case=case)
    return lambda seconds, lost="": log_line(fault=fault, case=case, seconds=round(seconds, 2), lost=lost)


def log_line(**line: object) -> None:
    """Add a line to the log of faults, if there is one."""
    file = os.environ.get("FAULTS_RECORD")
    if file:
        with Path(file).open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")


def table(records: Path) -> str:
    """Markdown: by fault the counts, the slowest and the median recovery, the most work lost."""
    lines = ["| fault | injected | recovered | slowest, s | median, s | most work lost |", "| --- " * 6 + "|"]
    for fault, each in pd.read_json(records, lines=True).groupby("fault", sort=False):
        done = each.dropna(subset="seconds")
        most = max(done.lost, key=lambda text: float((re.findall(r"([\d.]+) s$", text) or [0])[0]), default="") or "-"
        times = f"{done.seconds.max():.1f} | {done.seconds.median():.1f}"
        lines.append(f"| {fault} | {len(each) - len(done)} | {len(done)} | {times} | {most} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))
