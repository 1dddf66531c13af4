"""The kernels that a training on GPUs will need, as far as the model and the technique determine them."""

from __future__ import annotations

from typing import Any

from mgg.aggregate import AUTO, parse_options
from mgg.aggregate.expected_kernels import of_auto, of_products
from mgg.backend.api import World
from mgg.backend.compiling import compile_ahead
from mgg.backend.machine.start_times import start_times
from mgg.kernel.compile import Build, build_of
from mgg.model import Chain, Model, find
from mgg.model.halo.weighed_attention import WeighedAttention
from mgg.model.neighborhood import Neighborhood
from mgg.model.program import asked_of, programs_of


def of_training(
    model: str | Model, technique: str, options: dict[str, Any], dtype: str, *, shmem: bool = True
) -> list[Build]:
    """Return the kernels to compile ahead; with ``shmem``, kernels may call NVSHMEM.

    Raises:
        InputError: unknown model, technique or option.
    """
    if technique == AUTO:
        builds = of_auto([dtype])
    else:
        builds = of_products([(technique, parse_options(technique, options))], [dtype], shmem=shmem)
    find(model)
    # Sparse features are always multiplied in float32.
    plain = [build_of(source, 32) for source in ("rows", "narrow_rows")]
    return builds + [build for build in plain if build not in builds]


def of_programs(chain: Chain, graph: Neighborhood) -> list[Build]:
    """Return the kernels of the vertex programs of ``chain`` for this PE's graph; none on CPUs (collective)."""
    found: list[Build] = []
    for layer in programs_of(chain):
        (trained, inputs), (evaluated, _) = (asked_of(chain, layer, training=training) for training in (True, False))
        found += layer.builds(graph, trains_constant=trained, evaluates_constant=evaluated, inputs=inputs)
    for module in chain.modules:
        if isinstance(module, WeighedAttention):
            found += module.builds(graph)
    return [build for place, build in enumerate(found) if build not in found[:place]]


def compile_kernels(world: World, model: Model, technique: str, options: dict[str, Any], dtype: str) -> None:
    """Compile the kernels that the GPUs will launch, before the first epoch (collective)."""
    if not world.gpu:
        return
    compile_ahead(world, of_training(model, technique, options, dtype, shmem=world.shmem))
    start_times.done("kernels")
