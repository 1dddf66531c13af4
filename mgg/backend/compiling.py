"""Kernels that a job is known to need are compiled before it goes on, so that nothing compiles in what is timed."""

from __future__ import annotations

from collections.abc import Sequence

from mgg.backend.api import World, together
from mgg.kernel.ahead import ahead
from mgg.kernel.compile import Build


def compile_ahead(world: World, builds: Sequence[Build], *, must: bool = True) -> None:
    """Compile ``builds``, and wait for what was begun at the start of the job; nothing to do on CPUs (collective).

    Args:
        world: the PEs.
        builds: what they will ask for.
        must: without it, a build that cannot be compiled is left to whoever asks for it.

    Raises:
        MachineError: as ``mgg.kernel.compile.cubin`` (on every PE).
    """
    arch = getattr(world.operators, "arch", "") if world.gpu else ""
    if not arch:
        return

    def finish() -> None:
        ahead.expect(builds)
        ahead.start(arch)
        ahead.finish(builds, arch, must=must)

    together(world, finish)
