"""Sets of options: grids and their spelling, what is refused and left out, products without transfers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.devices.strict import StrictWorld
from support.graphs import make_layout, random_csr
from support.records.measured import record, swept

from mgg import layout
from mgg.aggregate import parse_options, prepare
from mgg.aggregate.oracle import embeddings
from mgg.aggregate.techniques.halo import Halo
from mgg.aggregate.variants import expand, parse, spell
from mgg.backend import simulated
from mgg.errors import InputError, PeError


def test_option_lists_expand_to_all_combinations():
    found = expand("mgg", {"wpb": 2}, [{"ps": [2, 4], "dist": [1, 8]}, {"ps": 4, "dist": 8}, {"dist": 3}])
    usual = parse_options("mgg", {}).ps
    assert [(each.ps, each.dist) for each in found] == [(2, 1), (2, 8), (4, 1), (4, 8), (usual, 3)], "each set once"
    assert {each.wpb for each in found} == {2}
    assert expand("mgg", {"ps": 3}, []) == [parse_options("mgg", {"ps": 3})], "without grids one set"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mgg:ps", "found 'ps'"),
        ("mgg:ps=", "found 'ps='"),
        ("mgg:=3", "found '=3'"),
        ("mgg:ps=1,:dist=2", "found 'ps=1,'"),
        ("mgg:ps=1:ps=2", "option ps stands twice"),
        ("cola:fusion=false,pipelined=false", "found 'fusion=false,pipelined=false'"),
        ("mgg:ps=[", "ps"),
        ("mgg:ps=2024-13-45", "ps"),
    ],
)
def test_invalid_variant_is_named(text, message):
    with pytest.raises(InputError, match=message):
        name, grid = parse(text)
        expand(name, {}, [grid])


values = st.booleans() | st.integers(-99, 99) | st.sampled_from(["direct", "warp"])
grids = st.dictionaries(st.sampled_from(["ps", "wpb", "primitive"]), st.lists(values, min_size=1, max_size=3))


@given(grids)
def test_variants_round_trip_as_text(grid):
    assert parse(spell("mgg", grid)) == ("mgg", grid)


@pytest.fixture
def folder(tmp_path):
    return make_layout(tmp_path, random_csr(200, 2_000), 2)


def narrow(monkeypatch, error):
    """Let halo refuse plans of more than 8 columns."""
    made = Halo.__init__

    def refuse(self, world, part, direction, max_dim, options, dtype):
        if max_dim > 8:
            raise error
        made(self, world, part, direction, max_dim, options, dtype)

    monkeypatch.setattr(Halo, "__init__", refuse)


def test_impossible_variant_is_skipped_and_named(folder, monkeypatch):
    narrow(monkeypatch, InputError("too wide").on_every_pe())
    records, refused = swept(folder, 2, ["halo", ("mgg", {"ps": 2})], [16, 4, 8])[0]
    assert [(each.technique, each.dim) for each in records] == [
        ("halo", 4), ("halo", 8), ("mgg", 4), ("mgg", 8), ("mgg", 16),
    ]  # fmt: skip
    assert [str(error) for error in refused] == ["halo, D = 16: too wide"]
    with pytest.raises(InputError, match="halo, D = 32: too wide") as caught:
        swept(folder, 2, ["halo"], [16, 32])
    assert caught.value.everywhere


@pytest.mark.parametrize("error", [InputError("of one PE"), PeError("dead").on_every_pe()])
def test_other_failures_end_the_sweep_at_once(folder, monkeypatch, error):
    narrow(monkeypatch, error)
    with pytest.raises(type(error), match=str(error)):
        swept(folder, 2, ["mgg", "halo"], [16])


@pytest.mark.parametrize(
    ("technique", "options"),
    [
        ("broadcast", {}),
        ("ring", {}),
        *((name, {"workgroup": members}) for name in ("halo", "cola") for members in (1, 2)),
    ],
)
def test_compute_part_is_timed_without_transfers(folder, technique, options):
    found = record(folder, 2, technique, 4, options=options, breakdown=True)
    assert found.compute > 0 and found.bytes_wire > 0 and found.error <= found.tolerance


def test_technique_that_reads_peers_itself_has_no_breakdown(folder, monkeypatch):
    """A technique that reads peers itself, as kernels do, gets no breakdown."""
    aggregate = Halo._aggregate

    def counting(self, source, out):
        aggregate(self, source, out)
        self.world.counters.add("get", 64)

    monkeypatch.setattr(Halo, "_aggregate", counting)
    assert record(folder, 2, "halo", 4, breakdown=True).compute is None


def test_transfer_and_compute_parts_of_halo_run_alone(folder):
    """The halo's kernel, as it is called on GPUs: its parts alone move what a product moves, and nothing."""
    found = record(folder, 2, "halo", 4, world_of=StrictWorld, breakdown=True)
    assert found.transfer > 0 and found.compute > 0 and found.error <= found.tolerance
    assert found.bytes_wire == found.v_fc, "the parts do not count"

    def program(world):
        world = StrictWorld(world)
        part = layout.load(folder, world.rank)
        plan = prepare("halo", world, part, "forward", 4)
        plan.write(4, world.upload(embeddings(part.node_ids, 4)))
        whole = world.download(plan(4))
        before, out = world.counters.embeddings(), world.xp.empty((part.rows, 4), np.float32)
        plan.part("compute", 4, out)
        computed, after = world.download(out), world.counters.embeddings()
        plan.part("transfer", 4, out)
        assert np.array_equal(computed, whole) and before == after < world.counters.embeddings()

    simulated.run(2, program)
