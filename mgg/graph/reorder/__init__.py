"""How nodes are numbered: one module an order, found by itself.

A module registers its order with :func:`order`; adding an order means adding one file to this folder. An order gives
``rank``, a bijection: node v of the source gets the id ``rank[v]``. Only which arcs exist matters to an order, never
their weights: a row that is read is read whole, whatever it is multiplied by. Arcs count in both directions, so a
directed graph A is numbered as A + A^T. The same graph gets the same numbers on every machine.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np

from mgg.config import nearest
from mgg.errors import InputError
from mgg.graph.csr import index_dtype
from mgg.graph.store import Graph

#: Gives the order that was really used and ``rank`` (int32, int64 from 2^31 nodes on), or None where nothing moves.
Rank = Callable[[Graph], tuple[str, np.ndarray | None]]
#: Bytes at the peak, given nodes, arcs, and whether the graph is symmetric.
Memory = Callable[[int, int, bool], int]

#: Bytes that a process has before the graph comes: interpreter, libraries, compiled loops, parts that are being read.
BASE_BYTES = 2**29


@dataclass(frozen=True)
class Order:
    """A way to number nodes: its name, the function that finds the numbers, and the memory that this takes."""

    name: str
    rank: Rank
    memory: Memory


_ORDERS: dict[str, Order] = {}
R = TypeVar("R", bound=Rank)


def order(name: str, memory: Memory) -> Callable[[R], R]:
    """Decorator: register a function as the order ``name``; ``memory`` leaves BASE_BYTES out."""

    def register(function: R) -> R:
        _ORDERS[name] = Order(name, function, memory)
        return function

    return register


@cache
def _discover() -> None:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def orders() -> dict[str, Order]:
    """Every order by name."""
    _discover()
    return dict(_ORDERS)


def find_order(name: str) -> Order:
    """The order ``name``; InputError with the nearest names if there is none."""
    if name not in orders():
        raise InputError(f"unknown order {name!r}; {nearest(name, orders())}")
    return orders()[name]


def permutation(graph: Graph, name: str) -> tuple[str, np.ndarray | None]:
    """Number the nodes of a graph anew.

    Args:
        graph: an opened graph folder.
        name: an order.

    Returns:
        The order that was really used (``auto`` chooses one), and ``rank`` [nodes], of the graph's index type: the new
        id of every node. None stands for the identity: the natural order moves nothing.

    Raises:
        InputError: there is no such order, the order cannot take a graph of this size, or a part of it is damaged.
    """
    return find_order(name).rank(graph)


def needed_bytes(name: str, nodes: int, arcs: int, *, symmetric: bool) -> int:
    """The most memory, in bytes, that a process needs for :func:`permutation` of a graph of this size.

    Raises:
        InputError: there is no such order.
    """
    return BASE_BYTES + find_order(name).memory(nodes, arcs, symmetric)


def ranks(sequence: np.ndarray) -> np.ndarray:
    """The position of each node [n] in ``sequence`` [n], which lists every node once; of the same type."""
    rank = np.empty_like(sequence)
    rank[sequence] = np.arange(len(sequence), dtype=sequence.dtype)
    return rank


def index_bytes(nodes: int) -> int:
    """Bytes of a node id."""
    return index_dtype(nodes).itemsize
