"""Stage graph: build a graph folder from a source within a memory budget, in one call or in steps for a cluster."""

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
from mgg.graph.io.columns import ColumnChoice
from mgg.graph.manifest import KIND, Manifest
from mgg.graph.relabel import relabeled
from mgg.graph.reorder import chosen, find_order, needed_bytes, permutation
from mgg.graph.source import NONE, Source, opened, stored
from mgg.graph.store import Graph
from mgg.graph.user_files import check_name

#: Working folder of the steps, inside the new folder.
SCRATCH = ".scratch"


def build(
    source: str | Path | Source,
    out: str | Path,
    *,
    loader: str | None = None,
    columns: ColumnChoice = NONE,
    symmetrize: bool = False,
    repeats: Repeats | None = None,
    loops: Loops | None = None,
    labels: bool = False,
    order: str = "natural",
    memory: Memory | None = None,
    name: str | None = None,
) -> Manifest:
    """Build the graph folder ``out``; the same input gives the same bytes for any memory limit and number of threads.

    Args:
        source: a data set's name, its files, a graph folder (see :func:`mgg.graph.source.opened`), or an opened source.
        out: the graph folder; the finished folder replaces an existing one.
        loader: which reader to use; None: find it from the source.
        columns: the user's choice of a table's columns.
        symmetrize: add the reverse of every arc that is no self-loop.
        repeats: the weight of arcs that join the same nodes (with the same type), added reverses included: the
            ``first``, their ``sum`` or their ``max``; None: the loader's default, for data sets ``first``.
        loops: ``drop`` or ``keep`` arcs from a node to itself; None: the loader's default, for data sets ``drop``.
        labels: refuse a source whose nodes have no labels.
        order: the numbering of nodes: an order of mgg/graph/reorder, or ``auto``.
        memory: the limit of memory and threads.
        name: the graph's name; None: the name of the data set, file or folder.

    Raises:
        InputError: the source's name is unknown (the message has the nearest ones), files do not match the loader or
            lack labels, or ``name`` belongs to another data set or generator.
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
    columns: ColumnChoice = NONE,
    symmetrize: bool = False,
    repeats: Repeats | None = None,
    loops: Loops | None = None,
    labels: bool = False,
    memory: Memory | None = None,
    name: str | None = None,
) -> scattering.Buckets:
    """Run step 1 of :func:`build`: read ``source`` and spool its arcs by row range into the folder ``out``."""
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
    """Run step 2: sort range ``number`` (from 1) of the ``of`` ranges of a scattered graph into the folder ``out``."""
    scattered = scattering.Scattered.open(buckets)
    with replace_folder(out, sharding.KIND) as folder:
        return external.shard(scattered, folder, memory or Memory.beside(), number=number, of=of)


def gather(buckets: str | Path, shards: Sequence[str | Path], out: str | Path) -> Manifest:
    """Run step 3: join the sorted ranges of a scattered graph into the graph folder ``out``."""
    scattered = scattering.Scattered.open(buckets)
    with replace_folder(out, KIND) as folder:
        return external.gather(scattered, [Path(one) for one in shards], folder)


def _named(given: Source, name: str | None) -> Source:
    if name in (None, given.name):
        return given
    check_name(name)
    return replace(given, name=name)


def _check_labels(given: Source, source: str | Path | Source, wanted: bool) -> None:
    """Raise InputError if labels are wanted but missing, which otherwise only training would notice."""
    if wanted and given.graph.labels is None and given.graph.tasks is None:
        where = given.name if isinstance(source, Source) else source
        raise InputError(
            f"{where}: nodes have no labels, and --labels (in the config: graph.datasets.{given.name}.labels) says that"
            " they have; leave it out, or give them labels (docs/concepts/data.md, Your own files)"
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
    """Raise InputError if an option needs arcs that were dropped or merged when the graph folder was made."""
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
    """Run all three steps, with intermediate files in a scratch folder that is removed."""
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
