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
from mgg.backend.api import World, name_pes
from mgg.backend.host_memory import places
from mgg.errors import NOT_ENOUGH_MEMORY, MachineError
from mgg.layout import PeLayout
from mgg.layout.selection import flipped, returning, selection
from mgg.model import Chain
from mgg.model.arcwise import Attention
from mgg.model.arrays.pieces import pieces_bytes
from mgg.model.features import dense_bytes
from mgg.model.layers import Dropout
from mgg.model.module import Held
from mgg.model.product_halo import takes_product
from mgg.model.program import VertexLayer, programs_of
from mgg.model.relational import Relational
from mgg.model.turned import NOTHING_TURNED, Turning
from mgg.train import predictions
from mgg.train.technique import widths

FLOAT, DOUBLE, INDEX, BF16 = 4, 8, 8, 2
#: Bytes a trainable number: itself, two moments, two decays, the best and a checkpoint's copies (16), gradients (16).
PARAMETER = 52
#: And where GPUs sum its gradient: two places in symmetric memory, two of CUDA graphs (their sizes are powers of two),
#: and two sums.
SUMMED = 64
#: Bytes a number that a pass makes of parameters: itself, its gradient, and that in float32.
DERIVED = 16
#: Bytes an arc of the lists that models which work arc by arc go by: its ends, both ways round; with weights, these as
#: well; and beside them while they are made.
ARC, WEIGHTED_ARC, MAKING = 8, 16, 12
#: Bytes an arc of the lists of those that begin here: its end, its number and its run, and where it is sent.
OUT_ARC = 30
#: All of it where models go type by type: their lists have an entry for a row and a source of each type.
TYPED_ARC = 60
#: Matrices as wide as the widest output that a backward pass holds at a time.
PASSING = 3


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
) -> Need:
    """What a training of ``chain`` over technique ``name`` takes on this PE, ``targets`` bytes for what it learns,
    ``losses`` while its loss is worked out, and ``turned`` what its turned layers fetch at most (collective)."""
    rows, gpu = layout.rows, bool(world.gpu)
    numbers = sum(math.prod(parameter.shape) for parameter in chain.parameters)
    if given.sparse:
        # Values and columns; on GPUs also the transpose and each entry's row, on CPUs the coordinates for dropout.
        features = given.entries * (FLOAT + INDEX + 2 * INDEX + FLOAT) + 2 * INDEX * rows
    else:
        features = FLOAT * given.entries if gpu or given.copied else 0
    product, held = layout.forward, _held(chain, layout.manifest.features, given.sparse, layout.size)
    programs = programs_of(chain)
    added = rows if not programs or any(layer.program.loops for layer in programs) else 0
    arcs = product.local.arcs + product.remote.arcs + added
    listed, making = (each * arcs for each in _bytes_of_an_arc(chain, gpu))
    working, dense = FLOAT * (rows * held.peak + arcs * held.arc), 0
    if gpu:
        working += _pieces(chain, rows, given.sparse)
        dense = dense_bytes(given.entries) if given.sparse and _makes_dense(chain) else 0
    stays = rows * held.kept + product.halo * held.halo + arcs * held.kept_arc
    activations = FLOAT * stays + max(working, losses, making, dense)
    brings, parsed = chain.fetched and any(layout.manifest.forward.halo_rows), parse_options(name, options)
    if brings and takes_product(name, parsed, layout):
        listed += _brought(world, layout, chain, name, parsed, dtype)
    elif brings:
        listed += FLOAT * _exchanged(layout, chain)
    if any(turned):
        listed += _turned(world, layout, turned, name, parsed)
    if dtype == "bf16" and not (brings and takes_product(name, parsed, layout)):
        listed += BF16 * chain.fetched * (rows + product.halo)  # until they are widened
    plan, width, several, plans = technique(name), chain.width, len(set(widths(chain))), 0
    # Nobody asks for the gradient by the input: the first module multiplies by the transpose only if others follow.
    returns = any(module.width for module in list(chain.leaves())[1:])
    for direction in ("forward", "transpose") if width else ():
        found = plan.need(case_of(world, plan, layout, direction, width, parsed, dtype, several))
        # CPUs work on the mapped layout, and sum in float64 where arcs come from other PEs; results are activations.
        sums = DOUBLE * rows * width if layout.size > 1 and (direction == "forward" or returns) else 0
        plans += found.total if gpu else found.columns - FLOAT * rows * width + sums
    parameter = PARAMETER + (SUMMED if gpu and layout.size > 1 else 0)
    return Need(features, parameter * numbers + DERIVED * chain.derived, activations, plans, listed, targets)


