"""The interface between models and training: parameters, modules with a forward and a backward pass, and passes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

from mgg.backend.api import Array
from mgg.errors import InputError
from mgg.kernel.random import Draws
from mgg.model.arrays import Arrays
from mgg.model.halo.weighed import NOTHING_WEIGHED, Weighing
from mgg.model.neighborhood import Neighborhood
from mgg.vertex.liveness import Room

#: Input of a module: dense [rows, columns], or sparse of that shape (``mgg.model.features``) if few entries are set.
Features = Any


@dataclass(frozen=True)
class Parameter:
    """A trainable array: its name, shape, initialization and L2 penalty.

    Names are unique within a model, except that modules may share a parameter; each then adds to its gradient.

    Raises:
        InputError: the shape has entries other than whole numbers, or the penalty is no number from 0 on.
    """

    name: str
    shape: tuple[int, ...]
    init: Literal["glorot", "zeros", "ones"]
    decay: float = 0.0
    shared: bool = False

    def __post_init__(self) -> None:
        if any(not isinstance(length, Integral) or length < 0 for length in self.shape):
            raise InputError(f"parameter {self.name}: shape {self.shape}: its lengths are whole numbers from 0 on")
        if not isinstance(self.decay, Real) or not 0 <= self.decay < math.inf:
            raise InputError(f"parameter {self.name}: decay {self.decay!r}: the L2 penalty is a number from 0 on")


@dataclass
class Pass:
    """One pass over the graph on one PE: what modules read, and the gradients that they compute.

    ``weights`` and ``state`` (running statistics, which training passes replace) are the same on every PE;
    ``gradients`` are float64 sums over this PE's nodes alone, which the trainer sums over the PEs.
    ``arcs`` are values of this PE's arcs that layers keep for later layers, [arcs, columns] by name;
    ``arc_gradients`` are the gradients by them, during the backward pass.
    ``epoch`` and ``seed`` select the dropout masks. The epoch is a number, or float64 [1] on the device, as GPUs need
    it. ``constant`` is the input of every pass and never changes; modules may cache what depends on this object alone.
    """

    graph: Neighborhood
    weights: dict[str, Array]
    state: dict[str, Array]
    training: bool = False
    epoch: Any = 0
    seed: int = 0
    gradients: dict[str, Array] = field(default_factory=dict)
    arcs: dict[str, Array] = field(default_factory=dict)
    arc_gradients: dict[str, Array] = field(default_factory=dict)
    constant: Features = None

    @property
    def arrays(self) -> Arrays:
        """Row-wise operations of this PE's device."""
        return self.graph.arrays

    def draws(self, place: int) -> Draws:
        """Return the random numbers of the model's dropout ``place``."""
        return Draws(self.seed, self.epoch, place)


@dataclass(frozen=True)
class Given(Room):
    """The argument of ``Module.memory``: this PE's part, and properties of the module's input.

    Attributes:
        constant: whether the input never changes.
        sparse: whether the input is sparse.
        streamed: whether the input is outside the device, and products read blocks of it (``StreamedRows``).
        inputs: whether the gradient by the input is needed.
    """

    constant: bool = False
    sparse: bool = False
    streamed: bool = False
    inputs: bool = True


class ActivationMemory(NamedTuple):
    """Memory of a module in training, in numbers of 4 bytes (``columns`` apart, the columns of its output).

    ``stays``: kept from pass to pass; ``kept``: kept from its forward to its backward pass; ``peak``: the most in use
    at once in either, ``kept`` included; ``lasting``: the part of ``stays`` that is made once, not in every pass.
    ``ahead``: the most in use at once in the forward pass, without its input; ``back``: the same in the backward pass,
    without its input and what it saved; None: what ``stays`` and ``peak`` allow. ``saves``: what the module itself
    saves for its backward pass, its input included; None: its input, ``kept``, and what it adds to ``stays``.
    """

    columns: int
    stays: int = 0
    kept: int = 0
    peak: int = 0
    lasting: int = 0
    ahead: int | None = None
    back: int | None = None
    saves: int | None = None

    @property
    def alone(self) -> tuple[int, int]:
        """``ahead`` and ``back``; if unknown, the larger of ``stays`` (without ``lasting``) and ``peak``."""
        most = max(self.stays - self.lasting, self.peak)
        return most if self.ahead is None else self.ahead, most if self.back is None else self.back

    def returns(self, given: int) -> int:
        """Return ``saves``, for a module whose input has ``given`` numbers."""
        return given + self.stays - self.lasting + self.kept if self.saves is None else self.saves


