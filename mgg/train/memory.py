"""Predict a training's memory per PE and compare it with the free memory before the first large allocation.

The estimate follows from shapes: weights with moments and copies, features, activations for the backward pass, plans,
labels and the nodes of splits. The interpreter, libraries and allocators come on top. Layouts of CPU PEs do not count:
they are mapped files, which the system may drop.
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
from mgg.layout.halo_matrix import flipped, returning, selection
from mgg.model import Chain
from mgg.model.arrays.pieces import pieces_bytes
from mgg.model.features import block_rows, dense_bytes, streamed_bytes
from mgg.model.halo.of_product import takes_product
from mgg.model.halo.turned import NOTHING_TURNED, Turning
from mgg.model.halo.weighed import BACK, looped
from mgg.model.layers import Dropout
from mgg.model.module import ActivationMemory, Given
from mgg.model.neighborhood import one_plan
from mgg.model.program import programs_of
from mgg.train.resolve_auto import widths
from mgg.train.run import predictions

FLOAT, DOUBLE, INDEX, BF16 = 4, 8, 8, 2
#: Bytes per trainable number: the number, two moments, the decay and the best value so far; the gradient that its layer
#: computes; and, after the backward pass, all gradients as one vector, before and after the all-reduce.
PARAMETER, GRADIENT, STEP = 20, 8, 24
#: Bytes per trainable number of a checkpoint in writing: weights, moments and the best weights so far.
CHECKPOINT = 16
#: Further bytes where GPUs sum its gradient: two places in symmetric memory, two of CUDA graphs (whose sizes are powers
#: of two), and two sums.
SUMMED = 64
#: Bytes per arc of the arc lists of models that work arc by arc: its ends in both directions, its number and its run;
#: bytes on GPUs, which also keep how lists are cut; and there for kernels that need the ends and the number alone.
ARC, GPU_ARC, PLAIN_GPU_ARC = 24, 28, 16
#: Bytes per row of such lists, if those of arcs are outside the device or plain: where its arcs begin in each, and its
#: pieces on GPUs.
ARC_ROW = 64
#: Bytes per arc of the lists of arcs that begin on this PE: its end, its number, its run and its destination.
OUT_ARC = 30
#: Bytes per arc, in all, for models that work type by type: their lists have one entry per row, source and type.
TYPED_ARC = 60
#: Bytes per arc and direction of A + I with recomputed weights: its ends in both directions, and its place in the
#: product; CPUs also have the product's arcs and weights.
WEIGHED_GPU_ARC, WEIGHED_ARC = 12, 32


class ShortError(MachineError):
    """The free memory does not suffice; nothing has been allocated."""


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes that one PE needs, in its GPU's memory or, on CPUs, in its host's."""

    features: int
    weights: int
    activations: int
    plans: int
    arcs: int
    targets: int

    @property
    def total(self) -> int:
        """Return the sum of all parts."""
        return sum(asdict(self).values())


@dataclass(frozen=True)
class Input:
    """The input features of this PE in the form that the first layer takes.

    Attributes:
        entries: stored entries of a sparse matrix, else all entries.
        sparse: whether the features are CSR.
        copied: whether the values differ from the layout's (normalized), which takes a copy.
        outside: whether they are outside the device.
    """

    entries: int
    sparse: bool
    copied: bool
    outside: bool = False


@dataclass(frozen=True)
class Working:
    """The input of modules on one PE, and bytes on top of those that modules hold.

    Attributes:
        room: the input of the first module.
        beside: bytes while a module works, without the logits and their gradient.
        losses: bytes while the loss is computed.
        apart: bytes while no module works: arc lists or dense features are built, or gradients are summed.
    """

    room: Given
    beside: int
    losses: int
    apart: int

    def bytes_with(self, held: ActivationMemory) -> int:
        """Return the peak in bytes if the modules together hold ``held``."""
        # The logits and their gradient remain after the loss.
        working = FLOAT * (held.peak + 2 * self.room.rows * held.columns) + self.beside
        return FLOAT * held.stays + max(working, FLOAT * held.kept + self.losses, self.apart)


def working_of(
    world: World, layout: PeLayout, chain: Chain, given: Input, losses: int, *, outside: bool = False
) -> Working:
    """Return the working memory of this PE; for the arguments see ``need``."""
    rows, gpu, product, programs = layout.rows, bool(world.gpu), layout.forward, programs_of(chain)
    numbers = sum(math.prod(parameter.shape) for parameter in chain.parameters)
    added = rows if not programs or any(layer.program.loops for layer in programs) else 0
    arcs = 0 if outside else product.local.arcs + product.remote.arcs + added
    streamed = given.outside and not takes_dense(chain)
    room = Given(rows, product.halo, arcs, gpu, constant=True, sparse=given.sparse, streamed=streamed, inputs=False)
    beside = GRADIENT * numbers + (_pieces(chain, room, layout.manifest.features) if gpu else 0)
    dense = dense_bytes(given.entries) if gpu and given.sparse and takes_dense(chain) else 0
    return Working(room, beside, losses, max(dense, STEP * numbers))


