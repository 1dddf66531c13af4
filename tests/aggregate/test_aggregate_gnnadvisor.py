"""Technique gnnadvisor on CPUs: options, what its records say, and its Decider."""

import importlib.util
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from support.graphs import make_layout, random_csr
from support.measured import measure
from support.products import worst
from support.spmm_program import products

from mgg import layout
from mgg.aggregate import decider, parse_options, prepare
from mgg.backend import simulated
from mgg.errors import InputError
from mgg.kernel.groups import Setting

SPEC = importlib.util.spec_from_file_location(
    "fit_gnnadvisor", Path(__file__).parents[2] / "benchmarks" / "fit_gnnadvisor.py"
)
bench = sys.modules["fit_gnnadvisor"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bench)


def test_every_option_gives_the_product(tmp_path):
    csr = random_csr(300, 6_000, weighted=True)
    folder = make_layout(tmp_path, csr, 1)
    for ngs, sums, decide in itertools.product((None, 1, 1024), ("ordered", "atomic"), ("none", "paper", "artifact")):
        if ngs is None or decide == "none":
            options = {"gnnadvisor": {"ngs": ngs, "sums": sums, "decide": decide}}
            parts = simulated.run(1, lambda world: products(world, folder, [17], options, ["gnnadvisor"]))  # noqa: B023
            assert worst(csr, parts) <= (1e-6,)


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
def test_what_cannot_be_is_refused(options, said):
    with pytest.raises(InputError, match=said) as refusal:
        parse_options("gnnadvisor", options)
    assert "\n" not in str(refusal.value)


