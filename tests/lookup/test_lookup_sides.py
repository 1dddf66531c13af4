"""Every side of the lookup against float64 sums, and the bytes that it moves against what the batch alone tells."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support import lookup_program
from support.lookup_program import BATCHES, DIMS, SIZES, owners, samples
from support.ranks import mpiexec

from mgg.backend import launch
from mgg.lookup import SIDES
from mgg.lookup.samples import share

PROGRAM = Path(lookup_program.__file__)


def embeddings_moved(name, pes, dim, size):
    """Bytes of embeddings of all PEs in one batch, by each side's own description."""
    owner, moved = owners(name, pes), 0
    for pe in range(pes):
        mine = samples(size)[slice(*share(size, pe, pes))]
        remote = owner[mine] != pe
        if name == "halo":
            moved += len(np.unique(mine[remote]))
        elif name == "alltoall_tables":
            moved += sum(len(set(bag[away])) for bag, away in zip(owner[mine], remote, strict=True))
        else:
            moved += int(remote.sum())
    return 4 * dim * moved


def numbers_moved(name, pes, size):
    """Bytes of row numbers: four for every index of a row that another PE owns, where they are sent at all."""
    mine = [samples(size)[slice(*share(size, pe, pes))] for pe in range(pes)]
    remote = sum(int((owners(name, pes)[each] != pe).sum()) for pe, each in enumerate(mine))
    return 4 * remote if name.startswith("alltoall") else 0


def check(everywhere, sides=SIDES, dims=DIMS):
    pes = len(everywhere)
    for name in sides:
        for dim in dims:
            for size in BATCHES:
                found = [each[f"{name} {dim} {size}"] for each in everywhere]
                where = name, pes, dim, size
                assert max(each["error"] for each in found) < 1e-6, where
                assert all(each["same"] for each in found), where
                assert sum(each["embeddings"] for each in found) == embeddings_moved(*where), where
                assert sum(each["numbers"] for each in found) == numbers_moved(name, pes, size), where


@pytest.mark.parametrize("pes", [1, 2, 3, 8])
def test_threads(pes):
    """Eight PEs have fewer tables than PEs."""
    check(launch("simulated", lambda: pes, lookup_program.lookups))


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["1", "0"])
def test_ranks(tmp_path, shared):
    """Ranks that share memory, and such as reach each other's by MPI alone: the side that reads it is refused."""
    out = tmp_path / "found.json"
    done = mpiexec(3, [str(PROGRAM), "mpi", str(out)], MGG_MPI_SHARED_MEMORY=shared)
    assert done.returncode == 0, done.stderr
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
