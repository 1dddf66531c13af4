"""What is called the fastest, and why nothing is: by the spread between launches, worked out by hand."""

from __future__ import annotations

import re

import pytest
from synthetic_records import GPUS, MACHINE, USUAL, aggregate, train, words


@pytest.fixture
def judged(tables):
    """Judges techniques whose launches took so many seconds, on 2 PEs of 2 cores unless ``at`` says otherwise."""

    def make(at=None, **launches):
        found = tables([aggregate(technique=name, seconds=each, **at or {}) for name, each in launches.items()])
        (fastest,) = found["fastest"]
        rows = {row["label"]: row for row in found["aggregate"]}
        signs = ("fastest", "starred", "close")
        return fastest, {sign: {name for name, row in rows.items() if row[sign]} for sign in signs}

    return make


def test_star_needs_a_slowest_launch_before_all_others(judged):
    fastest, marked = judged(halo=[1.0, 1.2, 1.1], cola=[1.3, 1.25, 9.0], mgg=[4.0, 3.0, 5.0])
    assert marked == {"fastest": {"halo"}, "starred": {"halo"}, "close": set()}
    assert (fastest["label"], fastest["runner_up"], fastest["unstarred"]) == ("halo", "cola", "")
    assert (fastest["median_s"], fastest["ratio"]) == (1.1, pytest.approx(1.3 / 1.1))


@pytest.mark.parametrize(
    ("cola", "mgg", "near"),
    [
        ([1.2, 1.5, 1.6], [4.0, 3.0, 5.0], "cola"),  # begins where the fastest ends
        ([0.5, 1.5, 1.6], [4.0, 3.0, 5.0], "cola"),  # one launch is faster than all
        ([1.3, 1.3, 1.3], [1.15, 7.0, 8.0], "mgg"),  # the runner-up is apart, the third, slower in its median, is not
    ],
)
def test_overlapping_launches_have_no_star(judged, cola, mgg, near):
    fastest, marked = judged(halo=[1.0, 1.2, 1.1], cola=cola, mgg=mgg)
    assert marked == {"fastest": {"halo"}, "starred": set(), "close": {"halo", near}}
    assert (fastest["runner_up"], fastest["unstarred"], fastest["close"]) == ("cola", "launches overlap", True)


@pytest.mark.parametrize(("halo", "cola"), [([1.0] * 3, [4.0, 4.1]), ([1.0, 1.1], [4.0] * 3), ([1.0], [4.0])])
def test_fewer_than_three_launches_have_no_star(judged, halo, cola):
    fastest, marked = judged(halo=halo, cola=cola)
    assert marked == {"fastest": {"halo"}, "starred": set(), "close": set()}
    assert fastest["unstarred"] == "fewer than 3 launches"


@pytest.mark.parametrize(
    ("at", "why"),
    [
        ({"pes": 3}, "more PEs than cores"),
        ({"pes": 2}, ""),
        ({"pes": 5, "machine": GPUS, "backend": "nvshmem"}, "more PEs than GPUs"),
        ({"pes": 4, "machine": GPUS, "backend": "nvshmem"}, ""),
        ({"pes": 1}, "nothing moves on 1 PE"),
    ],
)
def test_oversubscribed_pes_have_no_star(judged, at, why):
    assert (MACHINE.cores, len(GPUS.gpus)) == (2, 4)
    fastest, marked = judged(halo=[1.0, 1.0, 1.1], cola=[4.0, 4.0, 4.1], at=at)
    assert fastest["unstarred"] == why and marked["starred"] == (set() if why else {"halo"})


def test_quartiles_of_products_do_not_decide_stars(tables):
    """Products that overlap within launches that do not are told apart; launches that overlap are not."""
    wide = [1.0, 2.0, 9.0] * 3
    near = {"seconds": wide, "launches": [2.0, 2.0, 2.1]}, {"seconds": wide, "launches": [2.2, 2.3, 2.2]}
    far = {"seconds": [1.0] * 8 + [7.0], "launches": [1.0, 1.0, 5.0]}, {"seconds": [4.0] * 9, "launches": [4.0] * 3}
    for (one, two), stars in ((near, {"halo"}), (far, set())):
        rows = tables([aggregate(technique="halo", **one), aggregate(technique="cola", **two)])["aggregate"]
        assert {row["label"] for row in rows if row["starred"]} == stars


