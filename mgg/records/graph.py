"""Records of ``mgg describe``: properties of a graph before and after rabbit order, and the time of reordering."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from mgg.records import Count, Origin, Seconds, Sha256


class GraphRecord(Origin):
    """Properties of one graph. Fields on communities and rabbit order are None if these were not computed."""

    again: ClassVar[str] = "run mgg describe again"

    schema_version: Literal[1] = 1
    kind: Literal["graph"] = "graph"
    dataset: str = Field(description="name of the graph")
    graph_hash: Sha256 = Field(description="hash of the graph's shards; graphs with equal hashes are equal")
    nodes: int = Field(ge=1, description="number of nodes")
    arcs: int = Field(ge=0, description="number of stored arcs; a symmetric edge counts twice")
    symmetric: bool = Field(description="whether the adjacency matrix equals its transpose")
    weighted: bool = Field(description="whether the arcs have weights")
    relations: Count = Field(description="number of arc types; 0: arcs have no types")
    features: Count = Field(description="number of feature columns")
    classes: Count = Field(description="number of classes")
    order: str = Field(description="how the nodes are numbered")
    degree_mean: float = Field(ge=0, description="mean number of arcs of a row")
    degree_deviation: float = Field(
        ge=0, description="standard deviation of the number of arcs of a row, over all nodes"
    )
    degree_largest: Count = Field(description="largest number of arcs of a row")
    empty_rows: Count = Field(description="rows without arcs")
    span: float = Field(
        ge=0,
        description="averaged edge span (GNNAdvisor, eq. 4): the mean of |row - column|, as the nodes are numbered",
    )
    reorder_pays: bool = Field(description="whether GNNAdvisor's test would renumber the nodes")
    communities: Count | None = Field(
        None,
        description="number of communities that rabbit order finds at resolution 1; None: not computed, nor are the "
        "fields after it",
    )
    community_mean: float | None = Field(None, ge=0, description="mean number of nodes of a community")
    community_deviation: float | None = Field(
        None, ge=0, description="standard deviation of the number of nodes of a community"
    )
    community_largest: Count | None = Field(None, description="number of nodes of the largest community")
    span_rabbit: float | None = Field(None, ge=0, description="averaged edge span in rabbit order")
    rabbit_seconds: Seconds | None = Field(
        None,
        description="time to find the communities and rabbit order, with the graph in memory",
    )
