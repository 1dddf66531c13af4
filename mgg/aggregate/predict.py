"""Apply the cost model to graphs, partitions and layouts, nothing run: ``mgg predict`` (docs/concepts/costs.md)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mgg import layout
from mgg.aggregate.auto import Forecast, split_of
from mgg.aggregate.options import TechniqueOptions
from mgg.aggregate.variants import Grid, expand
from mgg.aggregate.workgroups.cover import HaloOptions, Way
from mgg.backend import simulated
from mgg.config import LinkConfig
from mgg.cost.machines import over
from mgg.cost.product import MachineModel, SplitCounts
from mgg.errors import InputError
from mgg.graph.store import Graph
from mgg.layout import store as layouts
from mgg.network import Network
from mgg.origin import origin
from mgg.partition.quality import measure
from mgg.partition.schemes import scheme as find_scheme
from mgg.records import PARTITION_FILE, Partition, read_partition
from mgg.records.prediction import PredictionRecord

_log = logging.getLogger(__name__)


#: Record fields of a graph and how it is split, and the split.
Known = tuple[dict[str, Any], SplitCounts]


@dataclass(frozen=True)
class Question:
    """What to predict for each split.

    Attributes:
        techniques, dims, dtype: names, widths, type of the embeddings.
        variants: grids of options per technique; without a grid, its defaults.
        pes, scheme, workgroup: how to split graphs; partitions and layouts are already split.
    """

    techniques: Sequence[str]
    dims: Sequence[int]
    dtype: str = "fp32"
    pes: Sequence[int] = ()
    scheme: str = "edge_balanced"
    workgroup: int = 8
    variants: Mapping[str, Sequence[Grid]] = field(default_factory=dict)


def predict(paths: Sequence[Path], machine: MachineModel, question: Question) -> list[PredictionRecord]:
    """Return a record for each split, width, technique and set of options that the model covers, in that order.

    Args:
        paths: folders of ``mgg graph``, ``mgg partition`` or ``mgg layout``.

    Raises:
        InputError: a technique or option is unknown, a folder is of another kind, a graph lacks numbers of PEs,
            numbers of PEs lack a graph, or the model covers nothing.
    """
    chosen = [
        (name, options) for name in question.techniques for options in expand(name, {}, question.variants.get(name, ()))
    ]
    split = [any((path / name).is_file() for name in (PARTITION_FILE, layouts.MANIFEST)) for path in paths]
    if question.pes and all(split):
        raise InputError("--pes: partitions and layouts are split already; name a graph to split it for other numbers")
    ways: set[Way] = {options.split for _, options in chosen if isinstance(options, HaloOptions)}
    found = [
        record
        for path in paths
        for known in _known(path, question, ways)
        for record in _records(known, machine, question, chosen)
    ]
    if not found:
        raise InputError(
            f"predict: the cost model does not cover {', '.join(question.techniques)} with {question.dtype} embeddings"
            f" on machine {machine.name}: docs/concepts/costs.md lists what it knows"
        )
    return found


def changed(
    machine: MachineModel, links: Mapping[str, LinkConfig], network: str | None, emulated: Network | None = None
) -> MachineModel:
    """Return ``machine`` with other links; raise InputError for links it cannot have, or two inter-group networks."""
    if network and emulated:
        raise InputError(f"--network {network}: --emulate-network also sets the link between workgroups: leave one out")
    found = machine.model_copy(update={"links": machine.links.changed(links, network)})
    return over(found, emulated) if emulated else found


def _records(
    known: Known, machine: MachineModel, question: Question, chosen: Sequence[tuple[str, TechniqueOptions]]
) -> Iterator[PredictionRecord]:
    facts, split = known
    said, where = Forecast(machine, split, question.dtype), origin()
    if machine.links.links[machine.links.network].source == "emulated" and split.groups == 1:
        _log.warning(
            "%s, P=%d: all PEs are one workgroup, so that nothing crosses the emulated network",
            facts["dataset"], split.pes,
        )  # fmt: skip
    links = {
        name: link.model_dump(include={"latency", "bandwidth", "message"}) for name, link in machine.links.links.items()
    }
    for dim in question.dims:
        costs = said.costs(dim)
        best = said.ranking(dim)[0] if costs else None
        for name, options in chosen:
            cost = said.cost(name, dim, options)
            given = options.model_dump(exclude_defaults=True)
            if cost is None:
                if dim == question.dims[0]:
                    what = ", ".join(f"{key}={value}" for key, value in given.items())
                    _log.warning(
                        "%s, P=%d: not predicted: %s: the cost model does not cover it there (docs/concepts/costs.md)",
                        facts["dataset"], split.pes, f"{name} ({what})" if what else name,
                    )  # fmt: skip
                continue
            yield PredictionRecord(
                **facts, technique=name, options=given, pes=split.pes,
                dim=dim, dtype=question.dtype, machine=machine.name, basis=machine.basis,
                links=links, network=machine.links.network, seconds=cost.seconds,
                arithmetic=cost.arithmetic, transfer=cost.transfer, fixed=cost.fixed, hidden=cost.hidden,
                chosen=name == best and options == said.pick(name, dim), **where,
            )  # fmt: skip


def _known(path: Path, question: Question, ways: Collection[Way]) -> Iterator[Known]:
    if (path / PARTITION_FILE).is_file():
        yield _of_partition(read_partition(path))
    elif (path / layouts.MANIFEST).is_file():
        manifest = layout.read_manifest(path)
        yield _facts(manifest, manifest.arcs), split_of_layout(path, manifest, "forward", ways)
    elif path.is_dir():
        if not question.pes:
            raise InputError(f"{path}: is a graph: name numbers of PEs to split it for, for example --pes 8,64,1024")
        graph = Graph.open(path)
        for pes in question.pes:
            yield _of_graph(graph, pes, question)
    else:
        raise InputError(f"{path}: no such folder of mgg graph, mgg partition or mgg layout")


def _of_partition(record: Partition) -> Known:
    return _facts(record, sum(record.quality.arcs_per_pe)), SplitCounts.of(record)


def _facts(of: Partition | layout.LayoutManifest, arcs: int) -> dict[str, Any]:
    facts = {name: getattr(of, name) for name in ("graph_hash", "nodes", "scheme", "workgroup")}
    return {"dataset": of.name, "arcs": arcs, **facts}


def _of_graph(graph: Graph, pes: int, question: Question) -> Known:
    made = find_scheme(question.scheme)(graph, pes)
    quality = measure(graph.blocks, made.owners(), pes=pes, workgroup=question.workgroup, dim=1)
    return _of_partition(
        Partition(
            name=graph.manifest.name, graph_hash=graph.hash, nodes=graph.manifest.nodes, pes=pes,
            scheme=question.scheme, workgroup=question.workgroup, order=None, bounds=made.bounds.tolist(),
            quality=quality,
        )
    )  # fmt: skip


def split_of_layout(
    path: Path, manifest: layout.LayoutManifest, direction: Literal["forward", "transpose"], ways: Collection[Way] = ()
) -> SplitCounts:
    """Return the statistics of a layout, counted by one thread per PE if workgroups or ``ways`` require counting."""
    counts, members = manifest.direction(direction), min(manifest.workgroup, manifest.pes)
    if members < manifest.pes or set(ways) - {"rows"}:
        return simulated.run(
            manifest.pes, lambda world: split_of(world, layout.load(path, world.rank, manifest), direction, ways)
        )[0]
    return SplitCounts(
        rows=np.diff(manifest.bounds), arcs=np.array(counts.arcs), remote_arcs=np.array(counts.remote_arcs),
        halo_rows=np.array(counts.halo_rows), members=members, outside_arcs=0, outside_rows=0,
        fused_rows=np.zeros(1, np.int64),
    )  # fmt: skip
