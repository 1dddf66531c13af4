"""Make, store and read a partition: ``partition.json`` in a folder of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mgg.config import explain, nearest
from mgg.errors import InputError
from mgg.files import Kind, replace_folder
from mgg.graph.store import Graph
from mgg.partition import edge_balanced, equal_nodes
from mgg.partition.quality import Quality, measure

FILE = "partition.json"
KIND = Kind(FILE)
SCHEMES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "edge_balanced": edge_balanced.split,
    "equal_nodes": equal_nodes.split,
}


class Partition(BaseModel):
    """Row ranges of the PEs of one graph."""

    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[1] = 1
    name: str = Field(description="name of the graph")
    graph_hash: str = Field(description="hash of the graph that was partitioned")
    nodes: int = Field(ge=0)
    pes: int = Field(ge=1)
    scheme: str
    workgroup: int = Field(ge=1, description="PEs joined by fast links")
    bounds: list[int] = Field(description="pes + 1 row ids: PE p owns rows bounds[p] .. bounds[p + 1]")
    quality: Quality


def build(graph_path: str | Path, out: str | Path, *, pes: int, scheme: str, workgroup: int, dim: int) -> Partition:
    """Partition the graph folder ``graph_path`` and write the folder ``out``.

    Raises:
        InputError: an unknown scheme, or a graph that cannot be read (named).
    """
    if scheme not in SCHEMES:
        raise InputError(f"--scheme {scheme}: unknown; {nearest(scheme, SCHEMES)}")
    graph = Graph.open(graph_path)
    bounds = SCHEMES[scheme](graph.offsets(), pes)
    partition = Partition(
        name=graph.manifest.name,
        graph_hash=graph.hash,
        nodes=graph.manifest.nodes,
        pes=pes,
        scheme=scheme,
        workgroup=workgroup,
        bounds=bounds.tolist(),
        quality=measure(graph.rows, bounds, dim),
    )
    with replace_folder(out, KIND) as folder:
        (folder / FILE).write_text(partition.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return partition


def load(folder: str | Path) -> Partition:
    """Read a partition; raises InputError that names the file and what is wrong with it."""
    path = Path(folder) / FILE
    try:
        partition = Partition.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error, Partition)}: run mgg partition again") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: not a partition ({error}): make one with mgg partition") from None
    bounds = np.asarray(partition.bounds, np.int64)
    whole = len(bounds) == partition.pes + 1 and bounds[0] == 0 and bounds[-1] == partition.nodes
    if not whole or np.any(np.diff(bounds) < 0):
        raise InputError(f"{path}: bounds do not cut {partition.nodes} rows into {partition.pes} ranges")
    return partition
