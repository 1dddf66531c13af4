"""Every side of the lookup against float64 sums, and the bytes that it moves against what the batch alone tells."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.programs import lookup_program
from support.programs.lookup_program import SIZES, owners
from support.ranks import succeeded
from support.records.lookup_checks import check

from mgg.backend import launch
from mgg.lookup import SIDES, criteo_like
from mgg.records import read_lines
from mgg.records.lookup import LookupRecord

PROGRAM = Path(lookup_program.__file__)
STAND_IN = str(PROGRAM.parents[1] / "fake_gpu" / "run.py")


@pytest.mark.parametrize("pes", [1, 2, 3, 8])
def test_sides_match_on_threads(pes):
    """Eight PEs have fewer tables than PEs."""
    check(launch("simulated", lambda: pes, lookup_program.lookups))


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["1", "0"])
def test_sides_match_on_ranks(tmp_path, shared):
    """Ranks that share memory, and such as reach each other's by MPI alone: the side that reads it is refused."""
    out = tmp_path / "found.json"
    succeeded(3, [str(PROGRAM), "mpi", str(out)], MGG_MPI_SHARED_MEMORY=shared)
    everywhere = json.loads(out.read_text())
    if shared == "1":
        check(everywhere)
        return
    assert re.fullmatch(
        "side direct: PE 0 does not address the memory of PEs 1, 2: take side mgg, which fetches the rows",
        everywhere[1]["direct 41"],
    )
    check(everywhere, [name for name in SIDES if name != "direct"])


def test_every_table_row_has_one_owner():
    """Every row has one owner, at the place where a key finds it."""
    for name, side in SIDES.items():
        for pes in (1, 2, 4, 9):
            split = side.split(SIZES, pes)
            rows = [np.array(split.rows_of(pe)) for pe in range(pes)]
            assert sorted(np.concatenate(rows)) == list(range(sum(SIZES)))
            assert split.height == max(map(len, rows))
            for pe, mine in enumerate(rows):
                assert np.array_equal(np.flatnonzero(owners(name, pes) == pe), mine)


@pytest.mark.slow
@pytest.mark.parametrize("pes", [1, 3, 7])
def test_sides_match_on_simulated_gpus(tmp_path, pes):
    """The kernels themselves, compiled for the host, on rows that are padded as on GPUs; seven PEs have six tables."""
    out = tmp_path / "found.json"
    succeeded(pes, [STAND_IN, str(PROGRAM), "nvshmem", str(out)], FAKE_GPUS=str(pes))
    check(json.loads(out.read_text()), gpus=True)


@pytest.mark.slow
def test_command_reports_the_transport(tmp_path):
    """On GPUs the all-to-alls exchange over NCCL; without it a line names each, and the others are measured."""
    criteo_like.generate(tmp_path / "samples", scale=1e-4, samples=64)
    quick = ["--dim", "8", "--batches", "16", "--launches", "1", "--warmup", "0", "--iterations", "1"]
    command = ["-m", "mgg.cli", "lookup", str(tmp_path / "samples"), "--backend", "nvshmem", *quick]

    def measured(nccl):
        out = tmp_path / f"{nccl}.jsonl"
        said = succeeded(2, [STAND_IN, *command, "--out", str(out)], FAKE_NCCL=nccl).stderr
        return said, {record.side: record.transport for record in read_lines(out, LookupRecord)}

    exchanging = {name: "nccl" for name in SIDES if name.startswith("alltoall")}
    others = {name: "one-sided" for name in SIDES if name not in exchanging}
    assert measured("1")[1] == exchanging | others
    said, found = measured("0")
    assert found == others
    for name in exchanging:
        assert said.count(f"side {name}: NCCL is missing: pip install nvidia-nccl-cu13, or leave the side out\n") == 1
