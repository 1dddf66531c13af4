"""A graph of papers' size through every stage: python benchmarks/gpu_papers.py OUT, on two GPUs.

generate, partition, layout, then GCN (hidden 128), stopped after half of its epochs and resumed. What is whole is not
made again. OUT gets papers.jsonl, a line a stage. Scale 1 takes some 120 GB of disk.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import click
from common import OUT
from gpu_four import MGG, launcher

from mgg.record import read_run


def stage(name: str, command: list[str], stop: int = 0) -> dict[str, Any]:
    """What a command took, its own processes alone; one that trains is told to stop after epoch ``stop``."""
    click.echo(" ".join(command))
    started = time.perf_counter()
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in child.stderr or ():
        click.echo(line.rstrip())
        epoch = re.search(r"epoch (\d+)/", line)
        if stop and epoch and int(epoch[1]) >= stop:
            child.send_signal(signal.SIGUSR1)
            stop = 0
    _, status, used = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 5):
        raise SystemExit(os.waitstatus_to_exitcode(status))
    return {"stage": name, "seconds": time.perf_counter() - started, "peak_gb": round(used.ru_maxrss * 1024 / 1e9, 3)}


def size(folder: Path) -> float:
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e9, 3)


@click.command()
@OUT
@click.option("--scale", default=1.0, show_default=True)
@click.option("--pes", default=2, show_default=True)
@click.option("--epochs", default=50, show_default=True)
@click.option("--memory", default="64GiB", show_default=True, help="of generate and layout")
@click.option("--train", default="--technique auto", show_default=True, help="more options of mgg train")
@click.option("--drop", is_flag=True, help="remove the graph when its layout is there")
def main(out: Path, scale: float, pes: int, epochs: int, memory: str, train: str, drop: bool) -> None:
    out.mkdir(parents=True, exist_ok=True)
    graph, part, layout, run = (out / name for name in ("graph", "partition", "layout", "run"))
    log = (out / "papers.jsonl").open("a", encoding="utf-8", buffering=1)
    budget = ["--memory", memory]
    for folder, command in (
        (graph, [*MGG, "generate", "papers-like", "--scale", str(scale), *budget]),
        (part, [*MGG, "partition", str(graph), "--pes", str(pes)]),
        (layout, [*MGG, "layout", str(graph), str(part), *budget]),
    ):
        if not (folder.exists() or layout.exists()):
            line = stage(folder.name, [*command, "--out", str(folder)])
            print(json.dumps(line | {"gb": size(folder), "gb_a_pe": [*map(size, folder.glob("pe-*"))]}), file=log)
    if drop:
        shutil.rmtree(graph, ignore_errors=True)
    command = [*launcher(pes), *MGG, "train", str(layout), "--model", "gcn", "--set", "hidden=128"]
    command += [*train.split(), "--epochs", str(epochs), "--resume", "--out", str(run)]
    if not run.exists() and not run.with_name("run.checkpoint").exists():
        print(json.dumps(stage("train", command, epochs // 2)), file=log)
    line = stage("resumed", command)
    record, passed = read_run(run)
    losses = [passed[0].loss, passed[-1].loss]
    measured = {
        "epochs": record.epochs,
        "epoch_seconds": record.median,
        "losses": losses,
        "gpu_memory": record.gpu_memory,
    }
    print(json.dumps(line | measured), file=log)


if __name__ == "__main__":
    main()
