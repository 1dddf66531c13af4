"""Mistakes in vertex programs: one line that names the file, the line, its text and the way out."""

import linecache
import re
import runpy

import pytest

from mgg import vertex as V
from mgg.errors import InputError

#: Programs with one mistake each, in the line that ends in "#!", and what the message says of it.
BAD = {
    "sum of arcs": ("def f(v):\n  return sum(u.x for u in v.innbs)  #!", "Python's sum.*use V.sum"),
    "sum of a list": ("def f(v):\n  s = [u.x for u in v.innbs]\n  return v.x * sum(s)  #!", "Python's sum.*use V.sum"),
    "sum of vertices": ("def f(v):\n  return sum(v.x for u in v.innbs)  #!", "Python's sum.*use V.sum"),
    "max": ("def f(v):\n  return max(u.x for u in v.innbs)  #!", "Python's max.*use V.max"),
    "min of two": ("def f(v):\n  y = v.x + 1\n  return min(v.x, y)  #!", "Python's min.*V.minimum"),
    "sorted": ("def f(v):\n  return sorted(u.x for u in v.innbs)  #!", "Python's sorted"),
    "any": ("def f(v):\n  return any(u.x for u in v.innbs)  #!", "Python's any"),
    "len": ("def f(v):\n  n = len([u for u in v.innbs])\n  return v.x / n  #!", "how often a loop.*v.degree"),
    "len of neighbours": ("def f(v):\n  return v.x / len(v.innbs)  #!", "v.degree"),
    "len of a value": ("def f(v):\n  return v.x / len(v.x)  #!", "no sequence"),
    "counter": ("def f(v):\n  return V.sum(i * u.x for i, u in enumerate(v.innbs))  #!", "enumerate"),
    "running sum": (
        "def f(v):\n  s, y = [], v.x\n  for u in v.innbs:\n    y = y + u.x  #!\n    s.append(y)\n  return V.sum(s)",
        "two elements",
    ),
    "one of a list": (
        "def f(v):\n  s = [u.x for u in v.innbs]\n  return V.sum(s[0] * u.x for u in v.innbs)  #!",
        "two elements",
    ),
    "if": ("def f(v):\n  if v.x > 0:  #!\n    return v.x\n  return -v.x", "if, while.*V.where"),
    "if of neighbours": ("def f(v):\n  return v.x if v.innbs else 0  #!", "truth of the neighbours"),
    "filter": ("def f(v):\n  return V.sum(e.src.x for e in v.inedges if e.weight > 0)  #!", "V.where"),
    "and": ("def f(v):\n  y = v.x > 0 and v.x < 1  #!\n  return y", "and, or, not"),
    "or": ("def f(v):\n  return v.x or 1  #!", "and, or, not"),
    "not": ("def f(v):\n  return not v.x  #!", "and, or, not"),
    "chain": ("def f(v):\n  return 0 < v.x < 1  #!", "a < x < b"),
    "while": ("def f(v):\n  while v.x < 1:  #!\n    pass", "while"),
    "iterate": ("def f(v):\n  return [y for y in v.x]  #!", "no sequence to iterate"),
    "unpack": ("def f(v):\n  a, b = v.x  #!\n  return a", "no sequence to iterate, unpack"),
    "float": ("def f(v):\n  return float(v.x)  #!", "need a number"),
    "int": ("def f(v):\n  return int(v.x)  #!", "need a number"),
    "range": ("def f(v):\n  for i in range(v.degree):  #!\n    pass", "need a number"),
    "math.exp": ("def f(v):\n  import math\n  return math.exp(v.x)  #!", "use V.exp"),
    "np.exp": ("def f(v):\n  import numpy as np\n  return np.exp(v.x)  #!", "use V.exp"),
    "np.maximum": ("def f(v):\n  import numpy as np\n  return np.maximum(v.x, 0)  #!", "use V.maximum"),
    "np.sum": ("def f(v):\n  import numpy as np\n  return np.sum(v.x)  #!", "use V.sum"),
    "np.asarray": ("def f(v):\n  import numpy as np\n  return np.asarray(v.x)  #!", "NumPy takes no values"),
    "array": ("def f(v):\n  import numpy as np\n  return v.x + np.ones(4)  #!", "arrays come in as features"),
    "array on the left": ("def f(v):\n  import numpy as np\n  return np.ones(4) + v.x  #!", "NumPy takes no values"),
    "index": ("def f(v):\n  return v.x[0]  #!", "no index but a type"),
    "index beyond": ("def f(v, W):\n  return v.x * W[5]  #!", r"entry 5 of \[5, 2, 4\]"),
    "empty slice": ("def f(v, W):\n  return v.x * W[3:1]  #!", r"entries 3:1:1 of \[5, 2, 4\]: some of 5 in a row"),
    "slice with steps": ("def f(v, W):\n  return v.x * W[::2]  #!", r"entries 0:5:2 of \[5, 2, 4\]"),
    "correlate": ("def f(v):\n  return V.correlate(v.x, v.feet)  #!", r"correlate of \[4\] and \[3\]"),
    "repeat": ("def f(v):\n  return V.repeat(v.x, 0)  #!", "from 1 on"),
    "repeat along": ("def f(v):\n  return V.repeat(v.x, 2, 3)  #!", "there is none"),
    "index by data": ("def f(v, W):\n  return W[v.x]  #!", "no index but a type"),
    "neighbour by number": ("def f(v):\n  return v.innbs[0].x  #!", "neighbours have no numbers"),
    "arcs by number": ("def f(v):\n  return V.sum(e.f for e in v.inedges[1])  #!", "takes a t of v.types"),
    "arcs by the type of one": (
        "def f(v):\n  return V.sum(V.sum(d.f for d in v.inedges[e.type]) for e in v.inedges)  #!",
        "takes a t of v.types",
    ),
    "no such feature": ("def f(v):\n  return v.feat  #!", "vertices have no feat: do you mean feet"),
    "no such feature of a source": ("def f(v):\n  return V.sum(u.z for u in v.innbs)  #!", "there are x, feet"),
    "no such arc feature": (
        "def f(v):\n  return V.sum(e.x for e in v.inedges)  #!",
        r"arcs have no x: .* e\.src\.x and",
    ),
    "two steps": ("def f(v):\n  return V.sum(V.sum(w.x for w in u.innbs) for u in v.innbs)  #!", "one step"),
    "method": ("def f(v):\n  return v.x.sum()  #!", "no .sum"),
    "add": ("def f(v):\n  return v.x + v.feet  #!", r"\[4\].*\[3\]"),
    "matmul": ("def f(v, W):\n  y = 2 * v.x\n  return y @ W  #!", r"\[4\] a vertex @ \[5, 2, 4\]"),
    "matmul of a number": ("def f(v):\n  return v.x @ 2  #!", r"\[4\] a vertex @ \[\]"),
    "matmul from the left": ("def f(v, W):\n  return V.reshape(W, (4, 10)) @ v.x  #!", "rows stand on the left: x @ W"),
    "axis of a sum": ("def f(v):\n  return V.sum(v.x, axis=0)  #!", "TypeError.*over an axis: V.sum_axis"),
    "max of two": ("def f(v):\n  return V.max(v.x, 0)  #!", "TypeError.*V.maximum"),
    "no such function": ("def f(v):\n  return V.concatenate([v.x, v.x])  #!", "V has no concatenate: .*V.concat"),
    "dot": ("def f(v):\n  return V.dot(v.x, v.feet)  #!", r"\[4\].*\[3\]"),
    "concat": ("def f(v):\n  return V.concat(v.x, v.degree)  #!", r"concat of \[4\] a vertex, \[\] a vertex"),
    "concat of neighbours": ("def f(v):\n  return V.concat([u.x for u in v.innbs])  #!", "two elements"),
    "reshape": ("def f(v):\n  return V.reshape(v.x, [3, 2])  #!", "4 entries are not 6"),
    "reshape to less than nothing": ("def f(v):\n  return V.reshape(v.x, [-2, -2])  #!", "whole numbers"),
    "heads": ("def f(v):\n  return V.heads(v.x, 3)  #!", r"\[4\] in 3 heads"),
    "axis": ("def f(v):\n  return V.sum_axis(v.x, 1)  #!", r"axis 1 of \[4\]"),
    "exponent": ("def f(v):\n  return v.x ** v.x  #!", "an exponent is a number"),
    "exponent of a number": ("def f(v):\n  return 2 ** v.x  #!", "an exponent is a number"),
    "types of a parameter": ("def f(v, W):\n  return V.sum(v.x @ W[t] for t in v.types)  #!", r"\[5, 2, 4\].*3 types"),
    "not of the neighbour": ("def f(v):\n  return V.sum(v.x for u in v.innbs)  #!", "does not depend on the neighbour"),
    "parameter": ("def f(v, W):\n  return V.mean(W for u in v.innbs)  #!", "parameter.*does not depend"),
    "numbers": ("def f(v):\n  return V.sum(1 for u in v.innbs)  #!", "numbers.*v.degree"),
    "one value": ("def f(v):\n  return V.max(v.x)  #!", "one value a vertex.*V.sum_axis"),
    "neighbours themselves": ("def f(v):\n  return V.sum(v.innbs)  #!", r"V.sum\(u.x for u in v.innbs\)"),
    "neighbour as a value": ("def f(v):\n  return V.sum(v.x * u for u in v.innbs)  #!", "name a feature"),
    "softmax of one": ("def f(v):\n  return V.softmax([v.x])  #!", "does not depend on the neighbour"),
    "list": ("def f(v):\n  return V.sum([u.x for u in v.innbs] * v.x)  #!", "a list is no value"),
    "list twice": ("def f(v):\n  return V.sum([u.x for u in v.innbs] * 2)  #!", "a part or a multiple"),
    "softmax times": ("def f(v):\n  return V.sum(V.softmax(u.x for u in v.innbs) * 2)  #!", "a list is no value"),
    "generator twice": ("def f(v):\n  s = (u.x for u in v.innbs)\n  y = V.sum(s)\n  return y + V.max(s)  #!", "once"),
    "part": ("def f(v):\n  return V.sum([next(iter(v.innbs)).x])  #!", "a part or a multiple"),
    "outside of its loop": (
        "def f(v):\n  for u in v.innbs:\n    pass\n  return v.x + u.x  #!",
        "returns this, a value an arc",
    ),
    "in another loop": (
        "def f(v):\n  for u in v.innbs:\n    pass\n  return V.sum(u.x for w in v.innbs)  #!",
        "of another loop",
    ),
    "nested": ("def f(v):\n  return V.sum(V.sum(u.x * w.x for w in v.innbs) for u in v.innbs)  #!", "two elements"),
    "nested, of the outer": (
        "def f(v):\n  return V.sum(V.sum(u.x for w in v.innbs) for u in v.innbs)  #!",
        "of another loop",
    ),
    "two loops": ("def f(v):\n  return V.sum(u.x for u in v.innbs for w in v.innbs)  #!", "two loops"),
    "two loops, both used": (
        "def f(v):\n  return V.sum(u.x * w.x for u in v.innbs for w in v.innbs)  #!",
        "second loop",
    ),
    "types and arcs in one": (
        "def f(v):\n  return V.sum(e.f for t in v.types for e in v.inedges[t])  #!",
        "inner loops first",
    ),
    "other neighbourhoods": (
        "def f(v):\n  z = [e.f for e in v.inedges]\n"
        "  return V.sum(V.sum(y * e.f for y, e in zip(z, v.inedges[t])) for t in v.types)  #!",
        "different neighbourhoods",
    ),
    "no return": ("def f(v):  #!\n  y = v.x", "returns None"),
    "number": ("def f(v):  #!\n  return 3", "returns an int"),
    "generator": ("def f(v):  #!\n  yield v.x", "returns a generator"),
    "list of results": ("def f(v):  #!\n  return [v.x]", "returns a list"),
    "returned parameter": ("def f(v, W):\n  y = W + 1  #!\n  return y", "a parameter"),
    "returned arc value": ("def f(v):\n  z = [e.f for e in v.inedges]\n  y = v.x * z[0]  #!\n  return y", "an arc"),
    "kept alone": ("def f(v):  #!\n  return V.keep([e.f for e in v.inedges])", "no value of the vertex"),
    "kept first": ("def f(v):  #!\n  return V.keep([e.f for e in v.inedges]), v.x", "return that first"),
    "kept for nothing": ("def f(v):\n  V.keep([e.f for e in v.inedges])  #!\n  return v.x", "not returned"),
    "kept of the vertex": ("def f(v):\n  return v.x, V.keep(v.x)  #!", "V.keep of a value a vertex"),
    "kept of a type": (
        "def f(v):\n  return V.sum(v.x * V.keep([e.f for e in v.inedges[t]]) for t in v.types)  #!",
        "V.keep of arcs of one type",
    ),
    "rate": ("def f(v):\n  return V.dropout(v.x, 1)  #!", "less than 1"),
    "rate of a value": ("def f(v):\n  return V.dropout(v.x, v.x)  #!", "is a number"),
    "dropout of a parameter": ("def f(v, W):\n  return V.dropout(W, 0.5)  #!", "dropout of a value for all"),
    "dropout of the vertex in a loop": (
        "def f(v):\n  return V.sum(V.dropout(v.x, 0.5) * u.x for u in v.innbs)  #!",
        "belongs before the loop",
    ),
    "NameError": ("def f(v):\n  y = v.x\n  return y @ missing  #!", "NameError: name 'missing'"),
    "TypeError": ("def f(v):\n  return V.exp(v.x, 1)  #!", "TypeError: "),
    "in a helper": ("def g(y):\n  return 1 / 0  #!\ndef f(v):\n  return g(v.x)", "ZeroDivisionError"),
    "state": ("n = iter(range(9))\ndef f(v):\n  return v.x * next(n)  #!", "changes when it is done again"),
    "None": ("def f(v):\n  return V.exp(None)  #!", "None is no value"),
    "string": ("def f(v):\n  return v.x + 'a'  #!", "a str is no value"),
}


