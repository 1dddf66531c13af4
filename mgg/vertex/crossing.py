"""Choose the values to fetch, or to keep, from which all wanted values can be computed, with the fewest columns.

The choice is a minimum cut: values are vertices of a graph, and cutting one costs its columns.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import replace

from mgg.vertex import ir
from mgg.vertex.ir import D, P, S, Value

#: Operations that compute a row from the rows of their operands and from parameters.
ROWWISE = frozenset({
    *ir.UNARY, *ir.BINARY, "stop", "where", "matmul", "dot", "sum_axis", "repeat_axis", "reshape", "transpose",
    "concat", "slice", "pad",
})  # fmt: skip


def least_cut(wanted: Collection[Value], costs: Mapping[Value, int], given: Collection[Value]) -> list[Value]:
    """Return the cheapest values that cut all paths from ``given`` to ``wanted``; of equal cuts the last.

    Args:
        wanted: values to compute.
        costs: cost per value, operands first; paths lead from operand to value and only through these.
        given: values that cannot be computed from other values.

    Returns:
        The cut, operands first.
    """
    order = list(costs)
    number = {value: 2 * k for k, value in enumerate(order)}  # node of its input; its output is the next node
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
        """Return the nodes reachable from ``start``, each with its predecessor."""
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
    below: dict[Value, None] = {}  # values that depend on given ones; others cost nothing
    for value in order:
        if value in given or any(operand in below for operand in value.inputs):
            below[value] = None
    return [value for value in below if number[value] + 1 in after and number[value] not in after]


def crossing(outputs: Sequence[Value]) -> list[Value]:
    """Return the values of vertices (D) to fetch for sources (S): a sufficient set with the fewest columns per row.

    Sources need the values cast from D to S. They compute these from fetched values where that saves columns: row-wise
    work is repeated for the halo, sums over arcs are not.
    """
    wanted = {value.inputs[0] for value in ir.walk(outputs) if value.op == "cast" and _fetches(value)}
    rows = [value for value in ir.walk(wanted) if value.space is D]
    given = {value for value in rows if not _again(value)}
    costs = {value: value.size for value in rows if value.op != "mask"}
    return least_cut(wanted, costs, given)


def placed(outputs: Sequence[Value]) -> list[Value]:
    """Rewrite ``outputs`` so that only the values of ``crossing`` are cast from D to S."""
    fetched = set(crossing(outputs))
    sources: dict[Value, Value] = {}
    done: dict[Value, Value] = {}
    order = list(ir.walk(outputs))
    needed = {value.inputs[0] for value in order if _fetches(value)} - fetched
    for value in reversed(order):  # add their operands
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
    """Map values of sources to equal values of vertices, if these exist: only the halo's rows are left to compute."""
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


def sent_home(outputs: Sequence[Value]) -> list[Value]:
    """Rewrite ``outputs`` so that sources give back to vertices (S to D) the fewest columns: the mirror of ``placed``.

    Linear work on the sum over the copies of a row can be done on each copy before the sum. So the cut is where the
    values given back are narrowest. Of equal cuts it is the first, which does not repeat a vertex's work for each copy.
    """
    outputs = _together(outputs)
    order = list(ir.walk(outputs))
    copies = _Copies(order)
    linear: dict[Value, int] = {}
    given = {v for v in order if _gives_back(v)}
    for v in order:
        if v in given or copies.carries(v, linear):
            linear[v] = len(linear)
    wanted = {v for v in outputs if v in linear}
    wanted.update(x for v in order if v not in linear for x in v.inputs if x in linear)
    many = 1 + len(linear) ** 2
    costs = {v: (v.size if v.space is D else 0) * many + place for v, place in linear.items()}
    cut = [v for v in least_cut(wanted, costs, given) if v not in given]
    known = {_key(v): v for v in order}
    made: dict[Value, Value] = {v: v.inputs[0] for v in given}
    seen: dict[Value, Value] = {}

    def copied(v: Value) -> Value:
        """Return the terms of linear ``v``, one per copy; its twin among sources, if there is one, is their sum."""
        if v not in made:
            made[v] = rebuilt(v, lambda x: copied(x) if x in linear else there(x))
        return made[v]

    def there(v: Value) -> Value:
        """Return the value of sources that equals ``v``."""
        if v not in seen:
            seen[v] = copies.twins[v] if v in copies.twins else rebuilt(v, there)
        return seen[v]

    def rebuilt(v: Value, operand: Callable[[Value], Value]) -> Value:
        operands = [_seen(x, v.op) if x.space is P else operand(x) for x in v.inputs]
        if v.op == "cast":  # of a parameter to D
            new = operands[0]
        else:
            inputs = tuple(known.setdefault(_key(x), x) for x in operands)
            new = replace(v, inputs=inputs, space=S if v.space is D else v.space)
        return known.setdefault(_key(new), new)

    return _replaced(outputs, {v: ir.total(copied(v), D, v.where) if v.space is D else copied(v) for v in cut})


