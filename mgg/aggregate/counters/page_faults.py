"""Page faults of a technique on unified memory (MGG on arXiv, figure 3), counted separately from the timed products."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgg.aggregate.plan import Plan
from mgg.backend import World
from mgg.errors import MachineError

ON_CPUS = "CPU ranks have no GPUs whose page faults could be counted"


def counted(world: World, plan: Plan, dim: int, iterations: int) -> dict[str, Any]:
    """Return record fields on the page faults of a product: means of ``iterations``, all PEs added up (collective).

    The counted products run after the timed ones and start with the pages where those left them, so counting does not
    slow down a timed product.

    Returns:
        ``page_faults``, ``fault_seconds`` and ``migrated_bytes``; or ``faults_untold``, the reason why there are none;
        or no fields for a technique without unified memory.
    """
    if not plan.unified:
        return {}
    if not world.gpu:
        return {"faults_untold": ON_CPUS}
    # PEs on GPUs that share unified memory are threads of one process, so CUPTI counts them together.
    counter, lack = None, None
    if world.rank == 0:
        from mgg.backend.machine import page_faults

        try:
            counter = page_faults.begin()
        except MachineError as error:
            lack = str(error)
    lack = world.gather(lack)[0]
    if lack:
        return {"faults_untold": lack}
    found: dict[str, Any] = {}
    try:
        out, clock = world.xp.empty((plan.layout.rows, dim), np.float32), world.clock()
        for _ in range(iterations):
            world.barrier()
            clock.start()
            plan(dim, out)
            clock.stop()  # waits for the GPU
        world.gather(None)
    finally:
        if counter is not None:
            found = _faults_by_device(counter, iterations)
    everywhere: dict[str, Any] = world.gather(found)[0]
    return everywhere


def _faults_by_device(counter: Any, iterations: int) -> dict[str, Any]:
    try:
        faults, seconds, migrated = counter.stop()
    except MachineError as error:
        return {"faults_untold": str(error)}
    return {
        "page_faults": faults / iterations,
        "fault_seconds": seconds / iterations,
        "migrated_bytes": migrated / iterations,
    }
