"""Messages between workgroups: which of them go alone."""

import numpy as np
import pytest
from support.graphs import make_layout

from mgg import layout
from mgg.aggregate import prepare
from mgg.backend import simulated
from mgg.graph.csr import from_arcs


class Noting:
    """A World that notes, of every message with rows, whether it goes alone."""

    def __init__(self, world):
        self._world, self.alone = world, []

    def __getattr__(self, name):
        return getattr(self._world, name)

    def put_rows(self, target, pe, first, values, alone=False):
        if len(values):
            self.alone.append(alone)
        self._world.put_rows(target, pe, first, values, alone)


def messages(world, folder, technique):
    noting = Noting(world)
    plan = prepare(technique, noting, layout.load(folder, world.rank), "forward", 3, {"workgroup": 1})
    plan(3)
    plan.close()
    return noting.alone


ALL = [(row, column) for row in range(3) for column in range(3)]


@pytest.mark.parametrize(
    ("technique", "arcs", "expected"),
    [
        ("halo", ALL, [[False, False]] * 3),
        ("halo", [(0, 1), (2, 1), (1, 2)], [[], [False, False], [True]]),
        ("cola", ALL, [[True, True]] * 3),
    ],
    ids=["two targets each", "none, two, one", "a phase at a time"],
)
def test_single_nonempty_message_is_sent_alone(tmp_path, technique, arcs, expected):
    """Three PEs with a node each, every one a workgroup; an arc (row, column) takes row ``column`` to PE ``row``."""
    rows, columns = zip(*arcs, strict=True)
    csr = from_arcs(np.array(rows), np.array(columns), n=3)
    folder = make_layout(tmp_path, csr, 3)
    assert simulated.run(3, lambda world: messages(world, folder, technique)) == expected