class _Copies:
    """Values that can be computed from the sources' copies of vertices' rows."""

    def __init__(self, order: Sequence[Value]) -> None:
        #: The equal value of sources for values of vertices.
        self.twins = {vertex: source for source, vertex in mirrors(order).items()}
        self._there: dict[Value, bool] = {}

    def there(self, v: Value) -> bool:
        """Return whether sources can compute ``v`` without another transfer."""
        for x in ir.walk([v], lambda x: x in self._there or x in self.twins or x.space is not D):
            if x not in self._there:
                known = x.space is P or x in self.twins
                self._there[x] = known or (x.space is D and _again(x) and all(self._there[y] for y in x.inputs))
        return self._there[v]

    def carries(self, v: Value, linear: Container[Value]) -> bool:
        """Return whether ``v`` is linear in its operands among ``linear``, and sources can compute the others."""
        of = [x in linear and x.space is D for x in v.inputs]
        if not any(of) or v.op not in _LINEAR:
            return False
        one_of_two = len(of) == 2 and v.op not in ("add", "subtract", "concat")
        if one_of_two and (of[1] if v.op in ("divide", "matmul") else all(of)):
            return False
        return all(of) or (one_of_two and all(self.there(x) for x in v.inputs if x not in linear))


#: Operations that are linear in an operand.
_LINEAR = frozenset({
    "negative", "add", "subtract", "multiply", "divide", "dot", "matmul", "gram", "total", "sum_axis", "repeat_axis",
    "reshape", "slice", "pad", "concat",
})  # fmt: skip


def _together(outputs: Sequence[Value]) -> list[Value]:
    """Rewrite ``outputs`` so that sums add the terms that come from copies to each other first."""
    order = list(ir.walk(outputs))
    uses = Counter([*outputs, *(x for v in order for x in v.inputs)])
    copies, linear, by = _Copies(order), set[Value](), dict[Value, Value]()
    terms: dict[Value, list[tuple[Value, bool]]] = {}  # each with whether it is added
    for v in order:
        if _gives_back(v) or copies.carries(v, linear):
            linear.add(v)
        if v.space is not D or v.op not in ("add", "subtract"):
            continue
        found = terms[v] = []
        for k, x in enumerate(v.inputs):
            inside = terms[x] if x in terms and uses[x] == 1 and x.shape == v.shape else [(x, True)]
            found += [(y, plus is (v.op == "add" or k == 0)) for y, plus in inside]
        apart = [[each for each in found if (each[0] in linear) is side] for side in (False, True)]
        if min(map(len, apart)) and len(apart[1]) > 1:
            result, plus = _sum([_sum(part) for part in apart])
            by[v] = result if plus else ir.unary("negative", result, v.where)
    return _replaced(outputs, by)


def _sum(terms: Sequence[tuple[Value, bool]]) -> tuple[Value, bool]:
    """Return the sum of ``terms``, each with its sign (True: plus), and the sign of the result."""
    (result, plus), *others = sorted(terms, key=lambda term: not term[1])
    for x, added in others:
        result = ir.binary("add" if added is plus else "subtract", result, x, x.where)
    return result, plus


def _replaced(outputs: Sequence[Value], by: Mapping[Value, Value]) -> list[Value]:
    """Replace values in ``outputs`` by those in ``by``, which may depend on the replaced values."""
    done: dict[Value, Value] = {}
    stack = list(reversed(outputs))
    while stack:
        value = by.get(stack[-1], stack[-1])
        if waiting := [x for x in value.inputs if x not in done]:
            stack += reversed(waiting)
        else:
            inputs = tuple(done[x] for x in value.inputs)
            done[stack.pop()] = value if inputs == value.inputs else replace(value, inputs=inputs)
    return [done[v] for v in outputs]


def _key(v: Value) -> tuple[object, ...]:
    return v.op, v.inputs, v.space, v.shape, v.attributes


def _gives_back(value: Value) -> bool:
    return value.op == "total" and value.space is D and value.inputs[0].space is S


def _seen(x: Value, op: str) -> Value:
    """Return a parameter as an operand at the sources."""
    return x if op == "matmul" and x.space is P else ir.cast(x, S)


def _fetches(value: Value) -> bool:
    return value.op == "cast" and value.space is S and value.inputs[0].space is D


def _again(value: Value) -> bool:
    """Return whether sources can compute a value of D from values of D and parameters."""
    parameters = value.op == "cast" and value.inputs[0].space is P
    return value.op in ROWWISE or value.op == "mask" or parameters
