"""The seam between models and training: parameters, modules with a forward and a backward, and one pass over them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from mgg.backend.api import Array
from mgg.kernel.random import Draws
from mgg.model.arrays import Arrays
from mgg.model.neighborhood import Neighborhood

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


class Held(NamedTuple):
    """Floats a row of a module in training: columns of its output, what it keeps for its backward pass, and what it
    holds beside that while it works, output included; floats that it keeps a halo row; that it holds an arc while it
    works, beside what it and those before it keep; and that it keeps an arc.
    """

    columns: int
    kept: int
    peak: int
    halo: int = 0
    arc: int = 0
    kept_arc: int = 0


#: Fields of ``Held`` that modules beside each other add up.
ADDED = ("kept", "halo", "kept_arc")


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
    #: Sparse features are not made dense by it.
    takes_sparse: bool = False
    #: Numbers that every pass makes of its parameters, beside the parameters themselves.
    derived: int = 0

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

    def memory(self, columns: int) -> Held:
        """An estimate for an input of ``columns``; by default each matrix of weights keeps its input and its output."""
        shapes = [parameter.shape for parameter in self.parameters if len(parameter.shape) > 1]
        outputs = shapes[-1][-1] if shapes else columns
        widest = max([columns, outputs, *(max(shape[-2:]) for shape in shapes)])
        return Held(outputs, sum(sum(shape[-2:]) for shape in shapes) or columns, 2 * widest)


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
        self.derived = sum(module.derived for module in modules)


class Chain(Composite):
    """Modules one after the other."""

    def memory(self, columns: int) -> Held:
        """All that they keep, and the most that one holds beside it."""
        total = Held(columns, 0, 0)
        for module in self.modules:
            held = module.memory(total.columns)
            total = Held(
                held.columns, total.kept + held.kept, max(total.peak, held.peak), total.halo + held.halo,
                # Those before it work when it keeps nothing yet, or nothing any more.
                max(total.arc - held.kept_arc, held.arc), total.kept_arc + held.kept_arc,
            )  # fmt: skip
        return total

    def leaves(self) -> Iterator[Module]:
        """The modules that are no chains, in order."""
        for module in self.modules:
            if isinstance(module, Chain):
                yield from module.leaves()
            else:
                yield module

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
        for place in range(len(self.modules) - 1, last - 1, -1):
            assert result is not None
            result = self.modules[place].backward(result, run, inputs or place > last)
        return result if inputs else None


class Residual(Composite):
    """X + f(X), for a module f that keeps the number of columns (He et al., CVPR 2016)."""

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self.module = module

    def memory(self, columns: int) -> Held:
        """The module's, and the sum."""
        held = self.module.memory(columns)
        return held._replace(peak=held.peak + held.columns)

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

    def memory(self, columns: int) -> Held:
        """Its output."""
        held = self.module.memory(columns)
        return Held(held.columns, held.columns, held.peak)

    def forward(self, x: Any, run: Pass) -> Any:
        """The output for ``x``; for another ``x`` than last time it is worked out anew."""
        if self._x is not x:
            # Steps on the way need not be kept as well.
            self._x, self._y = x, self.module.forward(x, replace(run, constant=None))
        return self._y

    def backward(self, gradient: Array, run: Pass, inputs: bool = True) -> Array | None:
        """As the module's own."""
        return self.module.backward(gradient, run, inputs)