class Module(ABC):
    """A differentiable function of this PE's rows. Some modules communicate, so every PE calls all in the same order.

    A module owns the gradient passed to it and may change it in place.
    """

    #: Trainable arrays.
    parameters: Sequence[Parameter] = ()
    #: Running statistics, which are not trained: name -> initial value.
    state: dict[str, Array] = {}  # noqa: RUF012 - an empty default that nobody writes to
    #: Columns of the widest array that it aggregates over neighbors.
    width: int = 0
    #: Columns of the widest array whose halo rows it fetches.
    fetched: int = 0
    #: Columns of all gradients by halo rows that a GPU may return at the same time.
    returned: int = 0
    #: What it sums over neighbors with new arc weights in each pass.
    weighed: Weighing = NOTHING_WEIGHED
    #: Whether it accepts sparse features without making them dense.
    takes_sparse: bool = False
    #: Attributes set by ``forward`` that only ``backward`` reads, arrays in tuples and dictionaries included; they may
    #: be moved elsewhere in between. None: unknown, so nothing is moved.
    saved: tuple[str, ...] | None = None

    @property
    def products(self) -> list[int]:
        """Columns of each of its products with A, in the order of the forward pass."""
        return [self.width] if self.width else []

    @abstractmethod
    def forward(self, x: Any, run: Pass) -> Any:
        """Return the output [rows, columns] for ``x`` [rows, columns]; in training, save what ``backward`` needs."""

    @abstractmethod
    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Return the gradient by the input, given that by the output; put parameter gradients into ``run.gradients``.

        Returns None if ``inputs`` is False: the gradient by the input is not needed.
        """

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Estimate the memory for an input of ``columns``; by default each weight matrix keeps its input and output."""
        shapes = [parameter.shape for parameter in self.parameters if len(parameter.shape) > 1]
        outputs = shapes[-1][-1] if shapes else columns
        stays = sum(sum(shape[-2:]) for shape in shapes) or columns
        return ActivationMemory(outputs, given.rows * stays, 0, given.rows * (2 * outputs + columns))

    def handed_on(self, given: Given) -> Given:
        """Return the properties of the next module's input."""
        return replace(
            given, constant=False, sparse=False, streamed=False, inputs=given.inputs or bool(self.parameters)
        )

    @property
    def spared(self) -> bool:
        """Whether its saved arrays may be moved elsewhere, or recomputed by another ``forward``."""
        return self.saved is not None

    def each_saved(self, change: Callable[[Array], Array]) -> None:
        """Replace each saved array by the result of ``change``."""
        mine = vars(self)
        for name in self.saved or ():
            if name in mine:
                mine[name] = changed(mine[name], change)

    def forget(self) -> None:
        """Drop the saved arrays."""
        for name in self.saved or ():
            vars(self).pop(name, None)


def check_columns(layer: str, wanted: int, x: Features) -> None:
    """Raise InputError if the input ``x`` [rows, columns] of a layer has other columns; the same on every PE."""
    columns = 0 if x is None else x.shape[1]
    if columns != wanted:
        raise InputError(f"layer {layer}: it is made for {wanted} columns, and its input has {columns}").on_every_pe()


def passing(columns: int, outputs: int, given: Given) -> int:
    """Return the number of entries of the gradients by the output and, if needed, by the input."""
    return given.rows * (outputs + columns * given.inputs)


def changed(value: Any, change: Callable[[Array], Array]) -> Any:
    """Return ``value`` with the arrays in it replaced by the results of ``change``."""
    if isinstance(value, tuple):
        return tuple(changed(each, change) for each in value)
    if isinstance(value, dict):
        return {key: changed(each, change) for key, each in value.items()}
    return change(value)


def copied(gradient: Array) -> Array:
    """Return a copy for a module that may change it in place."""
    return gradient.copy()