def test_page_states_stars_then_reasons_for_none(page):
    times = {
        16: {"halo": [1.0, 1.2, 1.1], "cola": [1.3, 1.4, 1.5]},
        64: {"halo": [2.0, 2.2, 2.1], "cola": [2.1, 2.4, 2.5]},
        256: {"halo": [8.0, 8.1, 8.2], "cola": [9.0]},
    }
    records = [
        aggregate(technique=name, seconds=each, dim=dim) for dim, of in times.items() for name, each in of.items()
    ]
    turns = [aggregate(technique=name, seconds=[t] * 3, pes=4) for name, t in (("halo", 1.0), ("cola", 2.0))]
    text = words(page([*records, *turns]))
    held = "halo in 1 of 4 comparisons of several PEs: the slowest of its launches was faster than"
    undecided = "No star in 3 of 4 comparisons of several PEs:"
    assert f"What won halo, in 1 of 4 Fastest in these runs : {held}" in text
    assert "★ halo, 1.10 s cola, 1.27x" in text
    assert undecided in text and text.index(held) < text.index(undecided) < text.index("Can I trust it")
    told = text[text.index(undecided) + len(undecided) :].split(".")[0]
    reasons = {"fewer than 3 launches in 1", "launches overlap in 1", "more PEs than cores in 1"}
    assert {each.strip() for each in re.split(",| and ", told)} == reasons
    for sentence in (
        "No star for D = 64 on 2 PEs: launches overlap.",
        "No star for D = 256 on 2 PEs: fewer than 3 launches.",
        "No star for 4 PEs: more PEs than cores.",
    ):
        assert sentence in text


def test_single_launch_has_no_star_and_one_reason(page):
    text = words(page([aggregate(technique=name, seconds=[t]) for name, t in (("halo", 1.0), ("cola", 2.0))]))
    assert "What won No technique stands out Not told apart : No star in 1 of 1" in text
    assert "fewer than 3 launches in 1." in text
    assert "No star: fewer than 3 launches." in text and "1 launch of 1 timed product after 5 untimed" in text
    assert "★ halo" not in text and "★ 1.00" not in text and "★ fastest" not in text


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        ([4.0, 4.2, 4.1], [2.0, 2.1, 1.9], "At most 2.05 times faster than the best time of 1 PE (halo with 2 PEs"),
        ([4.0, 4.2, 4.1], [3.9, 4.1, 3.8], "None can be told from the best time of 1 PE: launches overlap (nearest:"),
        ([4.0, 4.2], [2.0, 2.1], "None can be told from the best time of 1 PE: fewer than 3 launches (nearest:"),
        ([4.0, 4.2, 4.1], [5.0, 5.1, 5.2], "No single product was faster than the best of 1 PE (nearest: halo with"),
    ],
)
def test_speedups_need_separate_launches(page, one, two, said):
    text = words(page([aggregate(seconds=one, pes=1), aggregate(seconds=two, pes=2)]))
    assert f"Products on several PEs : {said}" in text


def test_summary_mentions_epochs_and_products(page):
    graph = train().graph_hash
    products = [aggregate(seconds=[t] * 3, pes=pes, graph_hash=graph) for pes, t in ((1, 1.0), (2, 2.0))]
    times = {("gin", 1): 0.066, ("gin", 2): 0.026, ("gin", 4): 0.011, ("gcn", 1): 0.01, ("gcn", 2): 0.02}
    runs = [train(model=model, pes=pes, median=t, q1=t, q3=t, epochs=3) for (model, pes), t in times.items()]
    text = words(page(products, runs=runs))
    # 4 PEs take turns on 2 cores.
    assert (
        "Epochs on several PEs : gin on cora, halo: 66.0 ms on 1 PE, 26.0 ms on 2 PEs, 2.54 times as fast. gcn on "
        "cora, halo: 10.0 ms on 1 PE, 20.0 ms on 2 PEs, 2.00 times as long." in text
    )
    assert "A training is one launch, of unknown spread:" in text
    assert "Products on several PEs : No single product was faster" in text and "Nothing ran faster" not in text


def test_epochs_of_oversubscribed_pes_are_not_summarized(page):
    text = words(page(runs=[train(pes=pes, epochs=3) for pes in (1, 4)]))
    assert "Epochs on several PEs : Not measured: every training on several PEs had more of them than cores." in text


@pytest.mark.parametrize(
    ("mine", "other", "verdict"),
    [
        ([1.0, 1.0, 1.2], [1.3, 3.0, 3.0], "the paper's direction"),
        ([1.0, 1.0, 1.2], [1.2, 3.0, 3.0], "too close to call"),
        ([1.0, 1.2, 1.3], [0.8, 0.9, 1.1], "too close to call"),
        ([1.0, 1.0], [3.0, 3.0, 3.0], "fewer than 3 launches"),
    ],
)
def test_verdicts_need_separate_launches(page, mine, other, verdict):
    on_gpus = {"pes": 4, "backend": "nvshmem", "machine": GPUS, "technique": "mgg", "defaults": USUAL}
    sides = ((mine, USUAL), (other, USUAL | {"interleave": False}))
    text = words(page([aggregate(seconds=each, options=how, **on_gpus) for each, how in sides], "mgg_fig10b"))
    assert f"(one comparison): {verdict} (paper's average 1.89)." in text
