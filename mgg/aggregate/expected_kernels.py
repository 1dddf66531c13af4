"""The kernels that products on GPUs will ask for, as far as techniques tell."""

from __future__ import annotations

from collections.abc import Iterable

from mgg.aggregate import parse_options, technique
from mgg.aggregate.options import TechniqueOptions
from mgg.kernel.compile import Build


def of_products(
    chosen: Iterable[tuple[str, TechniqueOptions]], dtypes: Iterable[str], *, shmem: bool = True
) -> list[Build]:
    """What to compile ahead for each (technique, options) with each type of embeddings, each build once.

    A type that a technique does not take is left out, as its products are.

    Args:
        chosen: techniques and their options.
        dtypes: types of the embeddings.
        shmem: kernels may call NVSHMEM, as ``World.shmem`` says.

    Raises:
        InputError: unknown technique.
    """
    types, found = list(dtypes), list[Build]()
    for name, options in chosen:
        plan = technique(name)
        for dtype in types:
            if dtype in plan.dtypes:
                found += [build for build in plan.builds(options, dtype, shmem) if build not in found]
    # Without NVSHMEM what calls it is refused.
    return [build for build in found if shmem or not build.nvshmem]


def of_auto(dtypes: Iterable[str]) -> list[Build]:
    """What to compile ahead for technique ``auto``, which most often takes ``halo``, before it has picked."""
    return of_products([("halo", parse_options("halo", {}))], dtypes)
