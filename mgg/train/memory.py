"""What a training takes of each PE's memory, said before the first large allocation and compared with what is free.

An estimate from shapes: weights with moments and copies, features, what layers keep for the backward pass, plans,
labels and the nodes of splits. The interpreter, libraries and allocators come on top; layouts of CPU PEs are mapped
files, which the system may drop.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from mgg.aggregate import TechniqueOptions, parse_options, technique
from mgg.aggregate.memory import case_of
from mgg.aggregate.workgroups.stale import stale_bytes
from mgg.backend.api import World, name_pes
from mgg.backend.machine.host_memory import places
from mgg.errors import NOT_ENOUGH_MEMORY, MachineError
from mgg.layout import PeLayout
from mgg.layout.selection import flipped, returning, selection
from mgg.model import Chain
from mgg.model.arrays.pieces import pieces_bytes
from mgg.model.features import dense_bytes
from mgg.model.halo.of_product import takes_product
from mgg.model.halo.turned import NOTHING_TURNED, Turning
from mgg.model.halo.weighed import BACK, looped
from mgg.model.layers import Dropout
from mgg.model.module import Given, Held
from mgg.model.program import programs_of
from mgg.train.run import predictions
from mgg.train.technique import widths

FLOAT, DOUBLE, INDEX, BF16 = 4, 8, 8, 2
#: Bytes a trainable number: itself, two moments, the decay and the best so far; its gradient, once a layer has it;
#: and at the end of the way back all gradients as one vector, before and after they are summed.
PARAMETER, GRADIENT, STEP = 20, 8, 24
#: What a checkpoint has that is being written while training goes on: weights, moments and the best weights so far.
CHECKPOINT = 16
#: And where GPUs sum its gradient: two places in symmetric memory, two of CUDA graphs (their sizes are powers of two),
#: and two sums.
SUMMED = 64
#: Bytes an arc of the lists that models which work arc by arc go by: its ends, both ways round, which one it is, and
#: its weight; beside them while they are made; and on GPUs, which keep how lists are cut as well.
ARC, MAKING, GPU_ARC = 24, 28, 28
#: Bytes an arc of the lists of those that begin here: its end, its number and its run, and where it is sent.
OUT_ARC = 30
#: All of it where models go type by type: their lists have an entry for a row and a source of each type.
TYPED_ARC = 60
#: Bytes an arc of A + I whose weights are made anew, of either direction: its ends, both ways round, and where the
#: product has it; CPUs have the product's arcs and weights besides.
WEIGHED_GPU_ARC, WEIGHED_ARC = 12, 32


class ShortError(MachineError):
    """The memory that is free does not suffice; nothing has been allocated."""


@dataclass(frozen=True)
class Need:
    """Bytes of one PE; on GPUs of its GPU's memory, else of its host's."""

    features: int
    weights: int
    activations: int
    plans: int
    arcs: int
    targets: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(asdict(self).values())


@dataclass(frozen=True)
class Input:
    """The input features of this PE as the first layer takes them.

    Attributes:
        entries: stored ones of a sparse matrix, else all.
        sparse: held as CSR.
        copied: other numbers than in the layout (normalized).
    """

    entries: int
    sparse: bool
    copied: bool


@dataclass(frozen=True)
class Working:
    """What modules are given on one PE, and bytes beside those that they hold.

    Attributes:
        room: what the first module is given.
        beside: while a module works, without logits and the gradient by them.
        losses: while the loss is worked out.
        apart: while no module works: lists of arcs or dense features are made, gradients are summed.
    """

    room: Given
    beside: int
    losses: int
    apart: int

    def bytes_with(self, held: Held) -> int:
        """The most at a time, where the modules together hold ``held``."""
        # The loss leaves logits and the gradient by them.
        working = FLOAT * (held.peak + 2 * self.room.rows * held.columns) + self.beside
        return FLOAT * held.stays + max(working, FLOAT * held.kept + self.losses, self.apart)


def working_of(world: World, layout: PeLayout, chain: Chain, given: Input, losses: int) -> Working:
    """That of this PE; as of ``need``."""
    rows, gpu, product, programs = layout.rows, bool(world.gpu), layout.forward, programs_of(chain)
    numbers = sum(math.prod(parameter.shape) for parameter in chain.parameters)
    added = rows if not programs or any(layer.program.loops for layer in programs) else 0
    arcs = product.local.arcs + product.remote.arcs + added
    room = Given(rows, product.halo, arcs, gpu, constant=True, sparse=given.sparse, inputs=False)
    beside = GRADIENT * numbers + (_pieces(chain, rows, given.sparse) if gpu else 0)
    dense = dense_bytes(given.entries) if gpu and given.sparse and _makes_dense(chain) else 0
    return Working(room, beside, losses, max(_bytes_of_an_arc(chain, gpu)[1] * arcs, dense, STEP * numbers))


def need(
    world: World,
    layout: PeLayout,
    chain: Chain,
    name: str,
    options: dict[str, object],
    dtype: str,
    given: Input,
    targets: int,
    losses: int,
    turned: Turning = NOTHING_TURNED,
    copies: int = 0,
) -> Need:
    """What a training of ``chain`` over technique ``name`` takes on this PE, ``targets`` bytes for what it learns,
    ``losses`` while its loss is worked out, ``turned`` what its turned layers fetch at most, and ``copies`` bytes a
    trainable number of what is kept of weights and optimizer beside them (collective)."""
    rows, gpu = layout.rows, bool(world.gpu)
    numbers = sum(math.prod(parameter.shape) for parameter in chain.parameters)
    if given.sparse:
        # Values and columns; on GPUs also the transpose and each entry's row, on CPUs the coordinates for dropout.
        features = given.entries * (FLOAT + INDEX + 2 * INDEX + FLOAT) + 2 * INDEX * rows
    else:
        features = FLOAT * given.entries if gpu or given.copied else 0
    product, working = layout.forward, working_of(world, layout, chain, given, losses)
    listed = _bytes_of_an_arc(chain, gpu)[0] * working.room.arcs
    activations = working.bytes_with(chain.memory(layout.manifest.features, working.room))
    brings, parsed = chain.fetched and any(layout.manifest.forward.halo_rows), parse_options(name, options)
    if brings and takes_product(name, parsed, layout):
        listed += _brought(world, layout, chain, name, parsed, dtype)
    elif brings:
        listed += FLOAT * _exchanged(layout, chain)
    if chain.weighed.columns:
        listed += _weighed(world, layout, chain, name, parsed)
    if any(turned):
        listed += _turned(world, layout, turned, name, parsed)
    if dtype == "bf16" and not (brings and takes_product(name, parsed, layout)):
        listed += BF16 * chain.fetched * (rows + product.halo)  # until they are widened
    plan, width, several, plans = technique(name), chain.width, len(set(widths(chain))), 0
    # Nobody asks for the gradient by the input: the first module multiplies by the transpose only if others follow.
    returns = any(module.width for module in chain.modules[1:])
    for direction in ("forward", "transpose") if width else ():
        case = case_of(world, plan, layout, direction, width, parsed, dtype, several)
        found = plan.need(case)
        # CPUs work on the mapped layout, and sum in float64 where arcs come from other PEs; results are activations.
        sums = DOUBLE * rows * width if layout.size > 1 and (direction == "forward" or returns) else 0
        plans += found.total if gpu else found.columns - FLOAT * rows * width + sums
        if getattr(parsed, "stale", 0):
            plans += stale_bytes(case, widths(chain) if direction == "forward" or returns else [])
    parameter = PARAMETER + copies + (SUMMED if gpu and layout.size > 1 else 0)
    return Need(features, parameter * numbers, activations, plans, listed, targets)


def copies(world: World, optimizer: str, *, saves: bool) -> int:
    """Bytes a trainable number beside ``PARAMETER``: AdamW's zeros in place of penalties; where a training ``saves``
    checkpoints that of PE 0, which is in the host's memory.
    """
    checkpoint = CHECKPOINT if saves and world.rank == 0 and not world.gpu else 0
    return FLOAT * (optimizer == "adamw") + checkpoint


def _bytes_of_an_arc(chain: Chain, gpu: bool) -> tuple[int, int]:
    """Of the lists that the modules of ``chain`` go by, and beside them for the time that they are made."""
    if not chain.fetched:
        return 0, 0
    if any(layer.relations for layer in programs_of(chain)):
        return TYPED_ARC, 0
    return (GPU_ARC, 0) if gpu else (ARC, MAKING)


def _makes_dense(chain: Chain) -> bool:
    """Whether the first module that sees the features, but for dropout, takes them as a dense array."""
    return not next(module for module in chain.modules if not isinstance(module, Dropout)).takes_sparse


def _pieces(chain: Chain, rows: int, sparse: bool) -> int:
    """Bytes that the largest gradient by weights takes of a GPU before it is summed up."""
    most = 0
    for module in chain.modules:
        if isinstance(module, Dropout):
            continue  # what is sparse stays so
        for parameter in [] if sparse and module.takes_sparse else module.parameters:
            if len(parameter.shape) > 1:
                most = max(most, pieces_bytes(rows, *parameter.shape[-2:]))
        sparse = False
    return most


def _exchanged(layout: PeLayout, chain: Chain) -> int:
    """Numbers that fetching a halo and giving its gradients back takes room for; the input has no gradients."""
    tallest = max(int(np.diff(layout.bounds).max()), *layout.manifest.forward.halo_rows)
    returned = max((module.fetched for module in chain.modules[1:]), default=0)
    return tallest * chain.fetched + len(layout.forward.send_rows) * returned


def _brought(world: World, layout: PeLayout, chain: Chain, name: str, options: TechniqueOptions, dtype: str) -> int:
    """Bytes of the products that bring a halo and its gradients back; what they bring is an activation (collective)."""
    back, bytes_ = returning(layout, world.gather(layout.forward.send_ptr)), 0
    plan, kept = technique(name), len({module.fetched for module in chain.modules} - {0})
    for part, element in ((selection(layout), dtype), (back, "fp32")):
        found = plan.need(case_of(world, plan, part, "forward", chain.fetched, options, element, kept))
        result = chain.fetched * part.forward.rows
        bytes_ += (found.total if world.gpu else found.columns + DOUBLE * result) - FLOAT * result
    return bytes_


def _weighed(world: World, layout: PeLayout, chain: Chain, name: str, options: TechniqueOptions) -> int:
    """Bytes of both directions with loops, of their products, and of the numbers that weights are made of
    (collective).
    """
    whole, plan, bytes_, (columns, heads) = looped(world, layout), technique(name), 0, chain.weighed
    for direction, number in (("forward", heads), ("transpose", BACK * heads)):
        product = whole.product(direction)
        found = plan.need(case_of(world, plan, whole, direction, columns, options, "fp32", len(set(widths(chain)))))
        arcs, result = product.local.arcs + product.remote.arcs, columns * product.rows
        bytes_ += found.total - FLOAT * result if world.gpu else found.columns - FLOAT * result
        bytes_ += FLOAT * number * (product.rows + product.halo)
        bytes_ += (WEIGHED_GPU_ARC if world.gpu else WEIGHED_ARC) * arcs
        bytes_ += DOUBLE * result if layout.size > 1 and not world.gpu else 0
    return bytes_


def _turned(world: World, layout: PeLayout, turned: Turning, name: str, options: TechniqueOptions) -> int:
    """Bytes of lists of the arcs that begin here, of what they need of other PEs, and of what brings that
    (collective).
    """
    product, facts = layout.transpose, layout.manifest
    own, theirs = layout.forward, product.remote.arcs
    bytes_ = OUT_ARC * (product.local.arcs + theirs)
    # As it is sent, as it comes, and value by value.
    bytes_ += FLOAT * turned.rows * (layout.rows + 3 * product.halo)
    bytes_ += FLOAT * turned.arcs * (2 * own.remote.arcs + 3 * theirs) if layout.size > 1 else 0
    if turned.rows and any(facts.transpose.halo_rows):
        if takes_product(name, options, layout):
            plan, part = technique(name), selection(flipped(layout))
            bytes_ += plan.need(case_of(world, plan, part, "forward", turned.rows, options, "fp32", 1)).total
        else:
            bytes_ += FLOAT * turned.rows * max(int(np.diff(layout.bounds).max()), *facts.transpose.halo_rows)
    if turned.arcs and layout.size > 1:
        bytes_ += FLOAT * turned.arcs * max(world.gather(max(own.remote.arcs, theirs)))
    return bytes_


def check(world: World, mine: Need) -> None:
    """Raise ShortError on every PE where the PEs of a host, or that of a GPU, need more than is free (collective)."""
    for pes, needs, left in places(world, mine):
        needed = sum(need.total for need in needs)
        if left is not None and needed > left:
            largest = max(needs, key=lambda each: each.total)
            parts = ", ".join(f"{part} {size}" for part, size in asdict(largest).items())
            where = "its GPU" if world.gpu else "their host" if len(pes) > 1 else "its host"
            # Of the host's memory a workflow may ask for more.
            begin = "" if world.gpu else f"{NOT_ENOUGH_MEMORY}: "
            raise ShortError(
                f"{begin}{name_pes(pes)}: training needs about {needed} bytes of memory and {where} has {left} free"
                f" (largest PE: {parts}): use more PEs or hosts, fewer hidden columns, or a technique that holds less"
            ).on_every_pe()


def check_writing(world: World, layout: PeLayout) -> None:
    """Raise MachineError on every PE where a host has too little memory for the predictions that are collected and
    written once the training's own memory is free again (collective)."""
    for pes, needs, left in places(world, predictions.memory(layout, first=world.rank == 0), hosts=True):
        if left is not None and sum(needs) > left:
            raise MachineError(
                f"{NOT_ENOUGH_MEMORY}: {name_pes(pes)}: collecting and writing the predictions of"
                f" {layout.manifest.nodes} nodes needs about {sum(needs)} bytes of memory and the host of"
                f" {name_pes(pes)} has {left} free: start PE 0 on a host that has more"
            ).on_every_pe()
