"""Compiles the kernels that a job will need before the job continues, so that timed sections compile nothing."""

from __future__ import annotations

from collections.abc import Sequence

from mgg.backend.api import World, together
from mgg.kernel.compile import Build
from mgg.kernel.compile_ahead import ahead


def compile_ahead(world: World, builds: Sequence[Build], *, must: bool = True) -> None:
    """Compile ``builds`` and wait for compilations begun at the start of the job; does nothing on CPUs (collective).

    Args:
        world: this PE's view of the job.
        builds: the kernels that the PEs will request.
        must: raise if a build fails; otherwise the error comes when the kernel is requested.

    Raises:
        MachineError: see ``mgg.kernel.compile.cubin`` (on every PE).
    """
    arch = getattr(world.operators, "arch", "") if world.gpu else ""
    if not arch:
        return

    def finish() -> None:
        ahead.expect(builds)
        ahead.start(arch)
        ahead.finish(builds, arch, must=must)

    together(world, finish)
