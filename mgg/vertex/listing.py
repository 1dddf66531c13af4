"""List the values of a program as text."""

from __future__ import annotations

from collections.abc import Iterable

from mgg.vertex.ir import Value, walk
from mgg.vertex.trace import Trace


def listing(trace: Trace) -> str:
    """Return a line about the program, a line per value, and a line with its outputs."""
    stated = [f"program {trace.name}", *(["loops"] if trace.loops else [])]
    if trace.types:
        stated.append(f"{trace.types} types")
    return "\n".join([", ".join(stated), *lines(trace.outputs)])


def lines(outputs: Iterable[Value]) -> list[str]:
    """Return a line per value that ``outputs`` depend on, operands first, then one line for the outputs.

    ``%2  E [8]  multiply %0 %1``: number, space, shape, operation, operands, attributes.
    """
    outputs = list(outputs)
    numbers: dict[Value, str] = {}
    result = []
    for value in walk(outputs):
        numbers[value] = f"%{len(numbers)}"
        parts = [value.op, *(numbers[operand] for operand in value.inputs)]
        parts += [f"{name}={attribute}" for name, attribute in value.attributes]
        result.append(f"{numbers[value]:<4} {value.space!r} {list(value.shape)}  {' '.join(parts)}")
    return [*result, " ".join(["return", *(numbers[output] for output in outputs)])]
