"""Figures of GNNAdvisor: sweeps of its parameters, picks of its Decider, atomics, spans."""

from __future__ import annotations

import json
import re

import pytest
from synthetic_records import ORIGIN, aggregate, split, train

from mgg.records.graph import GraphRecord
from mgg.report.page import graphs
from mgg.report.papers import advisor
from mgg.report.papers.catalogue import EXPERIMENTS
from mgg.report.papers.sections import outcomes, sections

NAMES = [name for name in EXPERIMENTS if name.startswith("gnna_")]
DEFAULTS = {
    "ngs": None,
    "dw": None,
    "tpb": None,
    "mapping": "warp",
    "leader": True,
    "sums": "ordered",
    "decide": "none",
}


def timed(median, ngs=16, dw=32, tpb=128, atomics=0, **changes):
    """A timing of gnnadvisor on one PE; ``changes`` of its options, or of the record."""
    options = {key: changes.pop(key) for key in DEFAULTS if key in changes}
    chosen = {} if "decide" in options else {"ngs": ngs, "dw": dw, "tpb": tpb}
    seconds = [median * 0.999, median, median * 1.001]
    return aggregate(
        technique="gnnadvisor", pes=1, options=DEFAULTS | chosen | options, defaults=DEFAULTS, seconds=seconds,
        decided={"ngs": ngs, "dw": dw, "tpb": tpb}, atomics=atomics, bytes_wire=0, bytes_per_pe=[0], **changes,
    )  # fmt: skip


def described(seconds, graph_hash):
    """A graph, of which communities are known where ``seconds`` are."""
    communities = {} if seconds is None else {
        "communities": 5, "community_mean": 20.0, "community_deviation": 1.0, "community_largest": 22,
        "span_rabbit": 300.0, "rabbit_seconds": seconds,
    }  # fmt: skip
    return GraphRecord(
        dataset="cora", graph_hash=graph_hash, nodes=2708, arcs=10_556, symmetric=True, weighted=False, relations=0,
        features=0, classes=0, order="natural", degree_mean=3.9, degree_deviation=5.2, degree_largest=168, empty_rows=0,
        span=900.0, reorder_pays=True, **communities, **ORIGIN,
    )  # fmt: skip


def grid():
    """Times of a plane of ngs and dw, least at 16 and 8."""
    times = {(ngs, dw): 1 + abs(ngs - 16) / 16 + abs(dw - 8) / 8 for ngs in (4, 16, 64) for dw in (1, 8, 32)}
    return [timed(time / 1e3, ngs, dw) for (ngs, dw), time in times.items()]


def test_picks_are_shown_beside_the_best_of_the_grid(tables):
    records = [*grid(), timed(1.05e-3, 64, 16, decide="artifact"), timed(4e-3, 1024, 16, decide="paper")]
    found = tables(records)
    (part,) = advisor.parts(found, "f", ["picks"])
    assert part.intro.startswith(
        "The Decider's picks take as printed 4.00 times the grid's best on average, within 10 % of it in 0 of 1 case,"
        " as released 1.05 times the grid's best on average, within 10 % of it in 1 of 1 case."
    )
    ((_, [(case, cells)]),) = part.grids[0].groups
    assert case == "D = 16, forward"
    assert [(cell.text, cell.small) for cell in cells] == [
        ("1.00", "16, 8, 128"), ("4.00 x", "1024, 16, 128"), ("1.05 x", "64, 16, 128"), ("-", ""), ("11", ""),
    ]  # fmt: skip
    # Of the grid the best alone stands among the other techniques; what was decided stays.
    kept = [json.loads(row["options"]) for row in advisor.telling(found["aggregate"])]
    assert sorted((each["decide"], each["ngs"], each["dw"]) for each in kept if each["decide"] == "none") == [
        ("none", 16, 8)
    ]
    assert sorted(each["decide"] for each in kept) == ["artifact", "none", "paper"]