def _bytes_of_an_arc(chain: Chain, gpu: bool) -> tuple[int, int]:
    """Of the lists that the modules of ``chain`` go by, and beside them for the time that they are made."""
    leaves = list(chain.leaves())
    if not chain.fetched:
        return 0, 0
    if any(isinstance(module, Relational) for module in leaves) or any(x.relations for x in programs_of(chain)):
        return TYPED_ARC, 0
    kept = ARC if any(isinstance(module, Attention) for module in leaves) else WEIGHTED_ARC
    # GPUs keep how lists are cut as well.
    return (kept + MAKING, 0) if gpu else (kept, MAKING)


def _makes_dense(chain: Chain) -> bool:
    """Whether the first module that sees the features, but for dropout, takes them as a dense array."""
    return not next(module for module in chain.leaves() if not isinstance(module, Dropout)).takes_sparse


def _pieces(chain: Chain, rows: int, sparse: bool) -> int:
    """Bytes that the largest gradient by weights takes of a GPU before it is summed up."""
    most = 0
    for module in chain.leaves():
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
    returned = max((module.fetched for module in list(chain.leaves())[1:]), default=0)
    return tallest * chain.fetched + len(layout.forward.send_rows) * returned


def _brought(world: World, layout: PeLayout, chain: Chain, name: str, options: TechniqueOptions, dtype: str) -> int:
    """Bytes of the products that bring a halo and its gradients back; what they bring is an activation (collective)."""
    back, bytes_ = returning(layout, world.gather(layout.forward.send_ptr)), 0
    plan, kept = technique(name), len({module.fetched for module in chain.leaves()} - {0})
    for part, element in ((selection(layout), dtype), (back, "fp32")):
        found = plan.need(case_of(world, plan, part, "forward", chain.fetched, options, element, kept))
        result = chain.fetched * part.forward.rows
        bytes_ += (found.total if world.gpu else found.columns + DOUBLE * result) - FLOAT * result
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


def _held(chain: Chain, columns: int, sparse: bool, pes: int) -> Held:
    """Floats of the activations, a row, a halo row and an arc: what is kept, and the most held beside it."""
    kept = peak = widest = halo = arc = kept_arc = 0
    for place, module in enumerate(chain.leaves()):
        held = module.memory(columns)
        halo, arc, kept_arc = halo + held.halo, max(arc - held.kept_arc, held.arc), kept_arc + held.kept_arc
        if place == 0 and isinstance(module, VertexLayer):
            first = module.memory_of_first(columns, sparse=sparse)
            kept, peak, halo = kept + first.kept, max(peak, first.peak), first.halo
        elif place == 0 and isinstance(module, Relational):
            first = module.memory_of_first(columns, copied=sparse or pes > 1)
            kept, peak, halo = kept + first.kept, max(peak, first.peak), first.halo
        elif not (place == 0 and sparse):  # a sparse copy is among the features
            # What it fetches begins with its input once more; whoever goes arc by arc has no other.
            again = module.fetched if isinstance(module, Relational) and pes > 1 else 0
            kept, peak = kept + held.kept + again, max(peak, held.peak)
            widest = max(widest, held.columns) if module.parameters or place else widest
        columns = held.columns
    return Held(columns, kept, max(peak, PASSING * widest), halo, arc, kept_arc)


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
