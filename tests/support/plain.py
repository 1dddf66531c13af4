"""In the place of numba: functions stay Python's."""

from mgg.vertex.cpu import host


def njit(**_):
    """Decorates nothing."""
    return lambda function: function


def unit(source):
    """What ``host.compiled`` gives, run by Python: the same text, and nothing to compile."""
    names = {}
    text = host.HEAD.replace("import numba", "from support import plain as numba") + source
    exec(compile(text, "unit", "exec"), names)  # noqa: S102 - what we wrote
    return names["unit"]
