"""``manifest.yaml``: the contents of a graph folder, with a hash of every shard and of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mgg import hashed
from mgg.config import Loops, Repeats
from mgg.files import Kind
from mgg.schema import Fixed, parsed

MANIFEST_FILE = "manifest.yaml"
#: Kinds of parts with one value per arc, each a folder; all are cut at the same arcs.
ARC_KINDS = ("adjacency", "weights", "arc_types")
KINDS = ("offsets", *ARC_KINDS, "features", "labels", "tasks", "splits", "ids")
KIND = Kind(MANIFEST_FILE, KINDS)

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ShardName = Annotated[str, Field(pattern=rf"^({'|'.join(KINDS)})/part-[0-9]{{5,}}\.parquet$")]
OrderName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class Shard(Fixed):
    """One Parquet part."""

    first: int = Field(ge=0, description="first vertex of the part")
    rows: int = Field(ge=1, description="vertices of the part")
    arcs: int | None = Field(None, ge=0, description="arcs of the part; adjacency, weights and arc_types only")
    bytes: int = Field(ge=1, description="length of the file")
    sha256: Sha256 = Field(description="hash of the file's bytes")


class Manifest(Fixed):
    """A graph folder's table of contents."""

    schema_version: Literal[1] = Field(default=1, description="version of docs/reference/format.md")
    name: str = Field(min_length=1, description="name of the graph")
    nodes: int = Field(ge=1, description="number of nodes")
    arcs: int = Field(ge=0, description="number of stored arcs; an undirected edge counts twice")
    symmetric: bool = Field(description="the adjacency matrix equals its transpose, weights included")
    weighted: bool = Field(description="arcs have weights")
    index_dtype: Literal["int32", "int64"] = Field(description="type of node ids in adjacency")
    features: int = Field(0, ge=0, description="float32 feature columns of a node, 0: none")
    classes: int = Field(0, ge=0, description="number of classes of the labels, 0: no labels")
    relations: int = Field(0, ge=0, description="number of arc types, 0: arcs have none")
    tasks: int = Field(0, ge=0, description="yes-or-no labels of a node, 0: none")
    order: OrderName = Field(
        default="natural", description="how nodes are numbered: natural is the source's order (mgg/graph/reorder)"
    )
    listed_arcs: int = Field(0, ge=0, description="arcs that the source lists, 0: not counted")
    dropped_loops: int = Field(0, ge=0, description="arcs of the source that join a node to itself, left out")
    dropped_repeats: int = Field(
        0,
        ge=0,
        description="arcs of the source that repeat another one (or its reverse, where each is both): left out, merged",
    )
    repeats: Repeats = Field("first", description="what arcs that repeat one another weigh")
    loops: Loops = Field("drop", description="whether self-loops of the source were kept")
    source: dict[str, Any] = Field(default_factory=dict, description="where the graph comes from")
    shards: dict[ShardName, Shard] = Field(description="every part, by its path relative to the folder")

    def parts(self, kind: str) -> list[tuple[str, Shard]]:
        """Return names and entries of the parts of one kind, in the order of their vertices."""
        return sorted(
            ((name, shard) for name, shard in self.shards.items() if name.startswith(f"{kind}/")),
            key=lambda part: part[1].first,
        )

    @model_validator(mode="after")
    def _whole(self) -> Manifest:
        kinds = {"offsets": True, "adjacency": True, "weights": self.weighted, "features": self.features > 0}
        kinds |= {"labels": self.classes > 0, "arc_types": self.relations > 0, "tasks": self.tasks > 0}
        for kind, wanted in kinds.items():
            if bool(self.parts(kind)) != wanted:
                raise ValueError(f"shards: {kind} parts {'are missing' if wanted else 'do not belong here'}")
        for kind in {name.split("/")[0] for name in self.shards}:
            self._covers(kind)
        adjacency = [(s.first, s.rows, s.arcs) for _, s in self.parts("adjacency")]
        for kind in ARC_KINDS:
            if self.parts(kind) and [(s.first, s.rows, s.arcs) for _, s in self.parts(kind)] != adjacency:
                raise ValueError(f"shards: {kind} parts are not parallel to adjacency parts")
        return self

    def _covers(self, kind: str) -> None:
        vertex = 0
        for name, shard in self.parts(kind):
            if shard.first != vertex:
                raise ValueError(f"shards: {name} begins at vertex {shard.first}, expected {vertex}")
            if (shard.arcs is None) == (kind in ARC_KINDS):
                raise ValueError(f"shards: {name}: arcs belong to {', '.join(ARC_KINDS)} alone")
            vertex += shard.rows
        arcs = sum(shard.arcs or 0 for _, shard in self.parts(kind))
        if vertex != self.nodes or (kind in ARC_KINDS and arcs != self.arcs):
            raise ValueError(
                f"shards: {kind} parts hold {vertex} vertices and {arcs} arcs, not {self.nodes}, {self.arcs}"
            )


def save(folder: Path, manifest: Manifest) -> str:
    """Write ``manifest.yaml`` into a new folder and return the graph's hash."""
    return hashed.save(folder / MANIFEST_FILE, manifest.model_dump(exclude_none=True))


def load(folder: Path) -> tuple[Manifest, str]:
    """Read and check ``manifest.yaml``; return the manifest and the graph's hash.

    Raises:
        InputError: the file is missing, altered, of another schema version, or a field is wrong; names file and field.
    """
    path = folder / MANIFEST_FILE
    values, digest = hashed.load(path, "graph", "mgg graph")
    return parsed(Manifest, values, f"{path}: "), digest