def test_records_say_what_was_taken_and_whether_bits_repeat(tmp_path):
    """Atomics by the degrees: floats of every group; with a leader of every row and block."""
    csr = random_csr(200, 4_000)
    folder, lengths = make_layout(tmp_path, csr, 1), np.diff(csr.indptr)

    def record(**options):
        arguments = {"dims": [8], "direction": "forward", "warmup": 0, "iterations": 1, "check": True}
        act = simulated.run(
            1, lambda world: measure(world, layout.load(folder, 0), "gnnadvisor", options=options, **arguments)
        )
        return act[0][0]

    plain = record()
    assert plain.repeats and plain.atomics == 0 and plain.decided == {"ngs": 16, "dw": 32, "tpb": 128}
    groups = sum(-(-length // 4) for length in lengths.tolist())
    alone = record(ngs=4, sums="atomic", leader=False)
    assert not alone.repeats and alone.atomics == 8 * groups
    joined = record(ngs=4, sums="atomic", tpb=1024)
    pairs, number = set(), 0
    for row, length in enumerate(lengths.tolist()):
        for _ in range(0, length, 4):
            pairs.add((row, number // 32))
            number += 1
    assert joined.atomics == 8 * len(pairs) < alone.atomics
    assert record(decide="artifact").decided == {"ngs": csr.arcs // 200, "dw": 8, "tpb": 256}


def test_the_decider_as_printed():
    """Equations 5 and 6, worked out by hand."""
    assert [decider.as_printed(dim) for dim in (16, 31, 32, 96, 3703, 100_000)] == [
        (1024, 16), (529, 16), (1024, 32), (341, 32), (9, 32), (1, 32),
    ]  # fmt: skip


def test_the_decider_as_released():
    """8 warps as long as 8 (4 ngs + 4 D) bytes fit 40 KB, then fewer; degrees of 491 as Reddit has."""
    reddit = np.full(1_000, 491)
    assert decider.as_released(reddit, 16) == (491, 16, 256)
    assert decider.as_released(reddit, 602) == (491, 32, 256)
    assert decider.as_released(reddit, 1433) == (491, 32, 32 * 5)
    assert decider.as_released(np.zeros(5, np.int64), 20_000) == (1, 32, 32)


def test_without_constants_the_fit_is_refused_in_one_line(tmp_path):
    folder = make_layout(tmp_path, random_csr(20, 50), 1)

    def act(world):
        with pytest.raises(InputError, match="has no constants for CPUs") as refusal:
            prepare("gnnadvisor", world, layout.load(folder, 0), "forward", 4, {"decide": "fitted"})
        assert "\n" not in str(refusal.value)

    simulated.run(1, act)
    with pytest.raises(InputError, match="no constants for 'NVIDIA H200'"):
        decider.fit_for("NVIDIA H200")


def test_the_fit_finds_its_coefficients_and_the_least():
    """Of times made of known coefficients, on two graphs; the choice for a third is the least of the grid."""
    rng, like = np.random.default_rng(0), Setting(1, 1, 32)
    true = decider.Fit(coefficients=(5e-6, 2e-12, 3e-13, 1e-10, 2e-12, 1e-9, 4e-9))
    graphs = [rng.integers(0, most, 3_000) for most in (10, 300, 40)]
    settings = decider.grid(like)
    counted = np.stack([decider.terms(lengths, 32, each) for lengths in graphs[:2] for each in settings])
    found = decider.fit(counted, true.seconds(counted))
    assert np.allclose(found.seconds(counted), true.seconds(counted), rtol=1e-6)
    times = {each: true.seconds(decider.terms(graphs[2], 32, each)) for each in settings}
    assert times[found.choose(graphs[2], 32, like)] == pytest.approx(min(times.values()))
    with_noise = decider.fit(counted, true.seconds(counted) * rng.uniform(0.9, 1.1, len(counted)))
    assert min(with_noise.coefficients) >= 0


def sweep(path, times):
    """A sweep of three graphs, as benchmarks/gpu_gnnadvisor.py writes it; ``times`` gives milliseconds."""
    rng, like, lines = np.random.default_rng(1), Setting(1, 1, 32), []
    for name, most in (("long", 900), ("uneven", 300), ("short", 10)):
        lengths = rng.integers(0, most, 2_000)
        for number, setting in enumerate(decider.grid(like)):
            counted = decider.terms(lengths, 32, setting)
            by = "grid paper" if number == 7 else "grid"
            lines.append({"graph": name, "dim": 32, "by": by, "ms": times(number, counted), "terms": counted.tolist()})
        lines.append({"graph": name, "dim": 32, "by": "artifact", "ms": None, "terms": [1.0] * 7})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines


def test_picks_are_judged_on_graphs_that_the_fit_has_not_seen(tmp_path):
    true = decider.Fit(coefficients=(5e-6, 2e-12, 3e-13, 1e-10, 2e-12, 1e-9, 4e-9))
    lines = sweep(tmp_path / "a.jsonl", lambda number, counted: 1e3 * float(true.seconds(counted)))
    found = bench.ratios(bench.read(tmp_path / "a.jsonl"))
    for graph in ("short", "uneven", "long"):
        grid = [line for line in lines if line["graph"] == graph and "grid" in line["by"]]
        row, least = found[graph, 32], min(line["ms"] for line in grid)
        assert row["fitted"] == pytest.approx(1) and row["artifact"] == np.inf
        assert row["paper"] == pytest.approx(grid[7]["ms"] / least) and row["paper"] > 1

    # The first graph's times are made of other coefficients: the two others tell nothing of these.
    count, calls = len(decider.grid(Setting(1, 1, 32))), iter(range(10**6))
    other = decider.Fit(coefficients=(5e-6, 0, 0, 1e-12, 0, 1e-12, 1e-6))

    def times(_, counted):
        return 1e3 * float((other if next(calls) < count else true).seconds(counted))

    lines = sweep(tmp_path / "b.jsonl", times)
    row = bench.ratios(bench.read(tmp_path / "b.jsonl"))["long", 32]
    counted = np.array([line["terms"] for line in lines[:count]])
    asked = int(np.argmin(true.seconds(counted)))
    assert row["fitted"] == pytest.approx(lines[asked]["ms"] / min(line["ms"] for line in lines[:count]))
    assert row["fitted"] > 1.2 and bench.picked(bench.read(tmp_path / "b.jsonl")[:count], other).ms < lines[asked]["ms"]
    told = bench.report(bench.read(tmp_path / "b.jsonl"), "NVIDIA T800 80GB")
    assert '"t800": Fit(coefficients=(' in told and "within 1.1" in told


def test_a_fit_is_taken_for_its_gpu_alone(monkeypatch):
    """By a word of the driver's name, and for memory the largest there is."""
    known = decider.Fit(coefficients=(0, 0, 0, 1e-9, 0, 0, 1e-9))
    monkeypatch.setattr(decider, "FITTED", {"h200": known})
    assert decider.fit_for("NVIDIA H200") is known
    options = parse_options("gnnadvisor", {"decide": "fitted", "leader": False})
    lengths = np.full(100, 50)
    chosen = options.settings(lengths, 16, "NVIDIA H200")
    # With a price on groups and on steps of a thread alone, the least is where a row is one group of many workers.
    assert (chosen.ngs, chosen.dw, chosen.leader) == (64, 4, False)
    assert options.settings(lengths, 16, None) == chosen