def _defined(tmp_path, source, name="f", decorate=V.program):
    file = tmp_path / "programs.py"
    file.write_text(source + "\n")
    linecache.checkcache(str(file))
    names = runpy.run_path(str(file), {"V": V})
    return decorate(names[name]) if decorate else names[name]


def _said(raised, tmp_path, source):
    """The message, once file, line and text are found in it."""
    message = str(raised.value)
    lines = source.splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith("#!"))
    assert message.startswith(f"{tmp_path / 'programs.py'}, line {line}: ")
    assert message.endswith(f" (in: {lines[line - 1].strip()})")
    assert "\n" not in message
    assert raised.value.exit_code == InputError.exit_code
    return message


@pytest.mark.parametrize("name", BAD)
def test_error_names_its_line(tmp_path, name):
    source, words = BAD[name]
    program = _defined(tmp_path, source)
    parameters = dict.fromkeys(program.names, (5, 2, 4))
    with pytest.raises(V.VertexProgramError) as raised:
        program.trace({"x": (4,), "feet": (3,)}, parameters, arc_inputs={"f": (4,)}, types=3)
    assert re.search(words, _said(raised, tmp_path, source))


GIVEN = {
    "missing": (({"x": (4,)}, {}), {}, "parameter W is not given"),
    "unknown": (({"x": (4,)}, {"W": (4, 2), "U": (2,)}), {}, "no parameter U: there are W"),
    "array": (({"x": (4,)}, {"W": {4, 2}}), {}, "parameter W is a set"),
    "clash": (({"W": (4,)}, {"W": (4, 2)}), {}, "W names two"),
    "clash of features": (({"x": (4,)}, {"W": (4, 2)}), {"arc_inputs": {"x": (1,)}}, "x names two"),
    "reserved": (({"degree": ()}, {"W": (4, 2)}), {}, "degree: that is built in"),
    "reserved of arcs": (({}, {"W": (4, 2)}), {"arc_inputs": {"weight": ()}}, "weight: that is built in"),
    "shape": (({"x": 4}, {"W": (4, 2)}), {}, "shape 4 of x"),
    "empty": (({"x": (4,)}, {"W": (4, 0)}), {}, r"shape \(4, 0\) of W"),
}


