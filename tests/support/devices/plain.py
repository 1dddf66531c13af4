"""In the place of numba: functions stay Python's."""

from functools import cache

import numpy as np

from mgg.kernel.random import row_state
from mgg.vertex.cpu import host


def njit(**_):
    """Decorates nothing."""
    return lambda function: function


@cache
def unit(source):
    """What ``host.compiled`` gives, run by Python: the same text, and nothing to compile."""
    names = {}
    text = host.HEAD.replace("import numba", "from support.devices import plain as numba") + source
    exec(compile(text, "unit", "exec"), names)  # noqa: S102 - what we wrote
    # numba returns Python's integers, and does not take them as large as this.
    names["row_state"] = lambda key, row: np.uint64(row_state(key, row))
    return names["unit"]
