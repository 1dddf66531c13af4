"""Step 1: read a source once, check it, spool its arcs by row range, and write its node data as parts."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from mgg import hashed, npy
from mgg.config import Loops, Repeats
from mgg.errors import InputError, MachineError
from mgg.files import Kind
from mgg.graph.budget import MIB
from mgg.graph.check import Narrowed
from mgg.graph.external import kernels
from mgg.graph.external.memory import Memory
from mgg.graph.external.spool import PAYLOADS, Index, Spool, SpoolWriter
from mgg.graph.external.wide import WideIdsError, numbered
from mgg.graph.manifest import KINDS, Sha256, Shard, ShardName
from mgg.graph.sources import CHUNK_ARCS, Arcs, ArcStream, StreamedGraph
from mgg.graph.store.nodes import NodeData, write_nodes
from mgg.schema import Closed, parsed

_log = logging.getLogger(__name__)
FILE = "buckets.yaml"
TABLE_FILE = "table.npy"
SUMS_FILE = "sums.npy"
SEEN_FILE = "seen.npy"
KIND = Kind(FILE, (TABLE_FILE, SUMS_FILE, SEEN_FILE, "keys.bin", *(f"{name}.bin" for name in PAYLOADS), *KINDS))
#: Minimum bytes for reading: the spool's buffers, a chunk of arcs and its keys, the parser of the chunk, and 8 MiB for
#: loops loaded meanwhile, so that a small graph that can be read can also be sorted.
LEAST, LEAST_PAYLOAD = 104 * MIB, 232 * MIB
#: Share of the free memory for the spool's buffers; reading and parsing the source take most of the rest.
SPOOL_SHARE = 0.25


class Counted(NamedTuple):
    """The counts from the first build of a graph from its source; see the manifest's fields of these names."""

    listed_arcs: int
    dropped_loops: int
    dropped_repeats: int


class Buckets(Closed):
    """``buckets.yaml``: what a scattered graph is, beside its arcs."""

    name: str = Field(min_length=1, description="name of the graph")
    source: dict[str, Any] = Field(description="where it comes from")
    order: str = Field(description="how its nodes are numbered")
    ids: int = Field(ge=0, description="arcs have ids 0 .. ids - 1")
    nodes: int = Field(ge=1, description="number of nodes: ids, or fewer where only those that occur count")
    keys: int = Field(ge=0, description="spooled arcs, reverses counted, self-loops that are left out not")
    shift: int = Field(ge=0, description="a bucket is 2^shift ids")
    weighted: bool
    relations: int = Field(ge=0)
    symmetric: bool = Field(description="reverses were added")
    repeats: Repeats = Field(description="what arcs that repeat one another weigh")
    loops: Loops = Field(description="whether self-loops were kept")
    listed_arcs: int = Field(ge=0, description="arcs that the source lists")
    dropped_loops: int = Field(ge=0)
    counted: Counted | None = Field(None, description="counts to keep, where the source is a graph folder")
    expected: dict[str, int] = Field(description="fields of the manifest that a data set must have")
    features: int = Field(ge=0)
    classes: int = Field(ge=0)
    tasks: int = Field(ge=0)
    parts: dict[ShardName, Shard] = Field(description="parts of node data")
    arrays: dict[str, Sha256] = Field(description="hash of every .npy file")


@dataclass(frozen=True)
class Scattered:
    """A folder of ``scatter``, opened for reading.

    Attributes:
        folder: the folder.
        facts: the contents of its ``buckets.yaml``.
        hash: that file's hash, which identifies the scattered graph.
        spool: its arcs.
        seen: uint64 bitmap of the ids that are nodes, or None if all are.
    """

    folder: Path
    facts: Buckets
    hash: str
    spool: Spool
    seen: np.ndarray | None

    @classmethod
    def open(cls, folder: str | Path) -> Scattered:
        """Open a folder; raises InputError that names the wrong file."""
        folder = Path(folder)
        values, digest = hashed.load(folder / FILE, "scattered graph", "mgg graph-scatter")
        facts = parsed(Buckets, values, f"{folder / FILE}: ")
        arrays = {
            name: npy.load(folder / name, sha256, "make the folder again") for name, sha256 in facts.arrays.items()
        }
        index = Index(facts.shift, arrays[TABLE_FILE], arrays[SUMS_FILE])
        spool = Spool(folder, index, payload_names(facts.weighted, facts.relations))
        return cls(folder, facts, digest, spool, arrays.get(SEEN_FILE))


