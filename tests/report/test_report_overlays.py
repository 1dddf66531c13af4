"""The list of the papers' figures in docs/guides/figures.md holds every one of them, and every overlay."""

import re
from itertools import groupby, pairwise
from pathlib import Path

import pytest
import yaml

from mgg.report.papers.catalogue import EXPERIMENTS, FORESEEN

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config"
OVERLAYS = {path.stem: path for path in (CONFIG / "experiments").glob("*.yaml")}
#: Figures and tables of each paper, counted in the papers.
COUNTS = {
    "MGG (OSDI'23)": (11, 4),
    "MGG (arXiv 2022)": (10, 5),
    "GNNAdvisor (OSDI'21)": (14, 2),
    "Seastar (EuroSys'21)": (12, 4),
    "CoLa (ICS'25)": (5, 11),
}


def listed():
    """Rows of the list: paper, figure or table, overlays, text."""
    section = (ROOT / "docs/guides/figures.md").read_text(encoding="utf-8")
    table = section[section.index("| paper |") :].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    for above, row in pairwise(rows):
        row[0] = row[0] or above[0]
    return rows


def numbers(what):
    """``figures 1, 4 to 7`` as the kind and its numbers."""
    kind, rest = what.split(" ", 1)
    spans = [list(map(int, part.split(" to "))) for part in rest.split(", ")]
    return kind.rstrip("s"), [number for span in spans for number in range(span[0], span[-1] + 1)]


@pytest.mark.parametrize("paper", COUNTS)
def test_every_paper_figure_is_listed_once(paper):
    found = {"figure": [], "table": []}
    for kind, given in (numbers(what) for name, what, _, _ in listed() if name == paper):
        found[kind] += given
    assert tuple(sorted(each) for each in found.values()) == tuple(list(range(1, n + 1)) for n in COUNTS[paper])


def test_listed_papers_match_the_counts():
    assert [paper for paper, _ in groupby(row[0] for row in listed())] == [*COUNTS, "ours"]


def test_every_overlay_is_listed_and_omissions_have_a_reason():
    named = [name for _, _, cell, _ in listed() for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(OVERLAYS)
    assert all(text for _, _, _, text in listed())
    assert all(cell == "-" or re.fullmatch(r"`\w+`(, `\w+`)*", cell) for _, _, cell, _ in listed())


def test_overlay_names_its_figure():
    for name in EXPERIMENTS.keys() | FORESEEN.keys():
        assert name in yaml.safe_load(OVERLAYS[name].read_text(encoding="utf-8"))["report"]["figures"]


def test_overlay_is_listed_with_its_source_figure():
    """The row of an overlay is that of the figure which its section of the page names."""
    for paper, what, cell, _ in listed():
        for name in re.findall(r"`(\w+)`", cell):
            if paper != "ours":
                source = (EXPERIMENTS.get(name) or FORESEEN[name]).source
                kind, number = re.search(r"(figure|table) (\d+)", source).groups()
                assert (kind, int(number) in numbers(what)[1]) == (numbers(what)[0], True), name
                assert source.replace(", 2022", " 2022").startswith(paper), name
