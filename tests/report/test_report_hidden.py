"""Whether communication is hidden: four numbers of a product, their ratio and the limit."""

from __future__ import annotations

import html

import pytest
from synthetic_records import timed

HEADING = "Is communication hidden?"


@pytest.mark.parametrize(
    ("parts", "ratio", "verdict"),
    [({"compute": 2.0, "transfer": 1.0}, 1.1, "hidden"), ({"compute": 1.0, "transfer": 1.5}, 2.2 / 1.5, "not hidden")],
)
def test_product_is_shown_beside_its_parts(report, parts, ratio, verdict):
    (row,), page = report([timed(2.2, "halo", **parts)], "halo_hidden", table="aggregate")
    assert float(row["overlap_ratio"]) == pytest.approx(ratio) and float(row["transfer_s"]) == parts["transfer"]
    text = html.unescape(page[page.index('<section id="halo_hidden">') :])
    larger = max(("compute", "arithmetic"), ("transfer", "transfers"), key=lambda part: parts[part[0]])[1]
    assert f"<td>{ratio:.2f}<small>larger: {larger}</small></td><td>{verdict}</td>" in text
    assert "at most 1.15" in text


def test_section_needs_measured_parts(page):
    text = page([timed(2.0, "halo", compute=1.9, transfer=1.0), timed(3.0, "halo", dtype="bf16", dim=64)])
    assert '<section id="hidden">' in text
    assert "In 1 of 1 product the whole took at most 1.15 times as long as the larger part." in text


@pytest.mark.parametrize("parts", [{}, {"compute": 1.0}, {"compute": 1.9, "transfer": 1.0, "error": 1.0}])
def test_untimed_parts_and_wrong_results_have_no_number(page, parts):
    assert f"<h2>{HEADING}</h2>" not in page([timed(2.0, "halo", **parts)])


def test_experiment_without_parts_says_why(report):
    rows, text = report([timed(2.0, "halo", compute=1.0)], "halo_hidden", table="aggregate")
    assert "transfers and arithmetic have to be timed alone" in text and rows[0]["overlap_ratio"] == ""