def payload_names(weighted: bool, relations: int) -> tuple[str, ...]:
    """Return the names of the values that are spooled with the keys."""
    return ("weights",) * weighted + ("types",) * (relations > 0)


def scatter(
    graph: StreamedGraph,
    folder: Path,
    *,
    name: str,
    source: dict[str, Any],
    memory: Memory,
    symmetrize: bool = False,
    order: str = "natural",
    counted: Counted | None = None,
    expected: dict[str, int] | None = None,
) -> Scattered:
    """Fill the existing ``folder`` with the spool and the parts of node data.

    Args:
        graph: the graph to read.
        folder: the target folder.
        name: name of the graph.
        source: the graph's origin; plain YAML values that do not depend on the machine.
        memory: the memory limit.
        symmetrize: add the reverse of every arc.
        order: name of the nodes' order.
        counted: counts for the manifest, if the source is an existing graph folder.
        expected: required values of manifest fields.

    Raises:
        InputError: the source has an error (named) or no node, or the memory limit is too low.
        MachineError: the ids are so large that their bitmap does not fit into the memory.
    """
    arcs = graph.arcs
    if arcs.nodes is not None and arcs.nodes > kernels.IDS:
        raise InputError(f"{name}: {arcs.nodes} nodes: at most {kernels.IDS} nodes are supported")
    mirror = symmetrize or arcs.undirected
    # Both take O(nodes) memory, so they run first, while most memory is free.
    data = NodeData(graph.features, graph.labels, graph.splits, graph.classes, graph.tasks, graph.ids)
    if arcs.nodes is not None:
        data = data.checked(arcs.nodes, name)
    parts = dict(write_nodes(folder, data, arcs.nodes or 0, name))
    spooled = _spooled(arcs, folder, name, memory, mirror)
    if spooled is None:
        arcs, ids = numbered(arcs, name, memory.free(LEAST) // 4)
        parts = dict(write_nodes(folder, NodeData(ids=ids), len(ids), name))
        spooled = _spooled(arcs, folder, name, memory, mirror)
        assert spooled is not None  # the number of nodes is known now
    reader, index = spooled
    source = source | _report_rounding(reader.narrowed, name)
    nodes, count = reader.nodes()
    arrays = {TABLE_FILE: index.table, SUMS_FILE: index.sums} | ({SEEN_FILE: reader.seen} if count < nodes else {})
    table = index.table
    facts = Buckets(
        name=name,
        source=source,
        order=order,
        ids=nodes,
        nodes=count,
        keys=int(table[-1, -1]) if len(table) else 0,
        shift=index.shift,
        weighted=arcs.weighted,
        relations=arcs.relations,
        symmetric=mirror,
        repeats=arcs.repeats,
        loops=arcs.loops,
        listed_arcs=reader.read,
        dropped_loops=reader.loops,
        counted=counted,
        expected=expected or {},
        features=data.width,
        classes=data.classes or 0,
        tasks=0 if data.tasks is None else data.tasks.shape[1],
        parts=parts,
        arrays={file: npy.save(folder / file, values) for file, values in arrays.items()},
    )
    hashed.save(folder / FILE, facts.model_dump(exclude_none=True))
    return Scattered.open(folder)


def _report_rounding(narrowed: Narrowed, name: str) -> dict[str, Any]:
    """Return the manifest's fields on rounded whole weights, and log a warning about them."""
    if not narrowed.count:
        return {}
    _log.warning(
        "%s: %d weights are whole numbers that float32 does not hold: they are rounded, by up to %.2g of their value;"
        " are they ids?", name, narrowed.count, narrowed.error,
    )  # fmt: skip
    return {"rounded_weights": {"count": narrowed.count, "largest_relative_error": narrowed.error}}


def _spooled(arcs: ArcStream, folder: Path, name: str, memory: Memory, mirror: bool) -> tuple[_Reader, Index] | None:
    """Read the stream and spool it; None if its ids must be renumbered first."""
    payloads = payload_names(arcs.weighted, arcs.relations)
    free = memory.free(LEAST_PAYLOAD if payloads else LEAST)
    reader = _Reader(arcs, name, free)
    with SpoolWriter(folder, _capacity(free, bool(payloads)), payloads) as spool:
        try:
            for chunk in arcs.read():
                reader.spool(chunk, mirror, spool)
        except WideIdsError:
            return None
        return reader, spool.finish(max(reader.largest, (arcs.nodes or 0) - 1))


class _Reader:
    """Checks chunks, packs them into keys and records which ids occur."""

    def __init__(self, arcs: ArcStream, name: str, free: int) -> None:
        self.arcs, self.name = arcs, name
        self.loops, self.largest = 0, -1
        self.seen = np.zeros(0, np.uint64)
        self.read = 0
        self.narrowed = Narrowed()
        self._limit = free // 4
        self._keys = np.empty(0, np.uint64)
        self._origin = np.empty(0, np.int32)

    def spool(self, chunk: Arcs, mirror: bool, spool: SpoolWriter) -> None:
        size = len(chunk.targets)
        self._make_room(size * (2 if mirror else 1))
        keep = self.arcs.loops == "keep"
        count, largest, loops = kernels.pack(chunk.targets, chunk.sources, mirror, keep, self._keys, self._origin)
        if largest < -1:
            self._refuse(chunk, -2 - largest)
        if self.arcs.nodes is not None and largest >= self.arcs.nodes:
            self._refuse(chunk, int(np.argmax(np.maximum(chunk.targets, chunk.sources) >= self.arcs.nodes)))
        self.largest = max(self.largest, largest)
        if self.arcs.nodes is None:
            self._mark(chunk)
        origin = self._origin[:count]
        given = {"weights": None if chunk.weights is None else self.narrowed(chunk.weights), "types": chunk.types}
        payloads = {kind: values[origin] for kind, values in given.items() if values is not None}
        if len(payloads) != len(payload_names(self.arcs.weighted, self.arcs.relations)):
            raise ValueError(f"{self.name}: the stream says which values its arcs have, and this chunk differs")
        spool.add(self._keys[:count], payloads)
        self.loops += loops
        self.read += size

    def nodes(self) -> tuple[int, int]:
        if self.arcs.nodes is not None:
            if self.arcs.nodes < 1:
                raise InputError(f"{self.name}: a graph without nodes")
            return self.arcs.nodes, self.arcs.nodes
        count = int(kernels.bits_before(self.seen)[-1])
        if not count:
            raise InputError(f"{self.name}: holds no arc, and nothing says how many nodes there are")
        if self.arcs.stated_nodes not in (None, count):
            place = self.arcs.stated_in or self.name
            raise InputError(f"{place}: announces {self.arcs.stated_nodes} nodes, but the arcs join {count}")
        return self.largest + 1, count

    def _make_room(self, size: int) -> None:
        if len(self._keys) < size:
            self._keys = np.empty(size, np.uint64)
            if self.arcs.weighted or self.arcs.relations:
                self._origin = np.empty(size, np.int32)

    def _mark(self, chunk: Arcs) -> None:
        words = self.largest // 64 + 1
        if 8 * words > self._limit:
            raise MachineError(
                f"{self.name}: node ids go up to {self.largest}: a table of them does not fit the memory; "
                f"raise --memory or give a table of nodes"
            )
        if words > len(self.seen):
            grown = np.zeros(min(max(words, 2 * len(self.seen)), max(words, self._limit // 8)), np.uint64)
            grown[: len(self.seen)] = self.seen
            self.seen = grown
        kernels.mark(chunk.targets, self.seen)
        kernels.mark(chunk.sources, self.seen)

    def _refuse(self, chunk: Arcs, arc: int) -> None:
        nodes = self.arcs.nodes
        bad = next(int(i) for i in (chunk.sources[arc], chunk.targets[arc]) if not 0 <= i < (nodes or kernels.IDS))
        if nodes is None and bad >= 0:
            raise WideIdsError
        last = 2**63 - 1 if nodes is None else nodes - 1
        raise InputError(f"{self.name}: arc {self.read + arc}: node id {bad} is outside 0..{last}")


def _capacity(free: int, payloads: bool) -> int:
    """Return the keys per segment: three arrays of keys, and of payloads, take SPOOL_SHARE of the free memory."""
    return max(CHUNK_ARCS, min(2**25, int(free * SPOOL_SHARE) // (44 if payloads else 24)))
