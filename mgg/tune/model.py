"""The performance and resource model of MGG (OSDI'23, section 6), and a check for settings that a GPU cannot run.

Equations 1 to 3 are as printed, with quotients rounded up to whole warps and blocks. The paper's constraints do not
decide what can run: ``numSMs <= c1`` does not depend on the setting, and equation 1 accepts all of the paper's settings
at up to 602 columns on an A100, because it counts two rows per warp, while a pipeline also holds rows in transfer.
The check here uses the shared memory that our kernel requests (``mgg.kernel.column_tiles``), its threads and registers.
Workload per warp and blocks per multiprocessor decide nothing, in the paper and here: they are reported with the times.
"""

from __future__ import annotations

from dataclasses import dataclass

from mgg.tune.setting import Setting

#: Bytes of an id and of a number (IntS, FloatS).
INT, FLOAT = 4, 4
WARP = 32
#: Registers per thread of our kernel (``__maxnreg__`` in kernels/aggregate/mgg.cu).
REGISTERS = 80


@dataclass(frozen=True)
class BlockLimits:
    """The resources of a GPU for one block.

    Attributes:
        shared_memory: bytes per block.
        threads: threads per block.
        registers: 32-bit registers per block.
    """

    shared_memory: int
    threads: int
    registers: int


@dataclass(frozen=True)
class Load:
    """The load of a product on one PE with a setting.

    Attributes:
        wpw: workload per warp, in columns of rows (equation 1).
        smem: bytes of shared memory per block, as printed (equation 1).
        warps: number of warps (equation 2).
        blocks, blocks_per_sm: number of blocks, in all and per multiprocessor (equation 3).
    """

    wpw: int
    smem: int
    warps: int
    blocks: int
    blocks_per_sm: float


def load(setting: Setting, dim: int, local: int, remote: int, processors: int) -> Load:
    """Return the load of a product with ``setting``.

    Args:
        local, remote: numbers of local and remote neighbor partitions, cut at the setting's ps.
        processors: multiprocessors of the GPU.
    """
    ps, dist, wpb = setting
    warps = -(-max(local, remote) // dist)
    blocks = -(-warps // wpb)
    return Load(
        wpw=2 * ps * dim * dist,
        smem=ps * wpb * INT + 2 * wpb * dim * FLOAT,
        warps=warps,
        blocks=blocks,
        blocks_per_sm=blocks / processors,
    )


def refusal(setting: Setting, shared: int, limits: BlockLimits) -> str:
    """Return why a GPU cannot run ``setting``; empty if it can.

    Args:
        shared: bytes of shared memory that the kernel requests per block.
    """
    threads = WARP * setting.wpb
    for wanted, has, what in (
        (shared, limits.shared_memory, "bytes of shared memory"),
        (threads, limits.threads, "threads"),
        (threads * REGISTERS, limits.registers, "registers"),
    ):
        if wanted > has:
            return f"{wanted} {what} a block, this GPU has {has}"
    return ""
