"""Run units of vertex programs on CPU ranks: their source is cached in a file, which numba compiles once."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numba
import numpy as np

from mgg import files
from mgg.kernel import random
from mgg.kernel.threads import deal
from mgg.vertex.arcs import ArcTables
from mgg.vertex.cpu.loops import masks_of, outside_of, results_of, source_of
from mgg.vertex.ir import D, E, P, R, S, T, Value
from mgg.vertex.units import Unit

HEAD = '''"""A unit of a vertex program; written by mgg.vertex.cpu.host."""

import numba
import numpy as np

from mgg.kernel.random import number_at, row_state


@numba.njit(inline="always", error_model="numpy")
def leaky(x, slope):
    return x if x > 0.0 else slope * x


@numba.njit(inline="always", error_model="numpy")
def elu(x):
    return x if x > 0.0 else np.expm1(x)


@numba.njit(inline="always", error_model="numpy")
def sigmoid(x):
    t = np.exp(-abs(x))
    return 1.0 / (1.0 + t) if x >= 0.0 else t / (1.0 + t)


@numba.njit(cache=True, nogil=True, error_model="numpy")
'''
_NONE = np.empty(0, np.int64)
#: Serializes compilation: PEs that are threads ask for the same function at once.
_ONE = threading.Lock()


def run(
    unit: Unit, tables: ArcTables, outside: Sequence[np.ndarray], real: Any, draws: tuple[int, int], place: int = 0
) -> list[np.ndarray]:
    """Run ``unit`` with the PE's threads, which share its rows; with one thread if it has sums to P or T.

    Such a sum runs over all rows, and stays in the order of the rows.

    Args:
        unit: the unit.
        tables: the PE's arcs.
        outside: arrays of ``outside_of(unit)``, [rows of the space, *shape], but [*shape] for P.
        real: type of the results; totals to P and T are float64, winners int64.
        draws: seed and epoch of the masks.
        place: index in the model of the program's first dropout, added to the place of each mask.

    Returns:
        Arrays of ``results_of(unit)``, of the same shapes as ``outside``.
    """
    ptr, ends, arcs = {
        (E, D): (tables.ptr, tables.ends, _NONE),
        (E, R): (tables.runs, tables.ends, _NONE),
        (E, S): (tables.out_ptr, tables.out_ends, tables.out_arcs),
        (R, D): (tables.row_runs, _NONE, _NONE),
    }[unit.over, unit.rows]
    keys = [random.stream_key(draws[0], random.Draws(*draws, place + mask["place"]).stream) for mask in masks_of(unit)]
    values = results_of(unit)
    results = [_empty(value, tables, real) for value in values]
    function = compiled(_source(unit))
    given = (
        ptr, ends, arcs, tables.run_targets, tables.run_types,
        _NONE if tables.types is None else tables.types, tables.arc_runs, tables.ids, np.array(keys, np.uint64),
        *(_flat(x, value) for value, x in zip(outside_of(unit), outside, strict=True)), *results,
    )  # fmt: skip
    if any(value.space in (P, T) for value in values):
        function(0, len(ptr) - 1, *given)
    else:
        deal(ptr, lambda first, last: function(first, last, *given))
    return [
        x.reshape((*(() if value.space is P else (len(x),)), *value.shape))
        for value, x in zip(values, results, strict=True)
    ]


def _source(unit: Unit) -> str:
    """Return ``source_of`` the unit, cached on the unit because it runs many times."""
    known: dict[str, str] = vars(unit)
    if "_source" not in known:
        known["_source"] = source_of(unit)
    return known["_source"]


def _flat(x: np.ndarray, value: Value) -> np.ndarray:
    return np.ascontiguousarray(x).reshape((*(() if value.space is P else (len(x),)), value.size))


def _empty(value: Value, tables: ArcTables, real: Any) -> np.ndarray:
    """Allocate a result, [rows, size]; zeros in P and T, values of arcs and runs where the tables are."""
    if value.space is P:
        return np.zeros(value.size)
    if value.space is T:
        return np.zeros((tables.type_count, value.size))
    empty = tables.empty if value.space in (E, R) else np.empty
    return empty((tables.rows_of(value.space), value.size), np.int64 if value.op == "winner" else real)


def compiled(source: str) -> Callable[..., None]:
    """Return the compiled function of ``source``, from the cache folder."""
    with _ONE:
        return _compiled(source)


@cache
def _compiled(source: str) -> Callable[..., None]:
    text = HEAD + source
    key = hashlib.sha256("".join([text, inspect.getsource(random), numba.__version__]).encode()).hexdigest()[:32]
    path = files.cache_folder("vertex") / f"unit_{key}.py"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        files.make_folder(path.parent)
        files.write_text(path, text)
    spec = importlib.util.spec_from_file_location(f"mgg_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # numba's cache looks it up by name
    spec.loader.exec_module(module)
    function: Callable[..., None] = module.unit
    return function
