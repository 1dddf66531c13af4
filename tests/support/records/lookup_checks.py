"""Check the results of ``lookup_program``: errors, repeated bits, and bytes derived from the batches."""

import numpy as np

from mgg.lookup import SIDES
from mgg.lookup.samples import share
from support.programs.lookup_program import BATCHES, DIMS, owners, samples


def embeddings_moved(name, pes, dim, size):
    """Bytes of embeddings that all PEs move in one batch, by the side's description."""
    owner, moved = owners(name, pes), 0
    for pe in range(pes):
        rows = samples(size)[slice(*share(size, pe, pes))]
        remote = owner[rows] != pe
        if name == "halo":
            moved += len(np.unique(rows[remote]))
        elif name == "alltoall_tables":
            moved += sum(len(set(bag[away])) for bag, away in zip(owner[rows], remote, strict=True))
        else:
            moved += int(remote.sum())
    return 4 * dim * moved


def numbers_moved(name, pes, size):
    """Bytes of row numbers, if the side sends any: four for every row that another PE owns."""
    rows = [samples(size)[slice(*share(size, pe, pes))] for pe in range(pes)]
    remote = sum(int((owners(name, pes)[each] != pe).sum()) for pe, each in enumerate(rows))
    return 4 * remote if name.startswith("alltoall") else 0


def check(everywhere, sides=SIDES, gpus=False):
    pes = len(everywhere)
    for name in sides:
        for dim in DIMS:
            for size in BATCHES:
                found = [each[f"{name} {dim} {size}"] for each in everywhere]
                case = name, pes, dim, size
                assert max(each["error"] for each in found) < 1e-6, case
                assert all(each["same"] for each in found), case
                exchanged = gpus and name.startswith("alltoall")
                assert {each["transport"] for each in found} == {"nccl" if exchanged else "one-sided"}, case
                assert sum(each["embeddings"] for each in found) == embeddings_moved(*case), case
                assert sum(each["numbers"] for each in found) == numbers_moved(name, pes, size), case