@pytest.mark.parametrize(("option", "least", "lines"), [("ngs", 16, 3), ("dw", 8, 3)])
def test_sweep_has_a_line_per_other_option(tables, option, least, lines):
    (part,) = advisor.parts(tables(grid()), "f", [option])
    assert part.intro.startswith(f"The least time is at {option} {least} (cora, D = 16).")
    ((_, body),) = part.grids[0].groups
    assert len(body) == lines and all([cell.best for cell in cells] == [False, True, False] for _, cells in body)
    assert "On CPU cores ngs alone" in part.intro


def test_atomics_of_both_sides_are_compared(tables):
    sides = [(True, 25), (False, 100)]
    records = [timed(1e-3, leader=on, sums="atomic", atomics=16 * n, repeats=False) for on, n in sides]
    found = tables([*records, timed(2e-3)], figures=NAMES)
    (part,) = advisor.parts(found, "f", ["atomics"])
    assert part.intro == "The leader saves 75.0 % of the atomics on average; in the paper 47.85 %."
    assert {row["repeats"] for row in found["aggregate"]} == {False, None}
    (told,) = outcomes(sections(found, [("gnna_fig12d", "")]))[:1]
    assert part.intro in told.text and "noise, since CPU cores run the same code" in told.text


def test_edge_spans_are_shown_below_the_times(tables):
    names = {"amazon-like-shuffled": 3e-3, "amazon-like-reordered": 2e-3}
    records = [timed(time, dataset=name, graph_hash=split(name, 1).graph_hash) for name, time in names.items()]
    splits = [split(name, 1) for name in names]
    splits = [
        each.model_copy(update={"quality": each.quality.model_copy(update={"span": span})})
        for each, span in zip(splits, (900.0, 300.0), strict=True)
    ]
    (part,) = advisor.parts(tables(records, splits=splits), "f", ["span"])
    assert [(name.split(" ")[0], cells[0].text) for name, cells in part.grids[0].groups[0][1]] == [
        ("amazon-like-reordered", "300"), ("amazon-like-shuffled", "900"),
    ]  # fmt: skip


def test_every_figure_has_its_section_with_and_without_records(tables):
    assert len(NAMES) == 12
    chosen = [(name, "") for name in NAMES]
    empty = tables([aggregate()])
    assert all(re.search("hold nothing to compare", each.parts[0].intro) for each in sections(empty, chosen)[:12])
    assert all("hold nothing to compare" in each.text for each in outcomes(sections(empty, chosen))[:12])


def test_described_graphs_have_a_section(tables):
    """Spans before and after, of a graph whose communities are known, and of one whose are not."""
    found = tables([described(0.6, "ab" * 32), described(None, "cd" * 32)])
    lines = graphs.described(found).parts[0].grids[0].groups[0][1]
    (known, unknown) = ({cell.text: cell.small for cell in cells} for _, cells in lines)
    assert known["900"] == "" and known["300"] == "33.3 %" and known["600 ms"] == "" and known["renumber"] == ""
    assert "900" in unknown and "300" not in unknown and "-" in unknown
    assert graphs.described(tables(runs=[train()])) is None


def test_page_of_described_graphs_has_no_comparison(report):
    _, page = report([described(0.6, "ab" * 32)])
    assert "What the graphs are like" in page and "What won" not in page


def test_inference_passes_are_compared(tables):
    """Not epochs, whose quotient is another; runs that timed none are left out."""
    ours = {"technique": "gnnadvisor", "pes": 1}
    theirs = {"technique": "pyg_csr", "side": "pyg_csr", "pes": 1}
    runs = [
        train(model=model, median=median, q1=median, q3=median, inference=inference, **side)
        for side, median, seconds in ((ours, 0.01, 0.002), (theirs, 0.05, 0.004))
        for model, inference in (("gcn", seconds), ("gin", None))
    ]
    rows = tables(runs=runs, figures=NAMES)["figures"]
    assert {(row["figure"], row["model"], round(row["ratio"], 9), row["paper"]) for row in rows} == {
        ("gnna_fig8", "gcn", 2.0, 4.03), ("gnna_fig9", "gcn", 5.0, 1.61), ("gnna_fig9", "gin", 5.0, 2.0),
    }  # fmt: skip
