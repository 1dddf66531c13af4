"""Tuning by products: PEs agree by the slowest time, the table is kept, damaged entries are made anew."""

import json
import logging
from typing import ClassVar

import pytest
from support.graphs import make_layout, random_csr

from mgg import layout
from mgg.aggregate import prepare, tuning
from mgg.aggregate.measure import TimingProtocol
from mgg.aggregate.neighbor_partitions.plan import Partitioned
from mgg.aggregate.neighbor_partitions.settings import able_on, limits_of
from mgg.backend import simulated
from mgg.backend.emulated import emulating
from mgg.errors import InputError, MachineError
from mgg.files import cache_folder
from mgg.layout import PeLayout
from mgg.network import Network
from mgg.tune.model import BlockLimits
from mgg.tune.setting import Setting

BEST = Setting(4, 2, 2)


class Clock:
    """Seconds of a product by the plan's setting: PE 0 is fastest at 1, 1, 1, and PE 1, the slower one, at BEST."""

    now: ClassVar[dict[int, Setting]] = {}
    starts = 0

    def __init__(self, rank):
        self.rank = rank

    def start(self):
        Clock.starts += 1

    def stop(self):
        best = BEST if self.rank else Setting(1, 1, 1)
        away = (abs(a.bit_length() - b.bit_length()) for a, b in zip(Clock.now[self.rank], best, strict=True))
        return (1 + sum(away)) * (1 if self.rank else 1e-3)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(simulated.SimulatedWorld, "clock", lambda world: Clock(world.rank))
    build = Partitioned._build

    def noted(plan):
        Clock.now[plan.world.rank] = Setting(plan.options.ps, plan.options.dist, plan.options.wpb)
        build(plan)

    monkeypatch.setattr(Partitioned, "_build", noted)
    Clock.starts = 0
    return make_layout(tmp_path, random_csr(60, 600), 2)


def tuned(folder, **asked):
    protocol = TimingProtocol("forward", 0, 3, check=False)

    def program(world):
        return tuning.tune(world, layout.load(folder, world.rank), "forward", 8, protocol=protocol, **asked)

    return simulated.run(2, program)


