"""The kernels that a training on GPUs will ask for, as far as the model and the technique tell."""

from __future__ import annotations

from typing import Any

from mgg.aggregate import AUTO, parse_options
from mgg.aggregate import technique as technique_of
from mgg.kernel.compile import Build, build_of
from mgg.model import MODELS


def foreseen(model: str, technique: str, options: dict[str, Any], dtype: str) -> list[Build]:
    """What to compile ahead; ``auto`` most often takes ``halo``, and measures other products before.

    Raises:
        InputError: unknown model, technique or option.
    """
    name = "halo" if technique == AUTO else technique
    builds = technique_of(name).builds(parse_options(name, {} if technique == AUTO else options), dtype)
    sources = [*getattr(MODELS.find(model), "KERNELS", ()), *(("partitions", "columns") if technique == AUTO else ())]
    # Features that are sparse are multiplied as they are, float32.
    return builds + [build for build in map(_plain, ("rows", *sources)) if build not in builds]


def _plain(source: str) -> Build:
    return build_of(source, 32)
