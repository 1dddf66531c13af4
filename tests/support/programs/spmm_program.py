"""Products of every technique on layouts; ``python spmm_program.py BACKEND OUT LAYOUT...`` runs it on MPI ranks.

``--variants`` adds the variants; ``--crossing`` adds those with other transfers, all with FEW_DIMS. BACKEND may be
``threads:P``: P threads with GPUs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from math import isqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mgg import layout
from mgg.aggregate import all_techniques, prepare
from mgg.backend import World, job_size, launch

DIMS = (1, 3, 16, 41, 64, 100, 128, 602)
#: Widths of the variants, and of graphs with more than WIDE_NODES nodes.
FEW_DIMS = (1, 41, 128)
WIDE_NODES = 15_000
#: A further width of variants with a primitive of NVSHMEM: two tiles of columns in a launch, and one for the rest.
MANY_TILES = 300
#: Widths of the variants with bf16: rows aligned to 2, 4, 8 and 16 bytes.
BF16_DIMS = (41, 130, 100, 128)


class Variant(NamedTuple):
    """A technique, its options and the type of embeddings."""

    technique: str
    options: dict[str, Any]
    dtype: str = "fp32"


#: Every ablation and primitive of ``mgg``, and the extremes of its options; bf16; workgroups, and bf16 between them;
#: every step of ``cola``; every idea of ``gnnadvisor`` off, and its Decider; every choice of ``seastar``.
VARIANTS: dict[str, Variant] = {
    "mgg:warp": Variant("mgg", {"primitive": "warp"}),
    "mgg:thread": Variant("mgg", {"primitive": "thread"}),
    "mgg:block": Variant("mgg", {"primitive": "block"}),
    "mgg:synchronous": Variant("mgg", {"asynchronous": False}),
    "mgg:separate": Variant("mgg", {"interleave": False}),
    "mgg:whole-rows": Variant("mgg", {"neighbor_partition": False}),
    "mgg:nothing": Variant("mgg", {"asynchronous": False, "interleave": False, "neighbor_partition": False}),
    "mgg:nothing-warp": Variant(
        "mgg",
        {"primitive": "warp", "asynchronous": False, "interleave": False, "neighbor_partition": False},
    ),
    "mgg:least": Variant("mgg", {"ps": 1, "dist": 1, "wpb": 1}),
    "mgg:most": Variant("mgg", {"ps": 32, "dist": 16, "wpb": 16}),
    "mgg:most-block": Variant("mgg", {"ps": 32, "dist": 16, "wpb": 16, "primitive": "block"}),
    "mgg:merged": Variant("mgg", {"merge": True, "ps": 4, "dist": 2, "wpb": 3}),
    "mgg:short-remote": Variant("mgg", {"ps_remote": 3}),
    "broadcast:2": Variant("broadcast", {"replication": 2}),
    "broadcast:grid": Variant("broadcast", {"grid": True}),
    "halo:1": Variant("halo", {"workgroup": 1}),
    "halo:2": Variant("halo", {"workgroup": 2}),
    "halo:cover": Variant("halo", {"split": "cover"}),
    "halo:2-cover": Variant("halo", {"workgroup": 2, "split": "cover"}),
    "halo:columns": Variant("halo", {"split": "columns"}),
    "local:bf16": Variant("local", {}, "bf16"),
    "halo:bf16": Variant("halo", {}, "bf16"),
    "halo:1-bf16": Variant("halo", {"workgroup": 1}, "bf16"),
    "halo:2-bf16": Variant("halo", {"workgroup": 2}, "bf16"),
    "cola:1": Variant("cola", {"workgroup": 1}),
    "cola:2": Variant("cola", {"workgroup": 2}),
    "cola:fetched": Variant("cola", {"workgroup": 2, "coalesced": False}),
    "cola:unfused": Variant("cola", {"workgroup": 2, "fusion": False}),
    "cola:waiting": Variant("cola", {"workgroup": 2, "pipelined": False}),
    "dgcl:1": Variant("dgcl", {"workgroup": 1}),
    "dgcl:2": Variant("dgcl", {"workgroup": 2, "batch": 1}),
    "gnnadvisor:atomic": Variant("gnnadvisor", {"sums": "atomic"}),
    "gnnadvisor:alone": Variant("gnnadvisor", {"leader": False}),
    "gnnadvisor:alone-atomic": Variant("gnnadvisor", {"leader": False, "sums": "atomic"}),
    "gnnadvisor:continuous": Variant("gnnadvisor", {"ngs": 2, "dw": 5, "tpb": 1024, "mapping": "continuous"}),
    "gnnadvisor:least": Variant("gnnadvisor", {"ngs": 1, "dw": 1, "tpb": 32}),
    "gnnadvisor:most": Variant("gnnadvisor", {"ngs": 1024, "dw": 32, "tpb": 1024}),
    "gnnadvisor:paper": Variant("gnnadvisor", {"decide": "paper"}),
    "gnnadvisor:artifact": Variant("gnnadvisor", {"decide": "artifact"}),
    "seastar:basic": Variant("seastar", {"groups": "block", "arcs": "sequence"}),
    "seastar:parallel": Variant("seastar", {"arcs": "parallel", "blocks": "static"}),
    "seastar:atomic": Variant("seastar", {"arcs": "sequence", "blocks": "atomic", "rows": "sorted"}),
    "seastar:warp": Variant("seastar", {"groups": "warp", "blocks": "static", "rows": "sorted"}),
}
#: Those with other transfers, or another order of them.
CROSSING = [label for label in VARIANTS if label.startswith(("broadcast:", "halo:", "cola:", "dgcl:"))] + ["mgg:merged"]


def widths(label: str) -> tuple[int, ...]:
    """The widths of a variant's products."""
    _, options, dtype = VARIANTS[label]
    if dtype == "bf16":
        return BF16_DIMS
    return FEW_DIMS if options.get("primitive", "direct") == "direct" else (*FEW_DIMS, MANY_TILES)


