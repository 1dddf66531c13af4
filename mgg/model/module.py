"""The seam between models and training: parameters, modules with a forward and a backward, and one pass over them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from mgg.backend.api import Array
from mgg.kernel.random import Draws
from mgg.model.arrays import Arrays
from mgg.model.halo.weighed import NOTHING_WEIGHED, Weighing
from mgg.model.neighborhood import Neighborhood
from mgg.vertex.liveness import Room

#: Input of a module: dense [rows, columns], or sparse of that shape (``mgg.model.features``) where few entries are set.
Features = Any


@dataclass(frozen=True)
class Parameter:
    """A trainable array: its name (unique in the model, but where modules share it), shape, first values, penalty.

    Modules that share one add what they find to its gradient.
    """

    name: str
    shape: tuple[int, ...]
    init: Literal["glorot", "zeros", "ones"]
    decay: float = 0.0
    shared: bool = False


@dataclass
class Pass:
    """One pass over the graph on one PE: what modules read, and the gradients that they leave.

    ``weights`` and ``state`` (running statistics, which training passes replace) are the same on every PE;
    ``gradients`` are float64 sums over this PE's nodes alone: the trainer adds them up over the PEs.
    ``arcs`` are values of this PE's arcs that layers keep for later ones, [arcs, columns] by name, and
    ``arc_gradients`` the gradients by them, on the way back.
    ``epoch`` and ``seed`` choose the dropout masks: the epoch is a number, or float64 [1] on the device, as GPUs take
    it. ``constant`` is the input of every pass, which never changes: what a module computes of this object alone it may
    keep.
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
        """What this PE's device computes row by row."""
        return self.graph.arrays

    def draws(self, place: int) -> Draws:
        """The random numbers of the model's dropout ``place``."""
        return Draws(self.seed, self.epoch, place)


@dataclass(frozen=True)
class Given(Room):
    """What ``Module.memory`` is asked about: this PE's part, and what the module is given there.

    Attributes:
        constant: its input never changes.
        sparse: its input is sparse.
        inputs: somebody needs the gradient by it.
    """

    constant: bool = False
    sparse: bool = False
    inputs: bool = True


class Held(NamedTuple):
    """What a module holds in training: columns of its output; and numbers of 4 bytes: that stay from pass to pass, that
    it keeps from its forward to its backward pass, and the most that it holds at once in either, the latter included.
    ``lasting`` are those of ``stays`` that are made once for all passes, not anew in each.
    """

    columns: int
    stays: int = 0
    kept: int = 0
    peak: int = 0
    lasting: int = 0


class Module(ABC):
    """A differentiable function of this PE's rows. Some modules communicate: every PE calls all in the same order.

    A gradient belongs to the module that is given it, which may change it in place.
    """

    #: Trainable arrays.
    parameters: Sequence[Parameter] = ()
    #: Running statistics, not trained: name -> first value.
    state: dict[str, Array] = {}  # noqa: RUF012 - an empty default that nobody writes to
    #: The widest array that it aggregates over neighbors, columns.
    width: int = 0
    #: The widest array whose halo rows it fetches, columns.
    fetched: int = 0
    #: What it sums over neighbors with weights that arcs get anew.
    weighed: Weighing = NOTHING_WEIGHED
    #: Sparse features are not made dense by it.
    takes_sparse: bool = False
    #: Its attributes that ``backward`` reads of the training pass, and nothing else does, arrays in tuples and
    #: dictionaries included; None: it does not say, so that they stay where they are.
    saved: tuple[str, ...] | None = None

    @property
    def products(self) -> list[int]:
        """Columns of each product with A that it takes, in the order of the forward pass."""
        return [self.width] if self.width else []

    @abstractmethod
    def forward(self, x: Any, run: Pass) -> Any:
        """Output [rows, columns] for input ``x`` [rows, columns]; in training it keeps what ``backward`` needs."""

    @abstractmethod
    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """Gradient by the input for the gradient by the output; leaves those by the parameters in ``run.gradients``.

        Returns None when ``inputs`` is False: nobody needs the gradient by the input.
        """

    def memory(self, columns: int, given: Given) -> Held:
        """An estimate for an input of ``columns``; by default each matrix of weights keeps its input and its output."""
        shapes = [parameter.shape for parameter in self.parameters if len(parameter.shape) > 1]
        outputs = shapes[-1][-1] if shapes else columns
        stays = sum(sum(shape[-2:]) for shape in shapes) or columns
        return Held(outputs, given.rows * stays, 0, given.rows * (2 * outputs + columns))

    def handed_on(self, given: Given) -> Given:
        """What the module after it is given."""
        return replace(given, constant=False, sparse=False, inputs=given.inputs or bool(self.parameters))

    @property
    def spared(self) -> bool:
        """Whether what it saves may go elsewhere, or be made again by another ``forward``."""
        return self.saved is not None

    def each_saved(self, change: Callable[[Array], Array]) -> None:
        """Put what ``change`` makes of each of its saved arrays, and of what else it saves, in their place."""
        mine = vars(self)
        for name in self.saved or ():
            if name in mine:
                mine[name] = changed(mine[name], change)

    def forget(self) -> None:
        """Let go of what it saves."""
        for name in self.saved or ():
            vars(self).pop(name, None)


