"""Every technique on GPUs: products against float64, bytes against the counters of the simulated backend."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.graphs import awkward_graphs, make_layout, random_csr
from support.products import simulated_bytes, worst, wrong_bytes
from support.ranks import mpiexec
from support.spmm_program import DIMS

from mgg.aggregate import techniques
from mgg.record import AggregateRecord, read_lines

PROGRAM = Path(__file__).parents[1] / "support" / "spmm_program.py"
GRAPHS = awkward_graphs()

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("pes", [1, 2, 4])
def test_products_and_bytes(tmp_path, pes):
    folders = [make_layout(tmp_path / str(number), csr, pes) for number, csr in enumerate(GRAPHS.values())]
    done = mpiexec(pes, [str(PROGRAM), "nvshmem", str(tmp_path), *map(str, folders)])
    assert done.returncode == 0, done.stderr
    for number, (name, csr) in enumerate(GRAPHS.items()):
        parts = [dict(np.load(tmp_path / f"{number}-{pe}.npz")) for pe in range(pes)]
        assert len(parts[0]) == len(techniques()) * 2 * len(DIMS)
        assert worst(csr, parts) <= (1e-6,), name
        found = [json.loads((tmp_path / f"{number}-{pe}.json").read_text()) for pe in range(pes)]
        assert not wrong_bytes(simulated_bytes(folders[number], pes), found), name


@pytest.mark.parametrize("pes", [1, 2, 4])
def test_deterministic_techniques_give_the_same_bits(tmp_path, pes):
    folder = make_layout(tmp_path, random_csr(500, 10_000, weighted=True), pes)
    runs = []
    for number in (1, 2):
        out = tmp_path / f"run-{number}"
        out.mkdir()
        done = mpiexec(pes, [str(PROGRAM), "nvshmem", str(out), str(folder)])
        assert done.returncode == 0, done.stderr
        runs.append([dict(np.load(out / f"0-{pe}.npz")) for pe in range(pes)])
    steady = [name for name, plan in techniques().items() if plan.deterministic]
    for first, second in zip(*runs, strict=True):
        keys = [key for key in first if key.split(" ")[0] in steady]
        assert keys and all(np.array_equal(first[key], second[key]) for key in keys)


@pytest.mark.parametrize("pes", [1, 2, 4])
def test_the_command_records_gpus_and_seconds(tmp_path, pes):
    folder = make_layout(tmp_path, random_csr(2_000, 30_000), pes)
    out = tmp_path / "records.jsonl"
    arguments = ["aggregate", str(folder), "--technique", "halo,cola", "--dim", "16,41", "--backend", "nvshmem"]
    done = mpiexec(pes, ["-m", "mgg.cli", *arguments, "--iterations", "3", "--out", str(out)])
    assert done.returncode == 0, done.stderr
    records = read_lines(out, AggregateRecord)
    assert len(records) == 4
    for record in records:
        assert record.backend == "nvshmem" and len(record.machine.gpus) == pes
        assert 0 < record.error <= 1e-6 and min(record.seconds) > 0
