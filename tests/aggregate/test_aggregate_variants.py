"""Sets of options: grids and their spelling, what is refused and left out, products without transfers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.graphs import make_layout, random_csr
from support.measured import measure
from support.strict import StrictWorld

from mgg import layout
from mgg.aggregate import parse_options, prepare
from mgg.aggregate.measure import Protocol, sweep
from mgg.aggregate.oracle import embeddings
from mgg.aggregate.techniques.halo import Halo
from mgg.aggregate.variants import expand, parse, spell
from mgg.backend import simulated
from mgg.errors import InputError, PeError


def knobs(found):
    return [(options.ps, options.dist) for options in found]


def test_lists_stand_for_all_combinations_in_order():
    found = expand("mgg", {"wpb": 2}, [{"ps": [2, 4], "dist": [1, 8]}, {"ps": 4, "dist": 8}, {"dist": 3}])
    usual = parse_options("mgg", {}).ps
    assert knobs(found) == [(2, 1), (2, 8), (4, 1), (4, 8), (usual, 3)], "each set once"
    assert {options.wpb for options in found} == {2}


def test_without_grids_there_is_one_set():
    assert expand("mgg", {"ps": 3}, []) == [parse_options("mgg", {"ps": 3})]


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
def test_a_wrong_variant_is_named(text, message):
    with pytest.raises(InputError, match=message):
        name, grid = parse(text)
        expand(name, {}, [grid])


values = st.booleans() | st.integers(-99, 99) | st.sampled_from(["direct", "warp"])
grids = st.dictionaries(st.sampled_from(["ps", "wpb", "primitive"]), st.lists(values, min_size=1, max_size=3))


@given(grids)
def test_what_is_spelled_is_parsed(grid):
    assert parse(spell("mgg", grid)) == ("mgg", grid)


@pytest.fixture
def folder(tmp_path):
    return make_layout(tmp_path, random_csr(200, 2_000), 2)


def run(folder, chosen, dims):
    protocol = {"direction": "forward", "warmup": 0, "iterations": 1, "check": True}
    options = [(name, parse_options(name, values)) for name, values in chosen]

    def program(world):
        return sweep(world, layout.load(folder, world.rank), options, dims=dims, protocol=Protocol(**protocol))

    return simulated.run(2, program)[0]


def narrow(monkeypatch, error):
    """Let halo refuse plans of more than 8 columns."""
    made = Halo.__init__

    def refuse(self, world, part, direction, max_dim, options, dtype):
        if max_dim > 8:
            raise error
        made(self, world, part, direction, max_dim, options, dtype)

    monkeypatch.setattr(Halo, "__init__", refuse)


def test_what_cannot_run_is_left_out_and_named(folder, monkeypatch):
    narrow(monkeypatch, InputError("too wide").on_every_pe())
    records, refused = run(folder, [("halo", {}), ("mgg", {"ps": 2})], [16, 4, 8])
    assert [(record.technique, record.dim) for record in records] == [
        ("halo", 4), ("halo", 8), ("mgg", 4), ("mgg", 8), ("mgg", 16),
    ]  # fmt: skip
    assert [str(error) for error in refused] == ["halo, D = 16: too wide"]


def test_nothing_left_is_an_error(folder, monkeypatch):
    narrow(monkeypatch, InputError("too wide").on_every_pe())
    with pytest.raises(InputError, match="halo, D = 32: too wide") as caught:
        run(folder, [("halo", {})], [16, 32])
    assert caught.value.everywhere


@pytest.mark.parametrize("error", [InputError("of one PE"), PeError("dead").on_every_pe()])
def test_other_failures_end_the_sweep(folder, monkeypatch, error):
    narrow(monkeypatch, error)
    with pytest.raises(type(error), match=str(error)):
        run(folder, [("mgg", {}), ("halo", {})], [16])


def breakdown(folder, technique, world_of=lambda world: world, options=None):
    arguments = {
        "dims": [4],
        "options": options or {},
        "direction": "forward",
        "warmup": 0,
        "iterations": 3,
        "check": True,
    }

    def program(world):
        return measure(world_of(world), layout.load(folder, world.rank), technique, breakdown=True, **arguments)

    return simulated.run(2, program)[0][0]


@pytest.mark.parametrize(
    ("technique", "options"),
    [
        ("broadcast", {}),
        ("ring", {}),
        *((name, {"workgroup": members}) for name in ("halo", "cola") for members in (1, 2)),
    ],
)
def test_a_product_without_its_transfers_is_timed(folder, technique, options):
    record = breakdown(folder, technique, options=options)
    assert record.compute > 0 and record.bytes_wire > 0 and record.error <= record.tolerance


def test_transfers_that_cannot_be_left_out_are_noticed(folder, monkeypatch):
    """A technique that reads peers itself, as kernels do, gets no breakdown."""
    aggregate = Halo._aggregate

    def counting(self, source, out):
        aggregate(self, source, out)
        self.world.counters.add("get", 64)

    monkeypatch.setattr(Halo, "_aggregate", counting)
    assert breakdown(folder, "halo").compute is None


def test_transfer_and_arithmetic_of_one_launch_are_timed_alone(folder):
    """The halo's kernel, as it is called on GPUs: its parts alone move what a product moves, and nothing."""
    record = breakdown(folder, "halo", StrictWorld)
    assert record.transfer > 0 and record.compute > 0 and record.error <= record.tolerance
    assert record.bytes_wire == record.v_fc, "the parts do not count"


def test_a_part_alone_moves_or_computes(folder):
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
        return whole.tolist(), computed.tolist(), after - before, world.counters.embeddings() - after

    for whole, computed, none, some in simulated.run(2, program):
        assert computed == whole and none == 0 and some > 0
