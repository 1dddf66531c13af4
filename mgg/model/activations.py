"""Activations saved for the backward pass, layer by layer: kept, recomputed, or moved out of the device's memory.

A layer here is a *stage* of a model: consecutive modules, one of which has neighbors. Recomputing runs a stage's
forward pass a second time: the same operations on the same numbers, random ones included, so the outputs have the same
bits. Activations that are moved out leave while the next module works. On GPUs they return module by module, each
module's before its backward pass, or while the module behind it runs backward if there is room for both. On CPU PEs
they do not return: a mapped file is read in place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal
from weakref import ref

import numpy as np

from mgg.backend.api import Array, Outside, World
from mgg.model.layers import Dropout
from mgg.model.module import Chain, Composite, Features, Module, Pass

Mode = Literal["keep", "recompute", "host"]
#: Arrays of fewer bytes are not moved: their transfer takes longer than it saves.
LEAST = 2**14


@dataclass
class Stage:
    """Consecutive modules.

    Attributes:
        modules: the modules.
        mode: what happens to the arrays that they save.
        early: which modules' arrays may return to the GPU while the module behind theirs runs backward.
    """

    modules: list[Module]
    mode: Mode = "keep"
    early: Collection[int] = ()

    @property
    def spared(self) -> bool:
        """Whether the stage may have another mode than ``keep``."""
        return all(module.spared for module in self.modules)

    @property
    def name(self) -> str:
        """The name of its first parameter up to the first dot; empty without parameters."""
        named = [parameter.name for module in self.modules for parameter in module.parameters]
        return named[0].split(".")[0] if named else ""

    def forget(self) -> None:
        """Drop the arrays that the modules save."""
        for module in self.modules:
            module.forget()


def stages_of(chain: Chain) -> list[Stage]:
    """Split ``chain`` into stages, each of which begins with a dropout or with a module that has neighbors.

    So no module that works in place comes first, and the input of a stage is never changed.
    """
    stages: list[Stage] = []
    for module in chain.modules:
        begins = isinstance(module, Dropout | Composite) or _has_neighbors(module)
        if not stages or (begins and any(map(_has_neighbors, stages[-1].modules))):
            stages.append(Stage([]))
        stages[-1].modules.append(module)
    return stages


def _has_neighbors(module: Module) -> bool:
    return bool(module.width or module.fetched or module.weighed.columns or isinstance(module, Composite))


@dataclass(frozen=True)
class _Away:
    """An array in memory outside the device: its place, and its layout on the device."""

    number: int
    shape: tuple[int, ...]
    dtype: Any
    pitch: int  # distance of rows in entries

    @property
    def bytes(self) -> int:
        """Bytes from the first entry to the last."""
        return ((self.shape[0] - 1) * self.pitch + prod(self.shape[1:])) * int(self.dtype.itemsize)


class StagedModules:
    """The modules of a model, whose stages keep activations according to their modes.

    Args:
        world: the PE's world.
        stages: the stages, in order.
    """

    def __init__(self, world: World, stages: Sequence[Stage]) -> None:
        self._world, self._stages = world, stages
        self._pieces: list[Outside] = []
        self._given: dict[int, tuple[Any, dict[str, Array]]] = {}
        self._gone: dict[tuple[int, int], tuple[Any, Any]] = {}  # arrays moved out in this pass, and their places
        self._count = 0
        self._leaving: tuple[Any, list[Array]] | None = None
        self._coming: dict[Module, tuple[Any, dict[_Away, Array]]] = {}
        self._back: dict[_Away, Any] = {}  # arrays that returned in this pass, as weak references

    def forward(self, x: Features, run: Pass) -> Array:
        """Return the output of a training pass."""
        self._gone, self._count = {}, 0
        for place, stage in enumerate(self._stages):
            if stage.mode == "recompute":
                self._given[place] = x, dict(run.state)
            for module in stage.modules:
                x = module.forward(x, run)
                self._settle()
                if stage.mode == "host":
                    self._send(module, run)
            if stage.mode == "recompute":
                stage.forget()
        self._settle()
        return x

    def backward(self, gradient: Array, run: Pass) -> None:
        """Compute the gradients by all parameters into ``run.gradients``."""
        trained = (module for stage in self._stages for module in stage.modules if module.parameters)
        first = next(trained, None)
        result: Array | None = gradient
        del gradient
        for place in range(len(self._stages) - 1, -1, -1):
            if first is None:  # no earlier module has parameters
                break
            stage = self._stages[place]
            if stage.mode == "recompute":
                self._again(place, run)
            for number in range(len(stage.modules) - 1, -1, -1):
                module = stage.modules[number]
                self._bring(place, number)
                assert result is not None
                result = module.backward(result, run, module is not first)
                module.forget()
                if module is first:
                    first = None
                    break
        for stage in self._stages:  # modules before the first that is trained
            stage.forget()
        self._back.clear()

    def _again(self, place: int, run: Pass) -> None:
        """Recompute what a stage saves, with the running statistics from before its first forward pass."""
        (x, state), moved = self._given.pop(place), run.state
        run.state = state
        for module in self._stages[place].modules:
            x = module.forward(x, run)
        run.state = moved

    def _send(self, module: Module, run: Pass) -> None:
        """Start to move out what ``module`` saves; the arrays stay valid until the next module is done."""
        leaving: list[Array] = []
        with self._world.side_stream() as work:
            module.each_saved(lambda array: self._put(array, run, leaving))
        self._leaving = work, leaving

    def _settle(self) -> None:
        """Wait for the last transfer; its arrays may be overwritten from now on."""
        if self._leaving is not None:
            self._leaving[0].wait()
            self._leaving = None

    def _put(self, array: Any, run: Pass, leaving: list[Array]) -> Any:
        """Move ``array`` out and return its new place, or ``array`` itself if it stays."""
        if array is run.constant or not hasattr(array, "strides") or array.nbytes < LEAST:
            return array
        if not _whole_rows(array):
            return array
        # Several modules may save the same array: the output of one is the input of the next.
        at = _address(array), array.nbytes
        known = self._gone.get(at)
        if known is not None and known[0]() is not None:
            return known[1]
        away: Any = _Away(self._count, array.shape, array.dtype, array.strides[0] // array.itemsize)
        self._count += 1
        if self._world.gpu:
            leaving.append(array)
            self._world.transfer(self._memory(away.number, away.bytes), array)
        else:
            memory = self._memory(away.number, array.nbytes)
            away = memory.view(array.dtype).reshape(array.shape)
            self._world.transfer(away, array)
        self._gone[at] = ref(array), away
        return away

    def _memory(self, number: int, size: int) -> np.ndarray:
        """Return uint8 [size] of memory piece ``number``; every pass overwrites it."""
        if number == len(self._pieces):
            self._pieces.append(self._world.outside(size))
        elif len(self._pieces[number].bytes) < size:
            self._pieces[number].close()
            self._pieces[number] = self._world.outside(size)
        return self._pieces[number].bytes[:size]

    def _bring(self, place: int, number: int) -> None:
        """Wait for the arrays of a module, and order those of the one before it if they may come early."""
        if not self._world.gpu:
            return
        stage = self._stages[place]
        if stage.mode == "host":
            module = stage.modules[number]
            if module not in self._coming:
                self._order(module)
            work, found = self._coming.pop(module)
            work.wait()
            module.each_saved(lambda array: found[array] if isinstance(array, _Away) else array)
        before = (place, number - 1) if number else (place - 1, len(self._stages[place - 1].modules) - 1)
        if before[0] >= 0:
            stage, number = self._stages[before[0]], before[1]
            if stage.mode == "host" and number in stage.early:
                self._order(stage.modules[number])

    def _order(self, module: Module) -> None:
        """Start to bring back the arrays of ``module``, except those that another module has brought back."""
        found: dict[_Away, Array] = {}
        coming: dict[_Away, Array] = {}

        def made(array: Any) -> Any:
            if isinstance(array, _Away) and array not in found:
                known = self._back.get(array, lambda: None)()
                if known is None:
                    coming[array] = self._world.xp.empty(array.shape[0] * array.pitch, array.dtype)
                    rows = coming[array].reshape(array.shape[0], array.pitch)[:, : prod(array.shape[1:])]
                    known = rows.reshape(array.shape)
                    self._back[array] = ref(known)
                found[array] = known
            return array

        # The memory comes from the current stream: the transfers must wait for its earlier work.
        module.each_saved(made)
        with self._world.side_stream() as work:
            for away, array in coming.items():
                self._world.transfer(array, self._pieces[away.number].bytes[: away.bytes])
        self._coming[module] = work, found

    def forget(self) -> None:
        """Drop the arrays that the modules save."""
        for stage in self._stages:
            stage.forget()
        self._settle()
        self._gone, self._coming, self._given, self._back = {}, {}, {}, {}

    def close(self) -> None:
        """Drop the arrays, and release the memory outside the device; no submitted work may be left."""
        self.forget()
        for piece in self._pieces:
            piece.close()
        self._pieces.clear()


def _whole_rows(array: Any) -> bool:
    """Return whether each row is contiguous and no rows overlap."""
    step = array.itemsize
    for length, stride in zip(array.shape[:0:-1], array.strides[:0:-1], strict=True):
        if length > 1 and stride != step:
            return False
        step *= length
    return bool(array.strides[0] >= step)


def _address(array: Any) -> int:
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)