def test_pes_use_the_slowest_time_and_a_second_run_tries_nothing(folder):
    first, other = tuned(folder)
    assert first.entry == other.entry and first.fresh
    assert first.entry.chosen.setting == BEST
    tried = [each.setting for each in first.entry.tried]
    assert len(tried) <= 16 and tried[0] == (1, 1, 1) and tried[-1] == first.default == (32, 16, 4)
    series = {each.setting: len(each.seconds) // 3 for each in first.entry.tried}
    finalists = {setting for setting, count in series.items() if count == 1 + tuning.ROUNDS}
    assert len(finalists) == tuning.FINALISTS + 1 and {BEST, first.default} < finalists
    assert {count for setting, count in series.items() if setting not in finalists} == {1}
    assert first.loads == {}, "the model is of GPUs"
    measured = Clock.starts
    again, _ = tuned(folder)
    assert again.entry == first.entry and not again.fresh and Clock.starts == measured
    tuned(folder, refresh=True)
    assert Clock.starts > measured


def test_single_fast_series_does_not_decide(folder, monkeypatch):
    lucky, stop, seen = Setting(4, 2, 1), Clock.stop, []

    def stopped(clock):
        if clock.rank and Clock.now[1] == lucky:
            seen.append(lucky)
            if len(seen) <= 3:
                return 0.5
        return stop(clock)

    monkeypatch.setattr(Clock, "stop", stopped)
    assert tuned(folder)[0].entry.chosen.setting == BEST and len(seen) == 9


def damaged(path, how):
    values = json.loads(path.read_text())
    if how == "torn":
        path.write_text(path.read_text()[:100])
    elif how == "altered":
        path.write_text(json.dumps(values | {"chosen": {"ps": 1, "dist": 1, "wpb": 1}}))
    else:
        path.write_bytes(b"\xff\xfe")


@pytest.mark.parametrize("how", ["torn", "altered", "no text"])
def test_damaged_table_entry_is_reported_and_measured_again(folder, caplog, how):
    first, _ = tuned(folder)
    damaged(first.entry.key.path, how)
    with caplog.at_level(logging.WARNING):
        again, _ = tuned(folder)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(str(first.entry.key.path)) and line.endswith("as good as none") and "\n" not in line
    assert again.fresh and again.entry == first.entry
    assert [path.name for path in cache_folder("tune").iterdir()] == [first.entry.key.path.name]


def test_table_keys_include_what_times_depend_on(folder):
    (first, _), (other, _) = tuned(folder), tuned(folder, options={"interleave": False})
    assert other.fresh and other.entry.key.path != first.entry.key.path
    assert other.entry.key.options == first.entry.key.options | {"interleave": False}
    assert first.entry.key.model_dump(exclude={"options", "device", "layout", "kernel"}) == {
        "backend": "simulated", "hosts": 1, "pes": 2, "direction": "forward", "dim": 8, "dtype": "fp32",
        "technique": "mgg",
    }  # fmt: skip


@pytest.mark.parametrize("option", [{"ps": 4}, {"tune": "cached"}])
def test_tuned_parameters_are_refused_as_options(folder, option):
    with pytest.raises(InputError, match=r"mgg tune sets option \w+ itself: leave it out"):
        tuned(folder, options=option)


def test_setting_that_fails_is_skipped_and_reported(folder, monkeypatch):
    measured = tuning._measured

    def refusing(world, part, direction, dim, setting, *rest):
        if setting.wpb > 1:
            raise MachineError(f"no room for {setting}").on_every_pe()
        return measured(world, part, direction, dim, setting, *rest)

    monkeypatch.setattr(tuning, "_measured", refusing)
    found, _ = tuned(folder)
    assert all(each.wpb == 1 for each in found.entry.tried) and found.entry.chosen.setting == (4, 2, 1)
    assert found.refused[Setting(32, 16, 4)] == "no room for 32, 16, 4" and len(found.refused) > 1
    monkeypatch.setattr(tuning, "_measured", lambda *given: refusing(*given[:4], Setting(1, 1, 2)))
    with pytest.raises(MachineError, match="no room for 1, 1, 2"):
        tuned(folder, refresh=True)


def settings(folder, options, dims=(8,), direction="forward"):
    """Of plans with ``options``, on both PEs."""

    def program(world):
        found = []
        for dim in dims:
            plan = prepare("mgg", world, layout.load(folder, world.rank), direction, dim, options)
            found.append((plan.options.ps, plan.options.dist, plan.options.wpb))
            plan.close()
        return found

    one, other = simulated.run(2, program)
    assert one == other
    return one


def test_cached_uses_the_table_or_reports_its_absence(folder, caplog):
    tuned(folder)
    with caplog.at_level(logging.WARNING):
        assert settings(folder, {"tune": "cached"}, (8, 9, 9)) == [BEST, (32, 16, 4), (32, 16, 4)]
        assert settings(folder, {"tune": "none"}) == [(32, 16, 4)]
        assert settings(folder, {"tune": "cached"}, direction="transpose") == [(32, 16, 4)]
    assert [record.getMessage() for record in caplog.records] == [
        f"technique mgg: option tune: cached: nothing was tuned for {direction}, D = {dim}, fp32 on these PEs, so the"
        f" defaults are taken: run mgg tune --dim {dim} on this layout"
        for direction, dim in (("forward", 9), ("transpose", 8))
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tune": "cached", "ps": 4, "wpb": 2}, "tune: cached chooses ps, dist, wpb: leave ps, wpb out"),
        ({"tune": "cached", "dist": 16}, "leave dist out"),  # the default, which the table replaces
        ({"tune": "cached", "neighbor_partition": False}, "leaves without effect"),
        ({"tune": "epochs"}, "option tune: epochs is for mgg train alone: take cached, after mgg tune"),
        ({"tune": "always"}, "tune"),
    ],
)
def test_invalid_options_are_refused(folder, options, said):
    with pytest.raises(InputError, match=said):
        settings(folder, options)


def test_tuning_table_is_refused_for_emulated_networks(folder):
    def program(world):
        part = layout.load(folder, world.rank)
        prepare("mgg", emulating(world, Network(1e9, 0.0), 1), part, "forward", 8, {"tune": "cached"})

    with pytest.raises(InputError, match="tune: cached: the table is of this machine's own network, and --emulate"):
        simulated.run(2, program)


def test_impossible_setting_is_not_launched(folder):
    limits = BlockLimits(shared_memory=48 * 1024, threads=256, registers=65536)
    able = able_on(limits, [16, 602])
    assert able(Setting(32, 16, 1)) and able(Setting(32, 1, 8)) and not able(Setting(1, 1, 16))
    assert not able_on(limits, [602])(Setting(32, 1, 16)) and able_on(None, [602])(Setting(32, 16, 16))
    assert simulated.run(1, limits_of) == [None]


def test_plan_switches_settings_bit_by_bit(folder):
    """Its products are those of a plan made with it, bit by bit."""

    def program(world):
        part: PeLayout = layout.load(folder, world.rank)
        found = []
        for before in (Setting(1, 1, 1), BEST):
            plan = prepare("mgg", world, part, "forward", 8, before.options())
            plan.take(BEST)
            plan.write(8, world.xp.arange(part.rows * 8, dtype="f4").reshape(part.rows, 8))
            found.append((plan(8).tobytes(), plan.options.model_dump()))
            plan.close()
        return found

    for first, second in simulated.run(2, program):
        assert first == second
