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
from mgg.lookup import SIDES

PROGRAM = Path(lookup_program.__file__)


@pytest.mark.parametrize("pes", [1, 2, 3, 8])
def test_threads(pes):
    """Eight PEs have fewer tables than PEs."""
    check(launch("simulated", lambda: pes, lookup_program.lookups))


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["1", "0"])
def test_ranks(tmp_path, shared):
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


def test_tables_are_cut_as_promised():
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
@pytest.mark.parametrize("pes", [1, 3])
def test_stand_ins_for_gpus(tmp_path, pes):
    """The kernels themselves, compiled for the host, on rows that are padded as on GPUs."""
    out = tmp_path / "found.json"
    run = PROGRAM.parents[1] / "fake_gpu" / "run.py"
    succeeded(pes, [str(run), str(PROGRAM), "nvshmem", str(out)])
    check(json.loads(out.read_text()))
