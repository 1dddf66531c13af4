"""Technique gnnadvisor on CPUs: options, what its records say, and its Decider."""

from itertools import product

import numpy as np
import pytest
from support.benchmarks import TOOLS, script
from support.graphs import make_layout, random_csr
from support.records.measured import record

from mgg import layout
from mgg.aggregate import parse_options, prepare
from mgg.aggregate.techniques.gnnadvisor import decider
from mgg.backend import simulated
from mgg.errors import InputError
from mgg.records import write_lines

bench = script("fit_gnnadvisor", TOOLS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ngs": 0}, "option ngs"),
        ({"ngs": 1025}, "option ngs"),
        ({"dw": 33}, "option dw"),
        ({"tpb": 48}, "option tpb"),
        ({"decide": "paper", "ngs": 16}, "ngs: decide: paper chooses it"),
        ({"decide": "artifact", "tpb": 64}, "tpb: decide: artifact chooses it"),
    ],
)
def test_invalid_options_are_refused(options, said):
    with pytest.raises(InputError, match=said) as refusal:
        parse_options("gnnadvisor", options)
    assert "\n" not in str(refusal.value)


def test_records_hold_parameters_atomics_and_determinism(tmp_path):
    """Atomics by the degrees: floats of every group; with a leader of every row and block."""
    csr = random_csr(200, 4_000)
    folder, lengths = make_layout(tmp_path, csr, 1), np.diff(csr.indptr)

    def described(**options):
        return record(folder, 1, "gnnadvisor", 8, options=options)

    plain = described()
    assert plain.repeats and plain.atomics == 0 and plain.decided == {"ngs": 16, "dw": 32, "tpb": 128}
    groups = sum(-(-length // 4) for length in lengths.tolist())
    alone = described(ngs=4, sums="atomic", leader=False)
    assert not alone.repeats and alone.atomics == 8 * groups
    joined = described(ngs=4, sums="atomic", tpb=1024)
    pairs, number = set(), 0
    for row, length in enumerate(lengths.tolist()):
        for _ in range(0, length, 4):
            pairs.add((row, number // 32))
            number += 1
    assert joined.atomics == 8 * len(pairs) < alone.atomics
    assert described(decide="artifact").decided == {"ngs": csr.arcs // 200, "dw": 8, "tpb": 256}


def test_decider_as_printed_follows_equations_5_and_6():
    """Equations 5 and 6, worked out by hand."""
    assert [decider.as_printed(dim) for dim in (16, 31, 32, 96, 3703, 100_000)] == [
        (1024, 16), (529, 16), (1024, 32), (341, 32), (9, 32), (1, 32),
    ]  # fmt: skip


def test_decider_as_released_fits_shared_memory():
    """8 warps as long as 8 (4 ngs + 4 D) bytes fit 40 KB, then fewer; degrees of 491 as Reddit has."""
    reddit = np.full(1_000, 491)
    assert decider.as_released(reddit, 16) == (491, 16, 256)
    assert decider.as_released(reddit, 602) == (491, 32, 256)
    assert decider.as_released(reddit, 1433) == (491, 32, 32 * 5)
    assert decider.as_released(np.zeros(5, np.int64), 20_000) == (1, 32, 32)


def test_decider_fit_without_a_sweep_is_refused(tmp_path):
    folder = make_layout(tmp_path, random_csr(20, 50), 1)

    def act(world):
        with pytest.raises(InputError, match="has no sweep for CPUs") as refusal:
            prepare("gnnadvisor", world, layout.load(folder, 0), "forward", 4, {"decide": "fitted"})
        assert "\n" not in str(refusal.value)

    simulated.run(1, act)
    with pytest.raises(InputError, match="no sweep for 'NVIDIA A100'"):
        decider.fit_for("NVIDIA A100")


SETTINGS = list(product(*decider.GRID.values()))


def sweep(folder, times):
    """A sweep of three graphs; ``times`` gives milliseconds, or None where the memory does not do."""
    like = record(make_layout(folder, random_csr(20, 50), 1), 1, "gnnadvisor", 4)
    records = []
    for name in ("long", "uneven", "short"):
        picked = [("none", number, setting) for number, setting in enumerate(SETTINGS)] + [("paper", 7, SETTINGS[7])]
        for decide, number, setting in picked:
            if (ms := times(name, number)) is not None:
                decided = dict(zip(decider.GRID, setting, strict=True))
                fields = {"dataset": name, "dim": 32, "median": ms / 1e3, "options": like.options | {"decide": decide}}
                records.append(like.model_copy(update=fields | {"decided": decided}))
    write_lines(folder / "sweep.jsonl", records)
    return bench.read([folder / "sweep.jsonl"])


def test_decider_picks_are_judged_on_held_out_graphs(tmp_path):
    """Number 20 is best on the first graph alone; 40 is second everywhere; 30 does not fit one graph's memory."""

    def times(name, number):
        special = {20: 1.0 if name == "long" else 9.0, 40: 1.1, 30: None if name == "short" else 1.0}
        return special.get(number, 2.0 + number / 1000)

    cases = sweep(tmp_path, times)
    found = bench.ratios(cases)
    assert found["long", 32] == {"paper": pytest.approx(2.007), "artifact": np.inf, "fitted": pytest.approx(1.1)}
    assert found["uneven", 32]["fitted"] == pytest.approx(1.1)
    # Without the short graph, 30 is best on both others: on that one it does not run.
    assert found["short", 32]["fitted"] == np.inf
    assert bench.fitted(cases) == decider.Fit({32: SETTINGS[40]})
    text = bench.report(cases, "NVIDIA T800 80GB")
    assert f'"t800": Fit({{32: {SETTINGS[40]}}}),' in text and "within 1.1" in text


def test_decider_fit_applies_only_to_its_gpu(monkeypatch):
    """By a word of the driver's name, for the nearest width, and for memory the one with most groups."""
    known = decider.Fit({16: (64, 4, 32), 128: (8, 32, 64)})
    monkeypatch.setattr(decider, "FITTED", {"h200": known, "h300": decider.Fit({16: (2, 1, 32)})})
    assert decider.fit_for("NVIDIA H200") is known
    options = parse_options("gnnadvisor", {"decide": "fitted", "leader": False})
    lengths = np.full(100, 50)
    chosen = options.settings(lengths, 45, "NVIDIA H200")
    assert (chosen.ngs, chosen.dw, chosen.tpb, chosen.leader) == (64, 4, 32, False)
    assert options.settings(lengths, 46, "NVIDIA H200").ngs == 8
    assert options.settings(lengths, 16, None).ngs == 2
