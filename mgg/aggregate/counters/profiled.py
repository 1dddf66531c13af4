"""Run one product for Nsight Compute: ``python -m mgg.aggregate.counters.profiled CASE``, which
``mgg aggregate --profile`` starts.

All PEs are threads of this process, each with a GPU. So one profiler sees all their kernels, and none of these is a
barrier of NVSHMEM, which would wait forever because the profiler runs kernels one by one. A first product loads the
kernels; only the second one is profiled.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from mgg.aggregate import accepted, oracle, prepare
from mgg.backend import World, launch_threads
from mgg.errors import MggError
from mgg.layout import load


class ProfiledCase(BaseModel):
    """The product to profile: a technique, its options, a direction, a width and a dtype, on a layout."""

    layout: Path
    pes: int
    technique: str
    options: dict[str, object]
    direction: str
    dim: int
    dtype: str


def product(world: World, case: ProfiledCase) -> None:
    """Prepare the product and compute it twice, the second time under the profiler (collective)."""
    from mgg.backend import gpu

    layout = load(case.layout, world.rank)
    accepted(case.technique, world, layout, case.options, case.dtype)
    plan = prepare(case.technique, world, layout, case.direction, case.dim, case.options, case.dtype)
    plan.write(case.dim, world.upload(oracle.embeddings(layout.node_ids, case.dim)))
    out = world.xp.empty((layout.rows, case.dim), np.float32)
    clock = world.clock()
    for profiled in (False, True):
        world.gather(None)
        if profiled and world.rank == 0:
            gpu.start_profiler()
        world.gather(None)
        clock.start()
        plan(case.dim, out)
        clock.stop()  # waits for the GPU
    world.gather(None)
    if world.rank == 0:
        gpu.stop_profiler()
    plan.close()


def main(text: str) -> int:
    """Run the case in JSON ``text``; print an error as one line, like ``mgg``."""
    case = ProfiledCase.model_validate_json(text)
    try:
        launch_threads(lambda: case.pes, lambda world: product(world, case))
    except MggError as error:
        print(f"mgg: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
