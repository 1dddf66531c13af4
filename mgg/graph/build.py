"""Stage graph: SOURCE -> a graph folder, within a memory budget, in one go or in steps that a cluster shares."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from mgg.config import Loops, Repeats
from mgg.errors import InputError, MachineError
from mgg.files import refuse_foreign, replace_folder
from mgg.graph import external
from mgg.graph.budget import MIB, limited
from mgg.graph.external import Memory, scattering, sharding
from mgg.graph.external.scattering import Counted
from mgg.graph.external.sharding import Shards
from mgg.graph.io.columns import Columns
from mgg.graph.manifest import KIND, Manifest
from mgg.graph.relabel import relabeled
from mgg.graph.reorder import chosen, find_order, needed_bytes, permutation
from mgg.graph.source import NONE, Source, opened, stored
from mgg.graph.store import Graph
from mgg.graph.user_files import check_name

#: Where the steps of a single call work, inside the folder that is being made.
SCRATCH = ".scratch"


def build(
    source: str | Path | Source,
    out: str | Path,
    *,
    loader: str | None = None,
    columns: Columns = NONE,
    symmetrize: bool = False,
    repeats: Repeats | None = None,
    loops: Loops | None = None,
    labels: bool = False,
    order: str = "natural",
    memory: Memory | None = None,
    name: str | None = None,
) -> Manifest:
    """Make the graph folder ``out``; the same input gives the same bytes, whatever the memory and the threads.

    Args:
        source: the name of a data set, files of one, a graph folder (see :func:`mgg.graph.source.opened`), or what has
            been opened already.
        out: the graph folder; one that exists is replaced when the new one is whole.
        loader: which reader to use.
        columns: what the user says of a table's columns.
        symmetrize: add the reverse of every arc; a self-loop has none.
        repeats: what arcs that join the same nodes (by the same type), added reverses among them, weigh: as the
            ``first``, their ``sum`` or their ``max``; None: as the loader says, of data sets the first.
        loops: ``drop`` or ``keep`` arcs from a node to itself; None: as the loader says, of data sets drop.
        labels: refuse a source whose nodes have no labels.
        order: how nodes are numbered: one of mgg/graph/reorder, or ``auto``.
        memory: how much of it, and how many threads, this may take.
        name: what the graph is called; None: as the data set, or as the file or folder.

    Raises:
        InputError: unknown name (with the nearest ones), files that are not what the loader expects or lack labels, or
            a name that is that of a data set or generator, and not of this one.
        MachineError: the memory does not suffice, or the disk is full.
    """
    memory = memory or Memory.beside()
    find_order(order)
    refuse_foreign(Path(out), KIND)
    with (
        replace_folder(out, KIND) as folder,
        limited(memory.limit),
        opened(source, folder / SCRATCH / "raw", loader, columns) as found,
    ):
        given = _named(found, name)
        _check_labels(given, source, labels)
        plain, as_made = order == "natural", given.made is not None and not (symmetrize or repeats or loops)
        if plain or not as_made:
            target = folder if plain else _subfolder(folder / SCRATCH, "natural")
            manifest = _steps(target, lambda at: _scatter(given, at, memory, symmetrize, repeats, loops), memory)
        if not plain:
            natural = given.made if as_made and given.made is not None else Graph.open(target)
            manifest = _reorder(natural, given.name, folder, order, memory)
        shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    return manifest


def scatter(
    source: str | Path,
    out: str | Path,
    *,
    loader: str | None = None,
    columns: Columns = NONE,
    symmetrize: bool = False,
    repeats: Repeats | None = None,
    loops: Loops | None = None,
    labels: bool = False,
    memory: Memory | None = None,
    name: str | None = None,
) -> scattering.Buckets:
    """Step 1 of :func:`build` alone: read ``source`` and spool its arcs by row range into the folder ``out``."""
    memory = memory or Memory.beside()
    refuse_foreign(Path(out), scattering.KIND)
    with (
        replace_folder(out, scattering.KIND) as folder,
        limited(memory.limit),
        opened(source, folder / SCRATCH / "raw", loader, columns) as found,
    ):
        given = _named(found, name)
        _check_labels(given, source, labels)
        facts = _scatter(given, folder, memory, symmetrize, repeats, loops).facts
        shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    return facts


def shard(buckets: str | Path, out: str | Path, *, number: int, of: int, memory: Memory | None = None) -> Shards:
    """Step 2 alone: sort range ``number`` (from 1) of ``of`` of a scattered graph into the folder ``out``."""
    scattered = scattering.Scattered.open(buckets)
    with replace_folder(out, sharding.KIND) as folder:
        return external.shard(scattered, folder, memory or Memory.beside(), number=number, of=of)


def gather(buckets: str | Path, shards: Sequence[str | Path], out: str | Path) -> Manifest:
    """Step 3 alone: put the sorted ranges of a scattered graph together as the graph folder ``out``."""
    scattered = scattering.Scattered.open(buckets)
    with replace_folder(out, KIND) as folder:
        return external.gather(scattered, [Path(one) for one in shards], folder)


def _named(given: Source, name: str | None) -> Source:
    if name in (None, given.name):
        return given
    check_name(name)
    return replace(given, name=name)


def _check_labels(given: Source, source: str | Path | Source, wanted: bool) -> None:
    """Raise InputError where labels are wanted and there are none: without them, training alone would notice."""
    if wanted and given.graph.labels is None and given.graph.tasks is None:
        where = given.name if isinstance(source, Source) else source
        raise InputError(
            f"{where}: nodes have no labels, and --labels (in the config: graph.datasets.{given.name}.labels) says that"
            " they have; leave it out, or give them labels (docs/data.md, Your own files)"
        )


def _scatter(
    given: Source, folder: Path, memory: Memory, symmetrize: bool, repeats: Repeats | None, loops: Loops | None
) -> scattering.Scattered:
    made, dataset, arcs = given.made, given.dataset, given.graph.arcs
    if made is not None:
        _check_left(made.manifest, repeats, loops)
    if dataset is not None:
        arcs = replace(arcs, repeats="first", loops="drop")
    arcs = replace(arcs, repeats=repeats or arcs.repeats, loops=loops or arcs.loops)
    return external.scatter(
        replace(given.graph, arcs=arcs),
        folder,
        name=given.name,
        source=given.facts,
        memory=memory,
        symmetrize=symmetrize or given.undirected,
        order="natural" if made is None else made.manifest.order,
        counted=None if made is None or symmetrize or repeats or loops else _counted(made.manifest),
        expected={} if dataset is None else dataset.expected(symmetrize, arcs.loops),
    )


def _check_left(made: Manifest, repeats: Repeats | None, loops: Loops | None) -> None:
    """Raise InputError where a graph folder no longer has what an option asks for."""
    gone = {
        f"--loops {loops}": made.dropped_loops if loops == "keep" and made.loops != "keep" else 0,
        f"--repeats {repeats}": made.dropped_repeats if repeats not in (None, made.repeats) else 0,
    }
    for option, count in gone.items():
        if count:
            raise InputError(
                f"{made.name}: {option}: {count} arcs were left out or merged when this graph folder was made; make it"
                " anew from its source, with this option"
            )


def _counted(made: Manifest) -> Counted:
    return Counted(made.listed_arcs, made.dropped_loops, made.dropped_repeats)


def _steps(folder: Path, scatter: Callable[[Path], scattering.Scattered], memory: Memory) -> Manifest:
    """All three steps, with their own files in a scratch folder that is removed."""
    scratch = folder / SCRATCH / "steps"
    scattered = scatter(_subfolder(scratch, "buckets"))
    sorted_rows = _subfolder(scratch, "shards")
    external.shard(scattered, sorted_rows, memory)
    manifest = external.gather(scattered, [sorted_rows], folder, verify=False)
    shutil.rmtree(scratch)
    return manifest


def _reorder(natural: Graph, name: str, folder: Path, order: str, memory: Memory) -> Manifest:
    facts, order = natural.manifest, chosen(natural, order)
    need = needed_bytes(order, facts.nodes, facts.arcs, symmetric=facts.symmetric)
    if need > memory.limit:
        raise MachineError(f"{name}: order {order} needs about {need // MIB} MiB of memory: raise --memory")
    used, rank = permutation(natural, order)
    graph = stored(natural)
    if rank is None:
        used = facts.order
    else:
        graph = relabeled(graph, rank, _subfolder(folder / SCRATCH, "order"))

    def scatter(at: Path) -> scattering.Scattered:
        counts = _counted(facts)
        return external.scatter(graph, at, name=name, source=facts.source, memory=memory, order=used, counted=counts)

    return _steps(folder, scatter, memory)


def _subfolder(folder: Path, name: str) -> Path:
    (folder / name).mkdir(parents=True)
    return folder / name
