"""The phases in which models run operations on arcs; on stand-ins for GPUs as ``python phases_program.py CALLS``.

CALLS is JSON: keywords of trainings, each with a layout's ``folder``. Rank 0 prints the operations and NVTX ranges of
every rank as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from mgg import layout
from mgg.backend import World, launch
from mgg.model.arrays import Arrays
from mgg.model.halo import FetchedHalo
from mgg.train import train

HALO = ("fetch", "start_return", "finish_return")
#: Operation -> its phase: all operations on arcs and with weights on several PEs, but for the transfers.
PHASE_OF = {name: "aggregate" for name in (*vars(Arrays), *HALO) if name.startswith("arc_") or name in HALO}
PHASE_OF |= {name: "dense" for name in vars(Arrays) if "product" in name}
#: Models that call all of them, with small settings.
TRAININGS: list[dict[str, Any]] = [
    {"model": "gat", "technique": "halo", "epochs": 2, "settings": {"hidden": 4}},
    {"model": "gat", "technique": "halo", "epochs": 2, "settings": {"hidden": 4, "attention": "product"}},
    {"model": "gatv2", "technique": "halo", "epochs": 2, "settings": {"hidden": 4}},
    {"model": "appnp", "technique": "halo", "epochs": 2, "settings": {"hidden": 4, "steps": 2}},
]


def watch(
    arrays: type, world: type, phase: Callable[[], str], replace: Callable[[Any, str, Any], None] = setattr
) -> dict[str, set[str]]:
    """Record from now on the phases in which each of ``PHASE_OF`` and ``get_rows`` is called.

    Args:
        arrays, world: the classes of the device's array operations and of its World.
        phase: returns the current phase.
        replace: a ``setattr``.

    Returns:
        Operation -> its phases so far.
    """
    seen: dict[str, set[str]] = {}

    def recorded(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            seen.setdefault(name, set()).add(phase())
            return inner(*args)

        return call

    for name in (*PHASE_OF, "get_rows"):
        owner = world if name == "get_rows" else FetchedHalo if name in HALO else arrays
        replace(owner, name, recorded(name, getattr(owner, name)))
    return seen


def main(calls: str) -> None:
    """Run on stand-ins, whose NVTX ranges are the phases."""
    from cupy.cuda import ranges
    from mpi4py import MPI

    from mgg.backend.nvshmem import NvshmemWorld
    from mgg.model.arrays.cuda import CudaArrays

    seen = watch(CudaArrays, NvshmemWorld, lambda: ranges.open[-1] if ranges.open else "other")

    def program(world: World) -> list[Any]:
        for options in json.loads(calls):
            train(world, layout.load(options.pop("folder"), world.rank), **options)
        operations = {name: sorted(phases) for name, phases in seen.items()}
        return world.gather({"operations": operations, "pushed": sorted(set(ranges.pushed)), "open": ranges.open})

    found = launch("nvshmem", MPI.COMM_WORLD.Get_size, program)[0]
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
