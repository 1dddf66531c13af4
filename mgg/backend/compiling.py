"""Kernels that a job is known to need are compiled before it goes on, so that nothing compiles in what is timed."""

from __future__ import annotations

from collections.abc import Sequence

from mgg.backend.api import World, together
from mgg.kernel.ahead import ahead
from mgg.kernel.compile import Build


def compile_ahead(world: World, builds: Sequence[Build]) -> None:
    """Compile ``builds``, and wait for what was begun at the start of the job; nothing to do on CPUs (collective).

    Raises:
        MachineError: as ``mgg.kernel.compile.cubin`` (on every PE).
    """
    arch = getattr(world.operators, "arch", "") if world.gpu else ""
    if not arch:
        return

    def finish() -> None:
        ahead.expect(builds)
        ahead.start(arch)
        ahead.finish()

    together(world, finish)