def need(
    world: World, layout: PeLayout, chain: Chain, name: str, options: dict[str, object], dtype: str, given: Input,
    targets: int, losses: int, turned: Turning = NOTHING_TURNED, copies: int = 0, *, outside: bool = False,
) -> TrainingMemory:  # fmt: skip
    """Return the predicted memory of a training on this PE (collective).

    Args:
        world, layout, chain: the PEs, this PE's part of the graph, and the model.
        name, options, dtype: the aggregation technique, its options, and the type of the embeddings.
        given: the input features.
        targets, losses: bytes of the targets, and while the loss is computed.
        turned: the most that turned layers fetch.
        copies: further bytes per trainable number for copies of weights and optimizer state.
        outside: whether lists and values of arcs are outside the device.
    """
    rows, gpu = layout.rows, bool(world.gpu)
    numbers = sum(math.prod(parameter.shape) for parameter in chain.parameters)
    if given.sparse:
        # Values and columns; GPUs add the transpose and each entry's row, CPUs the coordinates for dropout.
        features = given.entries * (FLOAT + INDEX + 2 * INDEX + FLOAT) + 2 * INDEX * rows
    elif given.outside:
        features = 0 if takes_dense(chain) else streamed_bytes(rows, layout.manifest.features)
    else:
        features = FLOAT * given.entries if gpu or given.copied else 0
    product, working = layout.forward, working_of(world, layout, chain, given, losses, outside=outside)
    of_arc = 0 if outside else _bytes_of_an_arc(chain, gpu)
    by_rows = ARC_ROW * (rows + product.halo) if outside or of_arc == PLAIN_GPU_ARC else 0
    listed = of_arc * working.room.arcs + by_rows
    activations = working.bytes_with(chain.memory(layout.manifest.features, working.room))
    brings, parsed = chain.fetched and any(layout.manifest.forward.halo_rows), parse_options(name, options)
    if brings and takes_product(name, parsed, layout):
        listed += _brought(world, layout, chain, name, parsed, dtype)
    elif brings:
        listed += FLOAT * _exchanged(layout, chain, gpu=gpu)
    if chain.weighed.columns:
        listed += _weighed(world, layout, chain, name, parsed)
    if any(turned):
        listed += _turned(world, layout, turned, name, parsed)
    if dtype == "bf16" and not (brings and takes_product(name, parsed, layout)):
        listed += BF16 * chain.fetched * (rows + product.halo)  # until they are widened
    plan, width, several, plans = technique(name), chain.width, len(set(widths(chain))), 0
    # Nobody needs the gradient of the input: a product with the transpose takes a module after the first one.
    returns = any(module.width for module in chain.modules[1:])
    directions = ("forward",) if one_plan(world, layout, parsed) else ("forward", "transpose")
    for direction in directions if width else ():
        case = case_of(world, plan, layout, direction, width, parsed, dtype, several)
        found = plan.need(case)
        # Results are activations. CPUs work on the mapped layout, and sum in float64 if arcs come from other PEs.
        sums = DOUBLE * rows * width if layout.size > 1 and (direction == "forward" or returns) else 0
        plans += (found.total if gpu else found.columns + sums) - FLOAT * rows * width
        if getattr(parsed, "stale", 0):
            plans += stale_bytes(case, widths(chain) if direction == "forward" or returns else [])
    parameter = PARAMETER + copies + (SUMMED if gpu and layout.size > 1 else 0)
    return TrainingMemory(features, parameter * numbers, activations, plans, listed, targets)


def copies(world: World, optimizer: str, *, saves: bool) -> int:
    """Return bytes per trainable number on top of ``PARAMETER``.

    They are AdamW's zeros in place of penalties and, if the training ``saves`` checkpoints, the one that PE 0 writes
    from host memory.
    """
    checkpoint = CHECKPOINT if saves and world.rank == 0 and not world.gpu else 0
    return FLOAT * (optimizer == "adamw") + checkpoint


def _bytes_of_an_arc(chain: Chain, gpu: bool) -> int:
    """Return bytes per arc of the arc lists of ``chain``."""
    if not chain.fetched:
        return 0
    if any(layer.relations for layer in programs_of(chain)):
        return TYPED_ARC
    if gpu:
        return PLAIN_GPU_ARC if all(layer.arcs_may_leave and layer.fused for layer in programs_of(chain)) else GPU_ARC
    return ARC


