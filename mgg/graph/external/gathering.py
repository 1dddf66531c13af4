"""Step 3: join the parts of all ranges into one graph folder."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path

import numpy as np

from mgg.errors import InputError
from mgg.graph import manifest as manifests
from mgg.graph.csr import index_dtype
from mgg.graph.external import kernels, sharding
from mgg.graph.external.scattering import Buckets, Counted, Scattered
from mgg.graph.external.sharding import DEGREES_FILE, Shards
from mgg.graph.manifest import Manifest, Shard
from mgg.graph.store import shards, write_offsets
from mgg.graph.store.nodes import write_column
from mgg.graph.store.shards import Kind, part_name

_log = logging.getLogger(__name__)


def gather(scattered: Scattered, folders: Sequence[Path], out: Path, *, verify: bool = True) -> Manifest:
    """Fill the existing folder ``out`` with the graph.

    Args:
        scattered: the scattered graph; its parts of node data are linked or copied.
        folders: the folders of all ranges, in any order.
        out: the new graph folder.
        verify: compare every part with its hash, because other processes made them.

    Raises:
        InputError: a range is missing, repeated, altered or of another graph; or the graph's counts differ from those
            of its data set.
    """
    made = _all_ranges(scattered, folders)
    facts = scattered.facts
    parts = dict(facts.parts)
    for name, part in facts.parts.items():
        _link(scattered.folder / name, out / name, part if verify else None)
    parts.update(_linked(made, out, verify))
    parts.update(write_offsets(out, _degrees(made)))
    if scattered.seen is not None:
        parts.update(write_column(out, "ids", _occurring(scattered.seen, facts.nodes)))
    arcs, loops = sum(one.arcs for _, one in made), sum(one.loops for _, one in made)
    # An arc and its reverse are one arc of the source; a self-loop has no reverse.
    listed = (arcs + loops) // 2 if facts.symmetric else arcs
    manifest = Manifest(
        name=facts.name,
        nodes=facts.nodes,
        arcs=arcs,
        symmetric=facts.symmetric or _equal_halves([one for _, one in made]),
        weighted=facts.weighted or any(one.counted for _, one in made),
        index_dtype=index_dtype(facts.nodes).name,
        features=facts.features,
        classes=facts.classes,
        relations=facts.relations,
        tasks=facts.tasks,
        order=facts.order,
        repeats=facts.repeats,
        loops=facts.loops,
        source=facts.source,
        shards={name: parts[name] for kind in manifests.KINDS for name in sorted(parts) if name.startswith(f"{kind}/")},
        **(
            facts.counted
            or Counted(facts.listed_arcs, facts.dropped_loops, facts.listed_arcs - facts.dropped_loops - listed)
        )._asdict(),
    )
    _check_counts(facts, manifest)
    manifests.save(out, manifest)
    if facts.counted is None and "generator" not in facts.source:
        _tell(manifest, mirrored=facts.symmetric)
    return manifest


def _tell(manifest: Manifest, *, mirrored: bool) -> None:
    if manifest.dropped_loops:
        _log.warning(
            "%s: %d of %d arcs join a node to itself and are left out (--loops keep keeps them)",
            manifest.name, manifest.dropped_loops, manifest.listed_arcs,
        )  # fmt: skip
    if manifest.dropped_repeats and manifest.repeats != "sum":
        _log.warning(
            "%s: %d of %d arcs repeat another one%s and are left out%s (--repeats sum adds them up)",
            manifest.name, manifest.dropped_repeats, manifest.listed_arcs,
            " or its reverse, for which each stands, too," if mirrored else "",
            {"first": "", "max": ": the largest weight counts"}[manifest.repeats],
        )  # fmt: skip


def _all_ranges(scattered: Scattered, folders: Sequence[Path]) -> list[tuple[Path, Shards]]:
    made = sorted(((folder, sharding.load(folder)) for folder in folders), key=lambda one: one[1].number)
    for folder, one in made:
        if one.scattered != scattered.hash:
            raise InputError(f"{folder}: shards of another graph than {scattered.folder}; run mgg graph-shard again")
    numbers = [one.number for _, one in made]
    of = made[0][1].of if made else 1
    if numbers != list(range(1, of + 1)) or any(one.of != of for _, one in made):
        raise InputError(f"shards {', '.join(map(str, numbers))} of {of}: each must be there once")
    return made


def _check_counts(facts: Buckets, manifest: Manifest) -> None:
    for field, expected in facts.expected.items():
        found = getattr(manifest, field)
        if found != expected:
            what = field.replace("_", " ")
            raise InputError(f"{facts.name}: the graph has {found} {what}, expected {expected}; check its files")


def _linked(made: list[tuple[Path, Shards]], out: Path, verify: bool) -> Iterator[tuple[str, Shard]]:
    kinds: list[Kind] = ["adjacency", "weights", "arc_types"]
    counted = any(one.counted for _, one in made)
    for kind in kinds:
        number = 0
        for folder, one in made:
            for k, part in one.of_kind(kind):
                _link(folder / part_name(kind, k), out / part_name(kind, number), part if verify else None)
                yield part_name(kind, number), part
                number += 1
            if kind == "weights" and counted and not one.counted:
                for _, part in one.of_kind("adjacency"):
                    ones = np.ones(part.arcs or 0, np.float32)
                    yield shards.write_part(out, kind, number, ones, first=part.first, rows=part.rows)
                    number += 1


def _degrees(made: list[tuple[Path, Shards]]) -> Iterator[np.ndarray]:
    """Yield degrees in blocks of VERTICES_PER_PART; every range but the last has a multiple of it."""
    for folder, one in made:
        digest = hashlib.sha256()
        with _opened(folder / DEGREES_FILE, 4 * one.rows) as file:
            for lo in range(0, one.rows, shards.VERTICES_PER_PART):
                data = file.read(4 * min(shards.VERTICES_PER_PART, one.rows - lo))
                digest.update(data)
                yield np.frombuffer(data, "<u4")
        if digest.hexdigest() != one.degrees:
            raise InputError(f"{folder / DEGREES_FILE}: truncated or altered; run mgg graph-shard again")


def _opened(path: Path, size: int) -> BufferedReader:
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; run mgg graph-shard again") from None
    if os.fstat(file.fileno()).st_size != size:
        file.close()
        raise InputError(f"{path}: truncated or altered; run mgg graph-shard again")
    return file


def _occurring(seen: np.ndarray, nodes: int) -> Iterator[np.ndarray]:
    before = kernels.bits_before(seen)
    for lo in range(0, nodes, shards.VERTICES_PER_PART):
        out = np.empty(min(shards.VERTICES_PER_PART, nodes - lo), np.int64)
        word = int(np.searchsorted(before, lo, side="right")) - 1
        kernels.set_bits(seen[word:], lo - int(before[word]), out)
        yield out + 64 * word


def _equal_halves(made: list[Shards]) -> bool:
    """Return whether the matrix equals its transpose, from the sums of all ranges (see kernels.fingerprint)."""
    sums = [sum(one.fingerprint[k] for one in made) % 2**64 for k in range(4)]
    return sums[:2] == sums[2:]


def _link(source: Path, target: Path, part: Shard | None) -> None:
    """Hard-link a file if the file system supports it, else copy it; compares it with ``part`` if given."""
    if part is not None:
        with _opened(source, part.bytes) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != part.sha256:
                raise InputError(f"{source}: truncated or altered; make the step that wrote it again")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
