"""What the lookups of ``lookup_program`` must be: their errors, their bits, and bytes that the batches alone tell."""

import numpy as np

from mgg.lookup import SIDES
from mgg.lookup.samples import share
from support.programs.lookup_program import BATCHES, DIMS, owners, samples


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


def check(everywhere, sides=SIDES, gpus=False):
    pes = len(everywhere)
    for name in sides:
        for dim in DIMS:
            for size in BATCHES:
                found = [each[f"{name} {dim} {size}"] for each in everywhere]
                where = name, pes, dim, size
                assert max(each["error"] for each in found) < 1e-6, where
                assert all(each["same"] for each in found), where
                exchanged = gpus and name.startswith("alltoall")
                assert {each["transport"] for each in found} == {"nccl" if exchanged else "one-sided"}, where
                assert sum(each["embeddings"] for each in found) == embeddings_moved(*where), where
                assert sum(each["numbers"] for each in found) == numbers_moved(name, pes, size), where
