"""How nodes are numbered: one module an order, found by itself.

A module registers its order with :func:`order`; adding an order means adding one file to this folder. An order gives
``rank``, a bijection: node v of the source gets the id ``rank[v]``. Only which arcs exist matters to an order, never
their weights: a row that is read is read whole, whatever it is multiplied by. Arcs count in both directions, so a
directed graph A is numbered as A + A^T. The same graph gets the same numbers on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from mgg.graph.csr import index_dtype
from mgg.graph.store import Graph
from mgg.registry import Registry

#: Gives the order that was really used and ``rank`` (int32, int64 from 2^31 nodes on), or None where nothing moves.
Rank = Callable[[Graph], tuple[str, np.ndarray | None]]
#: Bytes at the peak, given nodes, arcs, and whether the graph is symmetric.
Memory = Callable[[int, int, bool], int]
#: Gives the name of the order that suits a graph; holds one part of the graph at a time.
Choice = Callable[[Graph], str]

#: Bytes that a process has before the graph comes: interpreter, libraries, compiled loops, parts that are being read.
BASE_BYTES = 2**29


@dataclass(frozen=True)
class Order:
    """A way to number nodes.

    Attributes:
        name: what it is called.
        rank: finds the numbers.
        memory: what this takes.
        choose: gives the order that :func:`chosen` puts in its place, or None where it stands for itself.
    """

    name: str
    rank: Rank
    memory: Memory
    choose: Choice | None = None


#: What ``order`` has registered.
ORDERS: Registry[Order] = Registry(__name__, "order", "order", unknown="unknown {what} {name!r}")
R = TypeVar("R", bound=Rank)


def order(name: str, memory: Memory, choose: Choice | None = None) -> Callable[[R], R]:
    """Decorator: register a function as the order ``name``; ``memory`` leaves BASE_BYTES out."""

    def register(function: R) -> R:
        ORDERS.add(name, Order(name, function, memory, choose), function.__module__)
        return function

    return register


def orders() -> dict[str, Order]:
    """Every order by name."""
    return ORDERS.all()


def find_order(name: str) -> Order:
    """The order ``name``; InputError with the nearest names if there is none, or with what is wrong with its file."""
    return ORDERS.find(name)


def chosen(graph: Graph, name: str) -> str:
    """The order that ``name`` stands for: ``auto`` chooses one by what the graph is like, any other is itself.

    Holds one part of the graph at a time, so that :func:`needed_bytes` can be asked of the order that is really used.

    Raises:
        InputError: there is no such order, or a part of the graph is damaged.
    """
    found = find_order(name)
    return name if found.choose is None else found.choose(graph)


def permutation(graph: Graph, name: str) -> tuple[str, np.ndarray | None]:
    """Number the nodes of a graph anew.

    Args:
        graph: an opened graph folder.
        name: an order.

    Returns:
        The order that was really used (``auto`` chooses one), and ``rank`` [nodes], of the graph's index type: the new
        id of every node. None stands for the identity: the natural order moves nothing.

    Raises:
        InputError: there is no such order, the order cannot take a graph of this size, a part of it is damaged, or it
            says that it is symmetric and is not.
    """
    return find_order(name).rank(graph)


def needed_bytes(name: str, nodes: int, arcs: int, *, symmetric: bool) -> int:
    """The most memory, in bytes, that a process needs for :func:`permutation` of a graph of this size.

    0 where nothing is read and nothing moves: whatever memory there is suffices.

    Raises:
        InputError: there is no such order.
    """
    own = find_order(name).memory(nodes, arcs, symmetric)
    return BASE_BYTES + own if own else 0


def index_bytes(nodes: int) -> int:
    """Bytes of a node id."""
    return index_dtype(nodes).itemsize
