"""The kernels that a training on GPUs will ask for, as far as the model and the technique tell."""

from __future__ import annotations

from typing import Any

from mgg.aggregate import AUTO, parse_options
from mgg.aggregate.foreseen import of_auto, of_products
from mgg.kernel.compile import Build, build_of
from mgg.model import Model, find


def foreseen(
    model: str | Model, technique: str, options: dict[str, Any], dtype: str, *, shmem: bool = True
) -> list[Build]:
    """What to compile ahead; ``shmem``: kernels may call NVSHMEM.

    Raises:
        InputError: unknown model, technique or option.
    """
    if technique == AUTO:
        builds = of_auto([dtype])
    else:
        builds = of_products([(technique, parse_options(technique, options))], [dtype], shmem=shmem)
    # Features that are sparse are multiplied as they are, float32.
    plain = [build_of(source, 32) for source in ("rows", *getattr(find(model).file, "KERNELS", ()))]
    return builds + [build for build in plain if build not in builds]