class Composite(Module):
    """A module that consists of other modules."""

    def __init__(self, *modules: Module) -> None:
        for module in modules:
            if not isinstance(module, Module):
                raise InputError(f"{type(self).__name__}: {module!r} is no layer: give it layers, such as Relu()")
        self.modules = modules
        parameters: dict[str, Parameter] = {}
        for each in (each for module in modules for each in module.parameters):
            parameters.setdefault(each.name, each)
        self.parameters = list(parameters.values())
        self.state = {name: value for module in modules for name, value in module.state.items()}
        self.width = max((module.width for module in modules), default=0)
        self.fetched = max((module.fetched for module in modules), default=0)
        self.returned = max((module.returned for module in modules), default=0)
        self.weighed = Weighing(*map(max, zip(NOTHING_WEIGHED, *(module.weighed for module in modules), strict=True)))

    @property
    def spared(self) -> bool:
        """Whether this holds for all its modules."""
        return self.saved is not None and all(module.spared for module in self.modules)

    def each_saved(self, change: Callable[[Array], Array]) -> None:
        """Replace the saved arrays of all modules."""
        super().each_saved(change)
        for module in self.modules:
            module.each_saved(change)

    def forget(self) -> None:
        """Drop the saved arrays of all modules."""
        super().forget()
        for module in self.modules:
            module.forget()


def in_order(modules: Iterable[ActivationMemory], columns: int) -> ActivationMemory:
    """Return the memory of a sequence of modules, each of which is ``forgotten`` once its backward pass is done;
    ``columns`` are those of the first module's input.
    """
    kept = peak = lasting = 0
    for held in modules:
        saved, columns, lasting = held.stays - held.lasting, held.columns, lasting + held.lasting
        peak, kept = max(peak, kept + saved + held.peak), kept + saved + held.kept
    return ActivationMemory(columns, lasting, kept, peak, lasting)


class Chain(Composite):
    """A sequence of modules; nested chains are flattened."""

    saved = ()

    def __init__(self, *modules: Module) -> None:
        # Arrays passed on within an inner chain would stay in memory until that chain is done.
        super().__init__(*(each for one in modules for each in (one.modules if isinstance(one, Chain) else (one,))))

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Return the sum over its modules; the peak counts what earlier modules keep."""
        return in_order(self.each_held(columns, given), columns)

    def each_held(self, columns: int, given: Given) -> Iterator[ActivationMemory]:
        """Yield the memory of each module."""
        for module in self.modules:
            held = module.memory(columns, given)
            yield held
            columns, given = held.columns, module.handed_on(given)

    def forward(self, x: Any, run: Pass) -> Any:
        """Return the last module's output."""
        for module in self.modules:
            x = module.forward(x, run)
        return x

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """See ``Module``; without ``inputs`` it stops at the first module that has parameters."""
        trainable = [place for place, module in enumerate(self.modules) if module.parameters]
        last = 0 if inputs else min(trainable, default=len(self.modules))
        result: Array | None = gradient
        del gradient
        for place in range(len(self.modules) - 1, last - 1, -1):
            assert result is not None
            result = self.modules[place].backward(result, run, inputs or place > last)
        return result if inputs else None


class Residual(Composite):
    """X + f(X), for a module f that keeps the number of columns (He et al., CVPR 2016)."""

    saved = ()

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self.module = module

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Return the module's memory plus the sum, which is the next module's input and not counted there."""
        held, total = self.module.memory(columns, replace(given, inputs=True)), given.rows * columns
        return held._replace(kept=held.kept + total, peak=held.peak + total)

    def forward(self, x: Array, run: Pass) -> Array:
        """Return X + f(X) as a new array, because activations keep their output."""
        found = self.module.forward(x, run)
        check_columns("Residual", found.shape[1], x)
        return run.arrays.combined(found.copy(), 1, x, 1)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Return G + f'(X) G."""
        if not inputs:
            return self.module.backward(gradient, run, False)
        inner = self.module.backward(copied(gradient), run)
        assert inner is not None
        return run.arrays.combined(gradient, 1, inner, 1)


class CachedOutput(Composite):
    """The output of a module without parameters whose input is the same in every pass, computed once."""

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self.module = module
        self._x: Any = None

    def memory(self, columns: int, given: Given) -> ActivationMemory:
        """Return the memory of its output, which lasts."""
        held = self.module.memory(columns, replace(given, constant=False))
        output = given.rows * held.columns
        return ActivationMemory(held.columns, output, 0, held.peak, output)

    def forward(self, x: Any, run: Pass) -> Any:
        """Return the output for ``x``; recompute it if ``x`` is another object than last time."""
        if self._x is not x:
            # The module need not cache intermediate results as well.
            self._x, self._y = x, self.module.forward(x, replace(run, constant=None))
        return self._y

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Return the module's own gradient."""
        return self.module.backward(gradient, run, inputs)
