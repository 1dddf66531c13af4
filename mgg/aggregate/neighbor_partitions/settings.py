"""Access to the tuning table: a job's key and entry, and the settings that the job's GPUs can run."""

from __future__ import annotations

import hashlib
import inspect
import platform
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

from mgg.aggregate.neighbor_partitions import on_cpus as mgg_on_cpus
from mgg.aggregate.options import TechniqueOptions
from mgg.backend import World
from mgg.backend.api import together
from mgg.kernel import cpu
from mgg.kernel.column_tiles import mgg_shared
from mgg.kernel.compile import build_of, source_hash
from mgg.layout import PeLayout
from mgg.origin import cpu_model
from mgg.tune import table
from mgg.tune.model import BlockLimits, refusal
from mgg.tune.setting import NAMES, Setting
from mgg.tune.table import Entry, Key

#: The technique that is tuned.
TECHNIQUE = "mgg"
#: Options that are not part of a key: the tuned ones, and the one that selects the tuner.
_TUNED = (*NAMES, "tune")


def key_of(world: World, layout: PeLayout, direction: str, dim: int, options: TechniqueOptions, dtype: str) -> Key:
    """Return the key of a product in the table (collective; every PE gets the same result)."""
    members = world.gather((world.gpu or cpu_model(), platform.node()))
    others = {name: value for name, value in options.model_dump().items() if name not in _TUNED}
    return Key(
        device=" + ".join(sorted({device for device, _ in members})),
        backend=world.name,
        hosts=len({host for _, host in members}),
        pes=world.size,
        layout=layout.manifest.digest(),
        direction=cast('Literal["forward", "transpose"]', direction),
        dim=dim,
        dtype=dtype,
        technique=TECHNIQUE,
        options=others,
        kernel=_kernel_hash(world, str(others["primitive"])),
    )


def _kernel_hash(world: World, primitive: str) -> str:
    """Hash the sources of the CUDA kernel, or of the loops of CPU ranks."""
    if world.gpu:
        return source_hash(build_of(TECHNIQUE, 32, primitive))
    sources = (inspect.getsource(module) for module in (mgg_on_cpus, cpu))
    return hashlib.sha256("".join(sources).encode()).hexdigest()


def entry_of(world: World, key: Key) -> Entry | None:
    """Return the table's entry for ``key`` as rank 0 reads it, the same on every PE (collective)."""
    return world.gather(together(world, lambda: table.read(key) if world.rank == 0 else None))[0]


def limits_of(world: World) -> BlockLimits | None:
    """Return the lowest per-block limits of the job's GPUs (collective); None on CPUs, which run every setting."""
    if not world.gpu:
        return None
    operators: Any = world.operators
    every = world.gather((operators.shared_memory, operators.threads, operators.registers))
    return BlockLimits(*(min(each) for each in zip(*every, strict=True)))


def able_on(limits: BlockLimits | None, dims: Sequence[int]) -> Callable[[Setting], bool]:
    """Return a predicate: can a setting run products of ``dims`` columns within ``limits``?"""

    def able(setting: Setting) -> bool:
        if limits is None:
            return True
        return not any(refusal(setting, mgg_shared(dim, setting.ps, setting.wpb), limits) for dim in dims)

    return able


def untuned(options: dict[str, Any]) -> dict[str, Any]:
    """Return ``options`` without tuning, for products of a matrix other than the layout's."""
    return {name: value for name, value in options.items() if name != "tune"}