def may_leave(chain: Chain, turned: Turning) -> bool:
    """Return whether lists and values of arcs may be outside the device.

    Not those of typed arcs, of *turned* layers, of attention as a product, or that layers share; nor where an arc is
    multiplied by a matrix, or has threads of its own (setting ``kernels``).
    """
    return (
        bool(chain.fetched)
        and not (any(turned) or chain.weighed.columns)
        and all(layer.arcs_may_leave for layer in programs_of(chain))
    )


def takes_dense(chain: Chain) -> bool:
    """Whether the first module after dropout takes the features as a dense array on the device."""
    return not next(module for module in chain.modules if not isinstance(module, Dropout)).takes_sparse


def _pieces(chain: Chain, room: Given, features: int) -> int:
    """Return the GPU bytes of the largest weight gradient's pieces before they are summed.

    For the arguments see ``Working``; ``features`` are the columns of the input.
    """
    most, sparse, streamed = 0, room.sparse, room.streamed
    for module in chain.modules:
        if isinstance(module, Dropout):
            continue  # sparse features stay sparse
        for parameter in [] if sparse and module.takes_sparse else module.parameters:
            if len(parameter.shape) > 1:
                shape, rows = parameter.shape[-2:], block_rows(room.rows, features) if streamed else room.rows
                # Each block's part is added to the sum of those before it.
                most = max(most, pieces_bytes(rows, *shape) + DOUBLE * math.prod(shape) * streamed)
        sparse = streamed = False
    return most


def _exchanged(layout: PeLayout, chain: Chain, *, gpu: bool) -> int:
    """Return how many numbers fetching a halo and returning its gradients store; the input has no gradients."""
    tallest = max(int(np.diff(layout.bounds).max()), *layout.manifest.forward.halo_rows)
    returned = max((max(module.fetched, gpu * module.returned) for module in chain.modules[1:]), default=0)
    return tallest * chain.fetched + len(layout.forward.send_rows) * returned


def _brought(world: World, layout: PeLayout, chain: Chain, name: str, options: TechniqueOptions, dtype: str) -> int:
    """Return bytes of the products that fetch a halo and return its gradients, less their results (collective)."""
    back, bytes_ = returning(layout, world.gather(layout.forward.send_ptr)), 0
    plan, kept = technique(name), len({module.fetched for module in chain.modules} - {0})
    for part, element in ((selection(layout), dtype), (back, "fp32")):
        found = plan.need(case_of(world, plan, part, "forward", chain.fetched, options, element, kept))
        result = chain.fetched * part.forward.rows
        bytes_ += (found.total if world.gpu else found.columns + DOUBLE * result) - FLOAT * result
    return bytes_


def _weighed(world: World, layout: PeLayout, chain: Chain, name: str, options: TechniqueOptions) -> int:
    """Return bytes of both directions with loops, their products, and the inputs of arc weights (collective)."""
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
    """Return bytes for turned layers: lists of arcs that begin here, remote values, transfers (collective)."""
    product, facts = layout.transpose, layout.manifest
    own, theirs = layout.forward, product.remote.arcs
    bytes_ = OUT_ARC * (product.local.arcs + theirs)
    # The rows as sent, as received, and value by value.
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


def check(world: World, mine: TrainingMemory) -> None:
    """Raise ShortError on every PE if the PEs of a host, or of a GPU, need more than is free (collective)."""
    for pes, needs, left in places(world, mine):
        needed = sum(need.total for need in needs)
        if left is not None and needed > left:
            largest = max(needs, key=lambda each: each.total)
            parts = ", ".join(f"{part} {size}" for part, size in asdict(largest).items())
            where = "its GPU" if world.gpu else "their host" if len(pes) > 1 else "its host"
            # A workflow may request more host memory for a retry.
            begin = "" if world.gpu else f"{NOT_ENOUGH_MEMORY}: "
            raise ShortError(
                f"{begin}{name_pes(pes)}: training needs about {needed} bytes of memory and {where} has {left} free"
                f" (largest PE: {parts}): use more PEs or hosts, fewer hidden columns, or a technique that holds less"
            ).on_every_pe()


def check_writing(world: World, layout: PeLayout) -> None:
    """Raise MachineError on every PE if a host lacks memory to collect and write the predictions (collective).

    By then the training's own memory is free again.
    """
    for pes, needs, left in places(world, predictions.memory(layout, first=world.rank == 0), hosts=True):
        if left is not None and sum(needs) > left:
            raise MachineError(
                f"{NOT_ENOUGH_MEMORY}: {name_pes(pes)}: collecting and writing the predictions of"
                f" {layout.manifest.nodes} nodes needs about {sum(needs)} bytes of memory and the host of"
                f" {name_pes(pes)} has {left} free: start PE 0 on a host that has more"
            ).on_every_pe()