def passing(columns: int, outputs: int, given: Given) -> int:
    """Numbers of the gradients by an output and, where it is asked for, by the input."""
    return given.rows * (outputs + columns * given.inputs)


def changed(value: Any, change: Callable[[Array], Array]) -> Any:
    """``value`` with what ``change`` makes of the arrays in it."""
    if isinstance(value, tuple):
        return tuple(changed(each, change) for each in value)
    if isinstance(value, dict):
        return {key: changed(each, change) for key, each in value.items()}
    return change(value)


def copied(gradient: Array) -> Array:
    """A copy for a module that may change what it is given."""
    return gradient.copy()


class Composite(Module):
    """A module made of modules."""

    def __init__(self, *modules: Module) -> None:
        self.modules = modules
        parameters: dict[str, Parameter] = {}
        for each in (each for module in modules for each in module.parameters):
            parameters.setdefault(each.name, each)
        self.parameters = list(parameters.values())
        self.state = {name: value for module in modules for name, value in module.state.items()}
        self.width = max((module.width for module in modules), default=0)
        self.fetched = max((module.fetched for module in modules), default=0)
        self.weighed = Weighing(*map(max, zip(NOTHING_WEIGHED, *(module.weighed for module in modules), strict=True)))

    @property
    def spared(self) -> bool:
        """Of all of them."""
        return self.saved is not None and all(module.spared for module in self.modules)

    def each_saved(self, change: Callable[[Array], Array]) -> None:
        """Of all of them."""
        super().each_saved(change)
        for module in self.modules:
            module.each_saved(change)

    def forget(self) -> None:
        """All of them."""
        super().forget()
        for module in self.modules:
            module.forget()


def in_order(modules: Iterable[Held], columns: int) -> Held:
    """Of modules that follow one another; ``columns`` of the input of the first."""
    stays = kept = peak = lasting = 0
    for held in modules:
        columns, lasting = held.columns, lasting + held.lasting
        stays, peak, kept = stays + held.stays, max(peak, kept + held.peak), kept + held.kept
    return Held(columns, stays, kept, peak, lasting)


class Chain(Composite):
    """Modules one after the other; ``modules`` are none of them chains."""

    saved = ()

    def __init__(self, *modules: Module) -> None:
        # What is handed on within a chain in a chain would stay in memory until the inner one is through.
        super().__init__(*(each for one in modules for each in (one.modules if isinstance(one, Chain) else (one,))))

    def memory(self, columns: int, given: Given) -> Held:
        """All that they keep, and the most that one holds beside what those before it keep."""
        return in_order(self.each_held(columns, given), columns)

    def each_held(self, columns: int, given: Given) -> Iterator[Held]:
        """What each module holds."""
        for module in self.modules:
            held = module.memory(columns, given)
            yield held
            columns, given = held.columns, module.handed_on(given)

    def forward(self, x: Any, run: Pass) -> Any:
        """The last module's output."""
        for module in self.modules:
            x = module.forward(x, run)
        return x

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """As in ``Module``; without ``inputs`` it stops at the first module that has parameters."""
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

    def memory(self, columns: int, given: Given) -> Held:
        """The module's, and the sum, which is the next module's input: that module does not count it."""
        held, total = self.module.memory(columns, replace(given, inputs=True)), given.rows * columns
        return held._replace(kept=held.kept + total, peak=held.peak + total)

    def forward(self, x: Array, run: Pass) -> Array:
        """X + f(X), a new array: activations keep their output."""
        return run.arrays.combined(self.module.forward(x, run).copy(), 1, x, 1)

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """G + f'(X) G."""
        if not inputs:
            return self.module.backward(gradient, run, False)
        inner = self.module.backward(copied(gradient), run)
        assert inner is not None
        return run.arrays.combined(gradient, 1, inner, 1)


class Kept(Composite):
    """What a module without parameters makes of an input that is the same in every pass, worked out once."""

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self.module = module
        self._x: Any = None

    def memory(self, columns: int, given: Given) -> Held:
        """Its output."""
        held = self.module.memory(columns, replace(given, constant=False))
        output = given.rows * held.columns
        return Held(held.columns, output, 0, held.peak, output)

    def forward(self, x: Any, run: Pass) -> Any:
        """The output for ``x``; for another ``x`` than last time it is worked out anew."""
        if self._x is not x:
            # Steps on the way need not be kept as well.
            self._x, self._y = x, self.module.forward(x, replace(run, constant=None))
        return self._y

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """As the module's own."""
        return self.module.backward(gradient, run, inputs)
