"""Which values to fetch, or to keep, so that all that is wanted can be made of them again: the fewest columns.

A minimum cut: values are vertices of a graph, cut at the cost of their columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from mgg.vertex import ir
from mgg.vertex.ir import D, P, S, Value

#: Operations that make a row of the rows of their operands, and of parameters.
ROWWISE = frozenset({
    *ir.UNARY, *ir.BINARY, "stop", "where", "matmul", "dot", "sum_axis", "repeat_axis", "reshape", "transpose",
    "concat", "slice", "pad",
})  # fmt: skip


def least_cut(wanted: Collection[Value], costs: Mapping[Value, int], given: Collection[Value]) -> list[Value]:
    """The cheapest values without which no path leads from ``given`` to ``wanted``; of equal ones the last.

    Args:
        wanted: what is to be had.
        costs: by value; paths lead from operand to value along these alone, operands first.
        given: what cannot be made of other values.

    Returns:
        The cut, operands first.
    """
    order = list(costs)
    number = {value: 2 * k for k, value in enumerate(order)}  # its way in; its way out is one more
    source, sink, endless = 2 * len(order), 2 * len(order) + 1, sum(costs.values()) + 1
    room: list[dict[int, int]] = [{} for _ in range(2 * len(order) + 2)]

    def link(start: int, end: int, capacity: int) -> None:
        room[start][end] = room[start].get(end, 0) + capacity
        room[end].setdefault(start, 0)

    for value in order:
        link(number[value], number[value] + 1, costs[value])
        for operand in dict.fromkeys(value.inputs):
            if operand in number and value not in given:
                link(number[operand] + 1, number[value], endless)
        if value in given:
            link(source, number[value], endless)
        if value in wanted:
            link(number[value] + 1, sink, endless)

    def reached(start: int, open_way: Callable[[int, int], int]) -> dict[int, int]:
        """Where one gets from ``start``, and from where one came there."""
        came, queue = {start: start}, deque([start])
        while queue:
            here = queue.popleft()
            for there in room[here]:
                if there not in came and open_way(here, there) > 0:
                    came[there] = here
                    queue.append(there)
        return came

    while sink in (came := reached(source, lambda here, there: room[here][there])):
        path, here = [], sink
        while here != source:
            path.append((came[here], here))
            here = came[here]
        flow = min(room[start][end] for start, end in path)
        for start, end in path:
            room[start][end] -= flow
            room[end][start] += flow
    after = reached(sink, lambda here, there: room[there][here])
    below: dict[Value, None] = {}  # what is made of given values; the rest costs nothing
    for value in order:
        if value in given or any(operand in below for operand in value.inputs):
            below[value] = None
    return [value for value in below if number[value] + 1 in after and number[value] not in after]


def crossing(outputs: Sequence[Value]) -> list[Value]:
    """Values of vertices (D) to fetch for sources (S): of all that suffice, those of the fewest columns a row.

    What sources need of vertices is what is cast from D to S. It is made at the sources, of what is fetched, as far
    as that takes fewer columns: work of each row is done again for the halo, sums over arcs are not.
    """
    wanted = {value.inputs[0] for value in ir.walk(outputs) if value.op == "cast" and _fetches(value)}
    rows = [value for value in ir.walk(wanted) if value.space is D]
    given = {value for value in rows if not _again(value)}
    costs = {value: value.size for value in rows if value.op != "mask"}
    return least_cut(wanted, costs, given)


def placed(outputs: Sequence[Value]) -> list[Value]:
    """``outputs``, in which nothing but the values of ``crossing`` is cast from D to S."""
    fetched = set(crossing(outputs))
    sources: dict[Value, Value] = {}
    done: dict[Value, Value] = {}
    order = list(ir.walk(outputs))
    needed = {value.inputs[0] for value in order if _fetches(value)} - fetched
    for value in reversed(order):  # what they are made of
        if value in needed:
            needed |= {operand for operand in value.inputs if operand.space is D} - fetched
    for value in order:
        if _fetches(value) and value.inputs[0] in sources:
            done[value] = sources[value.inputs[0]]
            continue
        inputs = tuple(done[operand] for operand in value.inputs)
        done[value] = value if inputs == value.inputs else replace(value, inputs=inputs)
        if value in fetched:
            sources[value] = ir.cast(done[value], S)
        elif value in needed and value.op == "cast":
            sources[value] = ir.cast(inputs[0], S)
        elif value in needed:
            operands = [sources[x] if x.space is D else _seen(done[x], value.op) for x in value.inputs]
            sources[value] = replace(value, inputs=tuple(operands), space=S)
    return [done[value] for value in outputs]


def mirrors(values: Sequence[Value]) -> dict[Value, Value]:
    """For values of sources the same of vertices, if these are made, too: then the halo's alone are left to make."""
    order = list(ir.walk(values))
    known = {(v.op, v.inputs, v.shape, v.attributes): v for v in order if v.space is D}
    found: dict[Value, Value] = {}
    for v in order:
        if _fetches(v):
            found[v] = v.inputs[0]
        elif v.space is S and (v.op in ROWWISE or v.op in ("cast", "mask")):
            inputs = tuple(found.get(x, x) for x in v.inputs)
            if (v.op, inputs, v.shape, v.attributes) in known:
                found[v] = known[v.op, inputs, v.shape, v.attributes]
    return found


def _seen(x: Value, op: str) -> Value:
    """A parameter as an operand at the sources."""
    return x if op == "matmul" and x.space is P else ir.cast(x, S)


def _fetches(value: Value) -> bool:
    return value.op == "cast" and value.space is S and value.inputs[0].space is D


def _again(value: Value) -> bool:
    """Whether a value of D can be made at a source: of values of D and of parameters."""
    parameters = value.op == "cast" and value.inputs[0].space is P
    return value.op in ROWWISE or value.op == "mask" or parameters
