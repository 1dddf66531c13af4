"""Bytes are counted where they move; here they must equal formulas worked out from the graph alone."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import make_layout, random_csr

from mgg import layout
from mgg.aggregate import all_techniques, prepare
from mgg.backend import simulated

#: By technique the formula of its bytes, an entry of what ``formulas`` returns.
SIDE = {
    "broadcast": "V_CG",
    "broadcast_pipelined": "V_CG",
    "dgcl": "V_FC",
    "direct": "V_FR",
    "ring": "V_CG",
    "mgg": "V_FR",
    "mgg_uvm": "V_FR",
    "zero_copy": "V_FR",
    "cola": "V_FC",
    "halo": "V_FC",
    "features": "columns",
}
SEVERAL = [name for name, plan in all_techniques().items() if not plan.single_pe]


def test_every_technique_has_its_formula_of_bytes(tmp_path):
    folder = make_layout(tmp_path, random_csr(300, 4_000), 4)
    for name in SEVERAL:
        assert name in SIDE, f"technique {name}: add the formula of its bytes to SIDE, and to formulas if it is new"
        counted = simulated.run(4, lambda world: moved(world, folder, "forward", 16, [name])[name])  # noqa: B023
        assert sum(counted), (
            f"technique {name}: no bytes are counted: bring embeddings by World's get_rows, put_rows, shift, broadcast"
            " or teams, or add what the technique reads of other PEs itself by world.counters.add (CONTRIBUTING.md)"
        )


def formulas(csr, pes, dim, direction):
    """CoLa eq. 5 to 7 for equal node ranges, from pairs of row and column."""
    rows = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    columns = csr.indices.astype(np.int64)
    if direction == "transpose":
        rows, columns = columns, rows
    owner = np.searchsorted(np.arange(pes + 1) * csr.rows // pes, np.arange(csr.rows), side="right") - 1
    remote = owner[rows] != owner[columns]
    needed = {(int(owner[row]), int(column)) for row, column in zip(rows[remote], columns[remote], strict=True)}
    volumes = {"V_CG": csr.rows * (pes - 1), "V_FR": int(remote.sum()), "V_FC": len(needed)}
    widths = [len(share) for share in np.array_split(np.arange(dim), pes)]
    heights = np.diff(np.arange(pes + 1) * csr.rows // pes)
    # Every PE gets its columns of all other rows, and sends what it makes of them.
    crossing = sum(width * (csr.rows - height) for width, height in zip(widths, heights, strict=True))
    return {name: 4 * dim * rows for name, rows in volumes.items()} | {"columns": 2 * 4 * int(crossing)}


def moved(world, folder, direction, dim, only=tuple(SIDE)):
    """Bytes that this PE moved in one product, by technique."""
    part = layout.load(folder, world.rank)
    found = {}
    for technique in only:
        plan = prepare(technique, world, part, direction, dim)
        before = world.counters.embeddings()
        plan(dim)
        found[technique] = world.counters.embeddings() - before
        plan.close()
    return found


@settings(max_examples=25)
@given(
    st.integers(1, 60), st.integers(0, 500), st.integers(1, 6), st.integers(0, 10**6),
    st.sampled_from(["forward", "transpose"]), st.sampled_from([1, 16, 41]),
)  # fmt: skip
def test_counted_bytes_match_the_formulas(tmp_path_factory, nodes, arcs, pes, seed, direction, dim):
    csr = random_csr(nodes, arcs, seed=seed)
    folder = make_layout(tmp_path_factory.mktemp("graph"), csr, pes)
    counted = simulated.run(pes, lambda world: moved(world, folder, direction, dim))
    expected = formulas(csr, pes, dim, direction)
    assert {name: sum(part[name] for part in counted) for name in SIDE} == {n: expected[f] for n, f in SIDE.items()}
