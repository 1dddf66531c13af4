"""The kernels that products on GPUs will need, as far as techniques declare them."""

from __future__ import annotations

from collections.abc import Iterable

from mgg.aggregate import parse_options, technique
from mgg.aggregate.options import TechniqueOptions
from mgg.kernel.compile import Build


def of_products(
    chosen: Iterable[tuple[str, TechniqueOptions]], dtypes: Iterable[str], *, shmem: bool = True
) -> list[Build]:
    """Return the kernels to compile ahead for each (technique, options) and dtype, without duplicates.

    Types that a technique does not support are skipped, as their products are.

    Args:
        shmem: kernels may call NVSHMEM, see ``World.shmem``.

    Raises:
        InputError: unknown technique.
    """
    types, found = list(dtypes), list[Build]()
    for name, options in chosen:
        plan = technique(name)
        for dtype in types:
            if dtype in plan.dtypes:
                found += [build for build in plan.builds(options, dtype, shmem) if build not in found]
    # Without NVSHMEM, techniques that call it are refused.
    return [build for build in found if shmem or not build.nvshmem]


def of_auto(dtypes: Iterable[str]) -> list[Build]:
    """Return the kernels to compile ahead before ``auto`` has picked a technique: those of ``halo``, its usual pick."""
    return of_products([("halo", parse_options("halo", {}))], dtypes)
