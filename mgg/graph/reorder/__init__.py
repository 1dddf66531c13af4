"""Orders that number a graph's nodes: one module per order, found automatically.

A module registers its order with :func:`order`. To add an order, add one file to this folder. An order returns
``rank``, a bijection: node v of the source gets the id ``rank[v]``. An order depends only on which arcs exist, not on
their weights: a row is read as a whole, whatever its factor. Arcs count in both directions, so a directed graph A is
numbered as A + A^T. The same graph gets the same numbers on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from mgg.graph.store import Graph
from mgg.registry import Registry

#: Returns the order actually used and ``rank`` (int32, int64 from 2^31 nodes on), or None if no node moves.
Rank = Callable[[Graph], tuple[str, np.ndarray | None]]
#: Returns the peak bytes for nodes, arcs, and whether the graph is symmetric.
Memory = Callable[[int, int, bool], int]
#: Gives the name of the order that suits a graph; holds one part of the graph at a time.
Choice = Callable[[Graph], str]

#: Bytes of a process apart from the graph: interpreter, libraries, compiled loops, parts that are being read.
BASE_BYTES = 2**29


@dataclass(frozen=True)
class Order:
    """A way to number nodes.

    Attributes:
        name: the order's name.
        rank: computes the numbers.
        memory: returns the memory that ``rank`` takes.
        choose: returns the order that :func:`chosen` uses instead; None: the order itself.
    """

    name: str
    rank: Rank
    memory: Memory
    choose: Choice | None = None


#: The orders that ``order`` has registered.
ORDERS: Registry[Order] = Registry(__name__, "order", "order", unknown="unknown {what} {name!r}")
R = TypeVar("R", bound=Rank)


def order(name: str, memory: Memory, choose: Choice | None = None) -> Callable[[R], R]:
    """Register the decorated function as the order ``name``; ``memory`` does not include BASE_BYTES."""

    def register(function: R) -> R:
        ORDERS.add(name, Order(name, function, memory, choose), function.__module__)
        return function

    return register


def orders() -> dict[str, Order]:
    """Return every order by name."""
    return ORDERS.all()


def find_order(name: str) -> Order:
    """Return the order ``name``; raises InputError with the nearest names, or with the error in the order's file."""
    return ORDERS.find(name)


def chosen(graph: Graph, name: str) -> str:
    """Return the order that ``name`` stands for: ``auto`` chooses one from the graph, any other stands for itself.

    Keeps one part of the graph in memory at a time; :func:`needed_bytes` can then check the order actually used.

    Raises:
        InputError: there is no such order, or a part of the graph is damaged.
    """
    found = find_order(name)
    return name if found.choose is None else found.choose(graph)


def permutation(graph: Graph, name: str) -> tuple[str, np.ndarray | None]:
    """Renumber the nodes of a graph.

    Args:
        graph: an opened graph folder.
        name: an order.

    Returns:
        The order actually used (``auto`` chooses one), and ``rank`` [nodes], of the graph's index type: the new id of
        every node. None stands for the identity: the natural order moves no node.

    Raises:
        InputError: there is no such order, the order cannot take a graph of this size, a part of it is damaged, or it
            says that it is symmetric and is not.
    """
    return find_order(name).rank(graph)


def needed_bytes(name: str, nodes: int, arcs: int, *, symmetric: bool) -> int:
    """Return the peak memory, in bytes, of a process that runs :func:`permutation` on a graph of this size.

    0 if nothing is read and no node moves: any amount of memory suffices.

    Raises:
        InputError: there is no such order.
    """
    own = find_order(name).memory(nodes, arcs, symmetric)
    return BASE_BYTES + own if own else 0
