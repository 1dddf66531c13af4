"""A minimal run of the whole workflow on the GPUs of a host; tests/workflow runs it on stand-ins."""

from __future__ import annotations

from mgg.records import AggregateRecord, read_lines, read_run
from support.workflow import Folder


def assert_takes_gpus(folder: Folder, dataset: str, pes: int, gpus: int, gpu: str = "", **environment: str) -> None:
    """Run the workflow with a config that names no GPUs; assert that it used ``gpus``, with ``gpu`` in their names."""
    folder.overlay(
        {
            "graph": {"datasets": {dataset: {}}},
            "partition": {"pes": [pes], "quality_pes": []},
            "aggregate": {"techniques": ["halo", "mgg"], "dims": [16], "warmup": 1, "iterations": 2},
            "train": {"models": ["gcn"], "pes": [pes], "epochs": 3},
        }
    )
    done = folder.run(env=folder.environment(**environment))
    assert done.returncode == 0, done.stdout
    assert "compute on CPU cores" not in done.stdout
    records = read_lines(folder.made(f"aggregate/{dataset}/p{pes}.jsonl"), AggregateRecord)
    assert [record.technique for record in records] == ["halo", "mgg"]
    assert all(record.error <= record.tolerance for record in records)
    run, epochs = read_run(folder.made(f"train/{dataset}/gcn-halo-p{pes}-s0"))
    assert len(epochs) == 3
    for record in (*records, run):
        assert (record.backend, record.pes, len(record.machine.gpus)) == ("nvshmem", pes, gpus)
        assert all(gpu in name for name in record.machine.gpus)
    assert (folder.results / "report/index.html").stat().st_size > 10_000