def variant(label: str) -> Variant:
    """The variant of a label; a technique's name stands for its defaults."""
    return VARIANTS.get(label) or Variant(label, {})


def inputs(nodes: np.ndarray, dim: int) -> np.ndarray:
    """Embeddings float32 [len(nodes), dim], a fixed function of node id and column."""
    return np.sin(nodes[:, None] * 12.9898 + np.arange(dim) * 78.233).astype(np.float32)


def divides(options: dict[str, Any], pes: int) -> bool:
    """Whether ``pes`` PEs can form the replicas and workgroups of the options."""
    if options.get("grid") and isqrt(pes) ** 2 != pes:
        return False
    return pes % options.get("replication", 1) ** 2 == 0 and pes % options.get("workgroup", 1) == 0


def runnable(world: World, label: str) -> bool:
    """Whether the technique or variant can run on this world: some need one PE, one process or NVSHMEM."""
    name, options, _ = variant(label)
    plan = all_techniques()[name]
    if (plan.single_pe and world.size > 1) or not divides(options, world.size):
        return False
    if plan.one_process and world.size > 1:
        return not world.gpu or world.name == "simulated"
    return options.get("primitive", "direct") == "direct" or not world.gpu or world.shmem


def products(
    world: World,
    folder: Path,
    dims: Iterable[int],
    options: dict[str, dict[str, Any]] | None = None,
    only: Iterable[str] | None = None,
    moved: dict[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """This PE's rows of every product, by ``"technique direction dim"``.

    Args:
        world: the World.
        folder: the layout.
        dims: widths.
        options: options by technique; for those of variants see VARIANTS.
        only: techniques and variants, by default all techniques; those that cannot run are left out.
        moved: gets the bytes of embeddings that each product moved, by the same keys.
    """
    part = layout.load(folder, world.rank)
    found = {}
    for label in only or all_techniques():
        if not runnable(world, label):
            continue
        technique, chosen, dtype = variant(label)
        for direction in ("forward", "transpose"):
            plan = prepare(technique, world, part, direction, max(dims), chosen or (options or {}).get(label), dtype)
            for dim in dims:
                plan.write(dim, world.upload(inputs(part.node_ids, dim)))
                key, before = f"{label} {direction} {dim}", world.counters.embeddings()
                found[key] = world.download(plan(dim))
                if moved is not None:
                    moved[key] = world.counters.embeddings() - before
            plan.close()
    return found


def all_products(world: World, folder: Path, options: set[str], moved: dict[str, int]) -> dict[str, np.ndarray]:
    """The products of all techniques, and of the variants that the command-line ``options`` add."""
    wide = "--crossing" not in options and layout.load(folder, world.rank).nodes <= WIDE_NODES
    found = products(world, folder, DIMS if wide else FEW_DIMS, moved=moved)
    for label in VARIANTS if "--variants" in options else CROSSING if "--crossing" in options else ():
        found |= products(world, folder, widths(label), only=[label], moved=moved)
    return found


def _main(backend: str, out: Path, folders: list[Path], options: set[str]) -> None:
    def program(world: World) -> None:
        for number, folder in enumerate(folders):
            moved: dict[str, int] = {}
            np.savez(out / f"{number}-{world.rank}.npz", **all_products(world, folder, options, moved))
            (out / f"{number}-{world.rank}.json").write_text(json.dumps(moved), encoding="utf-8")

    name, _, threads = backend.partition(":")
    if name == "threads":
        from mgg.backend.threads import run

        run(int(threads), program)
    else:
        launch(backend, job_size, program)


if __name__ == "__main__":
    chosen = {"--crossing", "--variants"} & {*sys.argv}
    arguments = [text for text in sys.argv[1:] if text not in chosen]
    _main(arguments[0], Path(arguments[1]), [Path(name) for name in arguments[2:]], chosen)
