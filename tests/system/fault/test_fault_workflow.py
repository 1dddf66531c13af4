"""Faults of the whole workflow in each of its stages: one more run of the same command ends as if nothing had been."""

import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from support.workflow import Folder, made
from support.workflow.faults import FULL, OUTPUTS, RUN, STAGES, FaultFolder, full_disk, injected
from support.workflow.left import wait_until_quiet

pytestmark = [pytest.mark.mpi, pytest.mark.slow]
#: Inputs of stages as their jobs open them.
READ = {
    "partition": "graph/digits/manifest.yaml",
    "layout": "partition/digits/p2/partition.json",
    "aggregate": "layout/digits/p2/layout.yaml",
    "train": "layout/digits/p2/pe-0001/features.npy",
    "report": f"{RUN}/metrics.jsonl",
}


@pytest.mark.parametrize("seed", range(2 if FULL else 1))
@pytest.mark.parametrize("stage", STAGES if FULL else ["partition"])
def test_workflow_recovers_from_a_kill_in_any_stage(stage: str, seed: int, before, finished: Folder):
    """The second one in a training comes when there is a checkpoint."""
    folder: FaultFolder = before(stage)
    taken = read_benchmark(finished.results / "benchmarks", stage)
    killed_in(folder, stage, random.Random(f"{stage} {seed}").uniform(0, taken), checkpoint=stage == "train" and seed)
    recovered = injected("Snakemake killed by SIGKILL in a stage", stage)
    seconds = folder.recover(finished)
    recovered(seconds, folder.lost() if stage == "train" else "")


def read_benchmark(folder: Path, stage: str) -> float:
    """Seconds of the job of a stage in a finished run."""
    name = OUTPUTS[stage].removesuffix(".jsonl")
    (file,) = made(folder.parent, f"benchmarks/{name}.jsonl") if stage != "report" else [folder / "report.jsonl"]
    return float(json.loads(file.read_text().splitlines()[-1])["s"])


def killed_in(folder: FaultFolder, stage: str, delay: float, checkpoint: bool) -> None:
    """Kill snakemake so many seconds into a stage, or after its first checkpoint; where it was over by then, sooner."""
    while True:
        run = folder.start()
        folder.wait_for(f"rule {stage}:", run)
        if checkpoint:
            folder.wait_for_checkpoint(run)
        time.sleep(delay)
        run.kill()
        run.wait()
        wait_until_quiet(folder.path)
        if not folder.ended(stage):
            return
        folder.forget(stage)
        delay /= 2


@pytest.mark.parametrize("pages", [0, 2] if FULL else [1])
@pytest.mark.parametrize("stage", STAGES if FULL else ["train"])
def test_workflow_recovers_from_a_full_disk_in_any_stage(stage: str, pages: int, before, finished: Folder, disks):
    folder: FaultFolder = before(stage)
    disks.append(folder)
    with full_disk(folder, pages):
        run = folder.run()
        assert run.returncode == 1, run.stdout
        assert "Traceback" not in run.stdout
    recovered = injected("the disk full in a stage", f"{stage}, {pages} pages free")
    recovered(folder.recover(finished))


@pytest.fixture
def disks(tmp_path: Path):
    """Folders whose disks go after the test; skips where none may be mounted, as in containers, even by root."""
    probe = tmp_path / "probe"
    probe.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(probe)], check=False).returncode:
        pytest.skip("a disk of its own needs root, and leave to mount it")
    subprocess.run(["umount", str(probe)], check=True)
    folders: list[FaultFolder] = []
    try:
        yield folders
    finally:
        for folder in folders:
            # Lazily: where the test failed something may still write to it.
            subprocess.run(["umount", "--lazy", str(folder.results)], check=False)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that returns a file wrongly once."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for tests/support/workflow/once.c")
    made = tmp_path_factory.mktemp("shim") / "once.so"
    source = Path(__file__).parents[2] / "support/workflow/once.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(made), str(source), "-ldl"], check=True)
    return made


@pytest.mark.parametrize("how", ["missing", "stale"] if FULL else ["stale"])
@pytest.mark.parametrize("stage", READ if FULL else ["train"])
def test_workflow_recovers_from_a_corrupt_file(stage: str, how: str, before, finished: Folder, shim: Path):
    """Stale: as it was when half of it was written."""
    folder: FaultFolder = before(stage)
    source, mark, stale = finished.made(READ[stage]), folder.path / "mark", folder.path / "stale"
    file = str(source.relative_to(finished.results))
    stale.write_bytes(source.read_bytes()[: source.stat().st_size // 2])
    wrong = {"LD_PRELOAD": str(shim), "ONCE_PATH": file, "ONCE_MARK": str(mark)}
    wrong |= {"ONCE_STALE": str(stale)} if how == "stale" else {}
    run = folder.run(env=folder.environment(**wrong))
    assert mark.exists(), f"{file} was not opened"
    assert run.returncode == 1, run.stdout
    assert READ[stage].rpartition("/")[2] in run.stdout[run.stdout.index("What failed:") :]
    assert "internal error" not in run.stdout
    recovered = injected("a file missing or stale once", f"{how}, read by {stage}")
    recovered(folder.recover(finished, env=folder.environment(**wrong)))


@pytest.mark.parametrize("seed", range(5 if FULL else 1))
def test_second_run_in_one_folder_is_refused(seed: int, before, finished: Folder):
    folder: FaultFolder = before(random.Random(seed).choice(STAGES))
    first = folder.start()
    time.sleep(random.Random(seed).uniform(0, 1))
    second = folder.run()
    codes = [first.wait(folder.limit), second.returncode]
    said = (folder.path / "run.log").read_text() + second.stdout
    # Whoever comes second is refused; where the first is done by then, there is nothing left to do.
    assert codes.count(0) >= 1, said
    assert (said.count("another run is working here") == 1) == (codes != [0, 0]), said
    wait_until_quiet(folder.path)
    recovered = injected("two runs started in one folder", f"seed {seed}")
    recovered(folder.recover(finished))
