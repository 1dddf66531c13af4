"""Measure a partition: balance, cut, halos and the communication volumes of the CoLa paper (3.1, 4.1, 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numba
import numpy as np

from mgg.graph.cover import cover_size
from mgg.graph.csr import Csr, row_ids
from mgg.graph.reorder.span import block_span
from mgg.records import Quality

FLOAT_BYTES = 4
#: Most PEs for which the record holds the halo rows of every pair.
MOST_PAIRED = 128
#: PEs (and workgroups) whose halos one walk marks: the bits of a word.
WORD = 64


def volumes(nodes: int, pes: int, remote_arcs: int, halo_rows: int, dim: int) -> tuple[int, int, int]:
    """Return V_CG, V_FR and V_FC in bytes (CoLa eq. 5 to 7)."""
    row = FLOAT_BYTES * dim
    return row * nodes * (pes - 1), row * remote_arcs, row * halo_rows


def measure(
    walk: Callable[[], Iterable[tuple[int, Csr]]], owners: np.ndarray, *, pes: int, workgroup: int, dim: int,
    cover: bool = False,
) -> Quality:  # fmt: skip
    """Measure the quality of a partition by walks over the arcs.

    One walk suffices if each PE's rows are consecutive; otherwise there is one walk per 64 PEs. Memory is one block,
    at most 18 bytes per node for any number of arcs, and 8 bytes per pair of PEs. ``cover`` takes another walk, two
    ids per arc between PEs, and some 60 bytes per arc that leaves one PE.

    Args:
        walk: returns, at every call, all rows in blocks with global columns, each with its first row.
        owners: uint16 [n], the PE of each node.
        pes: P.
        workgroup: G, the PEs per workgroup; the last one may have fewer.
        dim: embedding columns for the volumes.
        cover: count the transfers (V_cover) if each pair of PEs sends the fewest rows and sums.
    """
    groups = np.arange(pes) // workgroup
    members = np.bincount(groups)
    by_pe, pairs, by_group = (np.zeros(shape, np.int64) for shape in (pes, (pes, pes), len(members)))
    counts = _Counts(by_pe, by_pe, 0, pairs, by_group)
    count = _count_in_order if (owners[1:] >= owners[:-1]).all() else _count_in_words
    count(walk, owners, workgroup, counts)
    nodes = np.bincount(owners, minlength=pes)
    arcs, cut = counts.arcs, int(counts.cut.sum())
    group_arcs = np.bincount(groups, weights=arcs).astype(np.int64)
    # same[p][q]: whether PEs p and q belong to one workgroup.
    same = groups[:, None] == groups
    halos = counts.pairs.sum(axis=1)
    v_cg, v_fr, v_fc = volumes(len(owners), pes, cut, int(halos.sum()), dim)
    row, total = FLOAT_BYTES * dim, max(1, int(arcs.sum()))
    return Quality(
        dim=dim,
        nodes_per_pe=nodes.tolist(),
        arcs_per_pe=arcs.tolist(),
        imbalance=int(arcs.max()) * pes / total if arcs.any() else 1.0,
        edge_cut=cut,
        edge_cut_per_pe=counts.cut.tolist(),
        halo_rows_per_pe=halos.tolist(),
        halo_rows_per_pair=counts.pairs.tolist() if pes <= MOST_PAIRED else None,
        v_cg=v_cg,
        v_fr=v_fr,
        v_fc=v_fc,
        v_cover=row * _covers(walk, owners, pes) if cover else None,
        arcs_per_workgroup=group_arcs.tolist(),
        workgroup_imbalance=float((group_arcs / members).max()) * pes / total if arcs.any() else 1.0,
        workgroup_edge_cut=counts.group_cut,
        workgroup_halo_rows=counts.group_halos.tolist(),
        vi_cg=row * int(nodes @ (pes - members[groups])),
        vi_fr=row * counts.group_cut,
        vi_fc=row * int(counts.pairs[~same].sum()),
        vi_cola=row * int(counts.group_halos.sum()),
        span=counts.span / total,
    )


def _covers(walk: Callable[[], Iterable[tuple[int, Csr]]], owners: np.ndarray, pes: int) -> int:
    """Return the number of rows and sums in minimum vertex covers of all ordered pairs of PEs (SHIRO)."""
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for lo, block in walk():
        rows = (lo + row_ids(block)).astype(block.indices.dtype)
        crosses = owners[rows] != owners[block.indices]
        found.append((rows[crosses], block.indices[crosses]))
    if not found:
        return 0
    targets, sources = (np.concatenate(column) for column in zip(*found, strict=True))
    del found
    total, origin = 0, owners[sources]
    for pe in range(pes):
        mine = np.flatnonzero(origin == pe)
        # Each PE receives its own copy of a row, so every pair of row and receiver is a separate vertex.
        total += cover_size(sources[mine].astype(np.int64) * pes + owners[targets[mine]], targets[mine])
    return total


@dataclass
class _Counts:
    """The counts of a walk.

    Attributes:
        arcs, cut: arcs of each PE's rows, and those whose column another PE owns, int64 [P].
        group_cut: arcs whose column another workgroup owns.
        pairs: number of PE q's rows that PE p needs, int64 [P, P].
        group_halos: number of other workgroups' rows that each workgroup needs, int64 [workgroups].
        span: sum of |row - column| over all arcs.
    """

    arcs: np.ndarray
    cut: np.ndarray
    group_cut: int
    pairs: np.ndarray
    group_halos: np.ndarray
    span: int = 0


def _count_in_order(
    walk: Callable[[], Iterable[tuple[int, Csr]]], owners: np.ndarray, workgroup: int, counts: _Counts
) -> None:
    """Count for consecutive PEs: each node stores a mark of the last PE and of the last workgroup that need it."""
    seen, group_seen = np.zeros((2, len(owners)), np.uint16)
    tally = np.zeros((3, len(counts.arcs)), np.int64)
    for lo, block in walk():
        counts.span += block_span(lo, block)
        _note_in_order(
            block.indptr, block.indices, lo, owners, workgroup, seen, group_seen, tally, counts.pairs,
            counts.group_halos,
        )  # fmt: skip
    counts.arcs, counts.cut, counts.group_cut = tally[0], tally[1], int(tally[2].sum())


def _count_in_words(
    walk: Callable[[], Iterable[tuple[int, Csr]]], owners: np.ndarray, workgroup: int, counts: _Counts
) -> None:
    """Count for any order: each node has a bit per PE and per other workgroup that needs it, 64 of each per walk."""
    pes, groups = len(counts.arcs), len(counts.group_halos)
    for first in range(0, pes, WORD):
        needs = np.zeros(len(owners), _word(pes - first))
        group_needs = np.zeros(len(owners), _word(groups - first))
        tally = np.zeros((3, pes), np.int64)
        for lo, block in walk():
            counts.span += block_span(lo, block) if first == 0 else 0
            _note(block.indptr, block.indices, lo, owners, workgroup, first, needs, group_needs, tally)
        counts.arcs, counts.cut, counts.group_cut = tally[0], tally[1], int(tally[2].sum())
        _sum_pairs(needs, owners, first, counts.pairs)
        counts.group_halos[first : first + WORD] += _sum_bits(group_needs, min(groups - first, WORD))


@numba.njit(cache=True, nogil=True)
def _note_in_order(  # type: ignore[no-untyped-def]
    indptr, indices, lo, owners, workgroup, seen, group_seen, tally, pairs, group_halos
):
    """Count each PE's and workgroup's halo rows at their first use; tally arcs, cut and workgroup cut."""
    for r in range(indptr.size - 1):
        pe = np.int64(owners[lo + r])
        group = pe // workgroup
        first_pe, last_pe = group * workgroup, (group + 1) * workgroup
        # Marks start at 1.
        mine, ours = np.uint16(pe + 1), np.uint16(group + 1)
        cut = group_cut = 0
        for k in range(indptr[r], indptr[r + 1]):
            column = indices[k]
            owner = np.int64(owners[column])
            if owner != pe:
                cut += 1
                if seen[column] != mine:
                    seen[column] = mine
                    pairs[pe, owner] += 1
                if owner < first_pe or owner >= last_pe:
                    group_cut += 1
                    if group_seen[column] != ours:
                        group_seen[column] = ours
                        group_halos[group] += 1
        tally[0, pe] += indptr[r + 1] - indptr[r]
        tally[1, pe] += cut
        tally[2, pe] += group_cut


def _word(bits: int) -> type[np.unsignedinteger]:
    """Return the narrowest unsigned type with ``bits`` bits, at most 64."""
    return next((kind for kind, width in ((np.uint8, 8), (np.uint16, 16), (np.uint32, 32)) if bits <= width), np.uint64)


@numba.njit(cache=True, nogil=True)
def _note(indptr, indices, lo, owners, workgroup, first, needs, group_needs, tally):  # type: ignore[no-untyped-def]
    """Mark which PEs and workgroups from number ``first`` on need each column; tally arcs, cut and workgroup cut."""
    for r in range(indptr.size - 1):
        pe = np.int64(owners[lo + r])
        group = pe // workgroup
        # Shifts beyond the word are undefined, so PEs of other walks get no bit.
        mine = needs.dtype.type(1 << (pe - first)) if 0 <= pe - first < WORD else needs.dtype.type(0)
        ours = group_needs.dtype.type(1 << (group - first)) if 0 <= group - first < WORD else group_needs.dtype.type(0)
        first_pe, last_pe = group * workgroup, (group + 1) * workgroup
        cut = group_cut = 0
        for k in range(indptr[r], indptr[r + 1]):
            column = indices[k]
            owner = np.int64(owners[column])
            if owner != pe:
                cut += 1
                needs[column] |= mine
                if owner < first_pe or owner >= last_pe:
                    group_cut += 1
                    group_needs[column] |= ours
        tally[0, pe] += indptr[r + 1] - indptr[r]
        tally[1, pe] += cut
        tally[2, pe] += group_cut


@numba.njit(cache=True, nogil=True)
def _sum_pairs(needs, owners, first, pairs):  # type: ignore[no-untyped-def]
    """Count each node, with owner q, in ``pairs[p, q]`` for every PE p that needs it."""
    for node in range(needs.size):
        rest, pe = needs[node], first
        while rest:
            if rest & 1:
                pairs[pe, owners[node]] += 1
            rest >>= 1
            pe += 1


@numba.njit(cache=True, nogil=True)
def _sum_bits(needs, bits):  # type: ignore[no-untyped-def]
    """Return how many nodes have each of the ``bits`` bits set, int64 [bits]."""
    found = np.zeros(max(bits, 0), np.int64)
    for node in range(needs.size):
        rest, bit = needs[node], 0
        while rest:
            found[bit] += rest & 1
            rest >>= 1
            bit += 1
    return found
