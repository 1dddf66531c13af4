"""The constants of machine h200: those that tools/fit_costs.py finds, and what auto makes of them."""

import math

import pytest
from support.benchmarks import TOOLS, script

from mgg.cost.machines import H200
from mgg.cost.product import SplitCounts
from mgg.records import Partition, read_lines

fit = script("fit_costs", TOOLS)


@pytest.fixture(scope="module")
def measured():
    """What was measured, and how its graphs split."""
    records = read_lines(TOOLS / "measured/splits.jsonl", Partition)
    return fit.read([TOOLS / "measured/h200.csv"]), {(each.name, each.pes): SplitCounts.of(each) for each in records}


@pytest.fixture(scope="module")
def fitted(measured):
    """What the fit makes of all of it."""
    return fit.fitted(*measured)


def test_stored_constants_equal_the_fit(measured, fitted):
    samples, splits = measured
    found = fit.machine(fitted)
    for each in samples:
        known, anew = (fit.predicted(each, splits, on) for on in (H200, found))
        assert known == pytest.approx(anew, rel=0.01), each


def test_no_fitted_constant_is_at_its_upper_bound(fitted):
    for name, value in fitted.items():
        start = fit.START[name.rpartition(".")[2]]
        assert value == 0 or math.log(value / start) < fit.ABOVE - 0.1, (name, value)


@pytest.mark.parametrize("operator", fit.LEAST)
def test_operator_costs_at_least_what_its_parts_cost(operator):
    other, times = fit.LEAST[operator]
    for term, factor in times.items():
        assert getattr(H200.rates[operator], term) >= factor * getattr(H200.rates[other], term) * 0.999, term


@pytest.mark.parametrize("graph", ["orkut-like", "products-like", "reddit-like", "web-like"])
def test_held_out_picks_are_within_5_percent_of_the_fastest(measured, graph):
    samples, splits = measured
    on = fit.machine(fit.fitted([each for each in samples if each.graph != graph], splits))
    picks = [fit.picked(here, splits, on) for (_, name, _), here in fit.comparisons(samples).items() if name == graph]
    assert len(picks) == 6 and max(ratio for _, ratio in picks) <= 1.05


@pytest.mark.parametrize(("without", "mean", "largest"), [("", 1.01, 1.02), ("halo", 1.03, 1.22)])
def test_picks_are_near_the_fastest_measured(measured, without, mean, largest):
    samples, splits = measured
    picks = [fit.picked(here, splits, H200, without) for here in fit.comparisons(samples).values()]
    ratios = [pick[1] for pick in picks if pick]
    assert len(ratios) == 24
    assert max(ratios) <= largest and math.prod(ratios) ** (1 / 24) <= mean


def test_measurements_are_unique_and_have_their_split(measured):
    samples, splits = measured
    lines = (TOOLS / "measured/h200.csv").read_text().splitlines()[1:]
    assert len(samples) == len(lines)
    assert {(each.graph, each.pes) for each in samples} <= set(splits)
    of_halo = {(each.graph, each.pes, each.dtype, each.dim) for each in samples if each.technique == "halo"}
    assert len(of_halo) == 4 * 2 * 2 * 3