@pytest.mark.parametrize("name", GIVEN)
def test_tracing_arguments_must_fit(tmp_path, name):
    source = "def f(v, W):  #!\n  return v.x @ W"
    arguments, named, words = GIVEN[name]
    with pytest.raises(V.VertexProgramError) as raised:
        _defined(tmp_path, source).trace(*arguments, **named)
    assert re.search(words, _said(raised, tmp_path, source))


LOOPS = "@V.program(loops=True)\n"
TYPED = {"arc_inputs": {"f": (4,)}}
#: Programs as their text decorates them, parameters, what else they are traced with, what is said.
OTHERS = {
    "no vertex": ("@V.program\ndef f():  #!\n  pass", {}, {}, "a program takes the vertex"),
    "default": ("@V.program\ndef f(v, rate=0.5):  #!\n  return v.x", {}, {}, "a program takes the vertex"),
    "args": ("@V.program\ndef f(v, *W):  #!\n  return v.x", {}, {}, "a program takes the vertex"),
    "kwargs": ("@V.program\ndef f(v, **W):  #!\n  return v.x", {}, {}, "a program takes the vertex"),
    "keyword": ("@V.program\ndef f(v, *, W):  #!\n  return v.x", {}, {}, "a program takes the vertex"),
    "positional": ("@V.program\ndef f(v, /):  #!\n  return v.x", {}, {}, "a program takes the vertex"),
    "def below decorators": (LOOPS + "def f(v):  #!\n  pass", {}, {}, "returns None"),
    "norm": ("@V.program\ndef f(v, norm):\n  return v.norm * norm  #!", {"norm": ()}, {}, "rename the parameter"),
    "weight": (
        "@V.program\ndef f(v, weight):\n  return V.sum(weight * e.weight for e in v.inedges)  #!",
        {"weight": ()}, {}, "rename the parameter",
    ),
    "no types": (
        "@V.program\ndef f(v):\n  return V.sum(V.sum(e.f for e in v.inedges[t]) for t in v.types)  #!",
        {}, TYPED, "no types of arcs",
    ),
    "no type of an arc": (
        "@V.program\ndef f(v, W):\n  return V.sum(W[e.type] for e in v.inedges)  #!",
        {"W": (3, 4)}, TYPED, "no types of arcs",
    ),
    "feature of a loop": (
        LOOPS + "def f(v):\n  return V.sum(e.f for e in v.inedges)  #!",
        {}, TYPED | {"types": 3}, "arc of a vertex to itself",
    ),
    "type of a loop": (
        LOOPS + "def f(v, W):\n  return V.sum(W[e.type] for e in v.inedges)  #!",
        {"W": (3, 4)}, TYPED | {"types": 3}, "arc of a vertex to itself",
    ),
    "program in itself": ("@V.program\ndef f(v):\n  return v.x + f(v)  #!", {}, {}, "f calls itself"),
    "program of other loops": (
        LOOPS + "def g(v):\n  return v.x\n@V.program\ndef f(v):\n  return g(v)  #!", {}, {}, "loops",
    ),
    "program of a neighbour": (
        "@V.program\ndef g(v):\n  return v.x\n@V.program\ndef f(v):\n  return V.sum(g(u) for u in v.innbs)  #!",
        {}, {}, "one step",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_errors_are_one_line(tmp_path, name):
    source, parameters, named, words = OTHERS[name]
    with pytest.raises(V.VertexProgramError) as raised:
        _defined(tmp_path, source, decorate=None).trace({"x": (4,)}, parameters, **named)
    assert words in _said(raised, tmp_path, source)


def test_functions_need_a_program():
    with pytest.raises(V.VertexProgramError, match=r"test_vertex_errors.py, line \d+: .*@V.program"):
        V.exp(2)
    with pytest.raises(V.VertexProgramError, match=r"test_vertex_errors.py, line \d+: .*decorates a function"):
        V.program(3)


def test_failed_trace_leaves_no_state(tmp_path):
    program = _defined(tmp_path, "def f(v, W):\n  return v.x @ W")
    with pytest.raises(V.VertexProgramError):
        program.trace({"x": (4,)}, {"W": (3, 2)})
    assert program.trace({"x": (4,)}, {"W": (4, 2)}).outputs[0].shape == (2,)
    with pytest.raises(V.VertexProgramError, match=r"@V\.program"):
        V.exp(2)
