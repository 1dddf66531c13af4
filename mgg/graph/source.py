"""Opens the SOURCE of ``mgg graph`` for reading: the name of a data set, raw files or a graph folder."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mgg.errors import InputError, memory_error
from mgg.graph.datasets import Dataset, catalog, find
from mgg.graph.io.columns import ColumnChoice, sentence
from mgg.graph.manifest import MANIFEST_FILE
from mgg.graph.retrieve import retrieve
from mgg.graph.source_description import SOURCE_FILE, check_files, description
from mgg.graph.sources import (
    CHUNK_ARCS,
    Arcs,
    ArcStream,
    FeatureStream,
    StreamedGraph,
    find_loader,
    loader_of,
    reads_columns,
)
from mgg.graph.store import Graph
from mgg.graph.user_files import needs_loader

_log = logging.getLogger(__name__)
#: No choice of columns by the user.
NONE = ColumnChoice()


@dataclass(frozen=True)
class Source:
    """An opened source of a graph.

    Attributes:
        name: name of the graph.
        graph: its arcs and node data.
        facts: its origin, for the manifest.
        dataset: its entry in the catalogue; None for the user's own files.
        made: the opened graph folder, if SOURCE is one.
    """

    name: str
    graph: StreamedGraph
    facts: dict[str, Any]
    dataset: Dataset | None = None
    made: Graph | None = None

    @property
    def undirected(self) -> bool:
        """Return whether each arc stands for both directions according to the catalogue."""
        return self.dataset is not None and self.dataset.undirected


@contextmanager
def opened(
    source: str | Path | Source, scratch: Path, loader: str | None = None, columns: ColumnChoice = NONE
) -> Iterator[Source]:
    """Open SOURCE for reading.

    Args:
        source: an opened source, the name of a data set (a string), or a file or folder. Folders of ``mgg retrieve``
            and ``mgg graph`` and files with a well-known suffix determine their loader; anything else needs
            ``loader``. Write ``./NAME`` for a folder with the name of a data set.
        scratch: a folder that does not exist; gets the raw files of a named data set, and is removed at the end.
        loader: which reader to use.
        columns: the user's choice of a table's columns.

    Raises:
        InputError: the name is unknown (the message has the nearest ones), or files do not match the loader.
    """
    if isinstance(source, Source):
        yield source
        return
    if isinstance(source, str) and source in catalog():
        try:
            retrieve(source, scratch)
            yield _raw(scratch, loader, columns)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return
    path = Path(source)
    if not path.exists():
        raise unknown_source(str(source))
    made = loader is None and (path / MANIFEST_FILE).is_file()
    if made and columns:
        raise InputError(f"{path}: a graph folder has no columns: --column and --columns are for tables")
    if not made:
        yield _raw(path, loader, columns)
        return
    graph = Graph.open(path)
    yield Source(graph.manifest.name, stored(graph), graph.manifest.source, made=graph)


def _raw(path: Path, loader: str | None, columns: ColumnChoice) -> Source:
    dataset = None
    if (path / SOURCE_FILE).is_file():
        made = description(path)
        check_files(path, made)
        name, facts = made.name, {"licence": made.licence, "files": made.files}
        if loader in (None, made.loader):
            loader, dataset = made.loader, catalog().get(made.name)
    else:
        loader = loader or loader_of(path)
        name, facts = os.fsencode(path.resolve().name).decode("utf-8", "replace"), {}
    if loader is None:
        raise InputError(needs_loader(path, "--loader"))
    if columns and not reads_columns(loader):
        raise InputError(f"{path}: loader {loader} reads no table: --column and --columns are not for it")
    try:
        data = find_loader(loader)(path, columns) if columns else find_loader(loader)(path)
    except MemoryError:
        raise memory_error(f"{path} does not fit") from None
    return Source(name, data, {"loader": data.loader or loader, **facts, **report_columns(name, data)}, dataset)


def report_columns(name: str, graph: StreamedGraph) -> dict[str, Any]:
    """Log what was read, by role, and what was ignored; return the same for the manifest."""
    if not graph.columns:
        return {}
    _log.warning("%s: columns: %s", name, sentence(graph.columns))
    return {"columns": {kind: dict(roles) for kind, roles in graph.columns.items()}}


def unknown_source(source: str) -> InputError:
    """Return the error for a source that does not exist; for a name, with the data sets called similarly."""
    if "/" in source or "." in source:
        return InputError(f"{source}: no such file or folder")
    try:
        find(source)
    except InputError as error:
        return InputError(f"{source}: no such file or folder, and {error}")
    return InputError(f"{source}: no such file or folder")


def stored_arcs(graph: Graph) -> ArcStream:
    """Return the arcs of a graph folder."""
    manifest = graph.manifest

    def read() -> Iterator[Arcs]:
        for first, csr in graph.blocks():
            targets = np.repeat(np.arange(first, first + csr.rows), np.diff(csr.indptr))
            for lo in range(0, csr.arcs, CHUNK_ARCS):
                at = slice(lo, lo + CHUNK_ARCS)
                weights, types = (None if values is None else values[at] for values in (csr.weights, csr.types))
                yield Arcs(targets[at], csr.indices[at], weights, types)

    return ArcStream(
        read,
        manifest.nodes,
        weighted=manifest.weighted,
        relations=manifest.relations,
        repeats=manifest.repeats,
        loops=manifest.loops,
    )


def stored(graph: Graph) -> StreamedGraph:
    """Return the contents of a graph folder."""
    manifest = graph.manifest

    def features() -> Iterator[np.ndarray]:
        for _, shard in manifest.parts("features"):
            block = graph.features(shard.first, shard.first + shard.rows)
            assert block is not None  # the manifest lists its parts
            yield block

    return StreamedGraph(
        arcs=stored_arcs(graph),
        features=FeatureStream(features, manifest.features) if manifest.features else None,
        labels=graph.labels(0, manifest.nodes),
        splits=graph.splits(0, manifest.nodes),
        classes=manifest.classes or None,
        tasks=graph.tasks(0, manifest.nodes),
        ids=graph.ids(0, manifest.nodes),
    )
