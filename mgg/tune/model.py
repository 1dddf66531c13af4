"""The performance and resource model of MGG (OSDI'23, section 6), and which settings a GPU cannot run.

Equations 1 to 3 are as printed, with quotients rounded up, since there are no parts of warps and blocks. Of the
paper's constraints, ``numSMs <= c1`` says nothing of a setting, and equation 1 lets all of its settings pass at up to
602 columns on an A100, since it counts two rows a warp where a pipeline also holds those that are on their way. So
what cannot run is told by the shared memory that our kernel asks for (``mgg.kernel.tiles``), its threads and its
registers. Workload a warp and blocks a multiprocessor decide nothing, in the paper as here: they are told beside the
times.
"""

from __future__ import annotations

from dataclasses import dataclass

from mgg.tune.setting import Setting

#: Bytes of an id and of a number (IntS, FloatS).
INT, FLOAT = 4, 4
WARP = 32
#: Registers of a thread of our kernel (``__maxnreg__`` in kernels/aggregate/mgg.cu).
REGISTERS = 80


@dataclass(frozen=True)
class Limits:
    """What a GPU has for one block.

    Attributes:
        shared_memory: bytes.
        threads: of a block.
        registers: 32-bit ones.
    """

    shared_memory: int
    threads: int
    registers: int


@dataclass(frozen=True)
class Load:
    """What a setting makes of a product on one PE.

    Attributes:
        wpw: workload a warp, columns of rows (equation 1).
        smem: bytes of shared memory a block, as printed (equation 1).
        warps: (equation 2).
        blocks, blocks_per_sm: (equation 3).
    """

    wpw: int
    smem: int
    warps: int
    blocks: int
    blocks_per_sm: float


def load(setting: Setting, dim: int, local: int, remote: int, processors: int) -> Load:
    """What ``setting`` makes of a product.

    Args:
        setting: of the kernel.
        dim: embedding columns.
        local, remote: neighbor partitions of either kind, cut at the setting's ps.
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


def refusal(setting: Setting, shared: int, limits: Limits) -> str:
    """Why a GPU cannot run ``setting``; empty: it can.

    Args:
        setting: of the kernel.
        shared: bytes of shared memory that the kernel asks for a block.
        limits: of the GPU.
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
