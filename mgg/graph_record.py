"""Records of ``mgg describe``: properties of a graph before and after rabbit order, and the time of reordering."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from mgg.record import Count, Origin, Seconds, Sha256


class GraphRecord(Origin):
    """Properties of one graph. Fields on communities and rabbit order are None if these were not computed."""

    again: ClassVar[str] = "run mgg describe again"

    schema_version: Literal[1] = 1
    kind: Literal["graph"] = "graph"
    dataset: str = Field(description="name of the graph")
    graph_hash: Sha256 = Field(description="hash of the graph's shards (its manifest's hash)")
    nodes: int = Field(ge=1, description="number of nodes")
    arcs: int = Field(ge=0, description="number of stored arcs")
    symmetric: bool = Field(description="the adjacency matrix equals its transpose")
    weighted: bool = Field(description="arcs have weights")
    relations: Count = Field(description="types of arcs; 0: they have none")
    features: Count = Field(description="feature columns")
    classes: Count = Field(description="classes of nodes")
    order: str = Field(description="how its nodes are numbered")
    degree_mean: float = Field(ge=0, description="arcs of a row: mean")
    degree_deviation: float = Field(ge=0, description="their standard deviation over all nodes")
    degree_largest: Count = Field(description="the most")
    empty_rows: Count = Field(description="rows without arcs")
    span: float = Field(ge=0, description="averaged edge span (GNNAdvisor, eq. 4) as the nodes are numbered")
    reorder_pays: bool = Field(description="whether GNNAdvisor's test would renumber it")
    communities: Count | None = Field(None, description="communities that rabbit order finds at resolution 1")
    community_mean: float | None = Field(None, ge=0, description="nodes of a community: mean")
    community_deviation: float | None = Field(None, ge=0, description="their standard deviation")
    community_largest: Count | None = Field(None, description="the most")
    span_rabbit: float | None = Field(None, ge=0, description="averaged edge span in rabbit order")
    rabbit_seconds: Seconds | None = Field(
        None,
        description="seconds to find communities and rabbit order of the graph in memory; shards are not among them",
    )
