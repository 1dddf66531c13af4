"""Page faults over PEs, and occupancy, beside what MGG's two versions say of them."""

import pytest
from synthetic_records import GPUS, aggregate, timed

from mgg.report.papers.sections import outcomes, sections

PIPELINE = {"neighbor_partition": True, "interleave": True, "ps": 32}


FIGURES = ("mgg_fig3", "mgg_arxiv_fig3")


@pytest.fixture
def shown(tables):
    """The sentence at the head of the page, the grid's cells by group and row, and the drawings of a figure."""

    def make(name, records):
        found = tables(records, figures=FIGURES)
        (finding,) = outcomes(sections(found, [(name, "")]))
        (section,) = [each for each in sections(found, [(name, "")]) if each.anchor == name]
        (part,) = section.parts
        assert finding.text in part.intro
        cells = {(key, row): [cell.text for cell in line] for key, lines in part.grids[0].groups for row, line in lines}
        return finding.text, cells, part.drawings

    return make


def faulted(pes, faults, **changes):
    """A timing over unified memory on GPUs, with so many page faults a product of 2 ms and 4 KiB each."""
    machine = GPUS.model_copy(update={"gpus": ["NVIDIA H100"] * pes})
    counted = {"page_faults": faults, "fault_seconds": faults * 2e-3, "migrated_bytes": faults * 4096.0}
    return timed(0.1, "mgg_uvm", pes=pes, machine=machine, **counted | changes)


def test_page_faults_are_compared_with_the_fewest_pes(shown):
    records = [faulted(4, 768.0, fault_seconds=2.56), faulted(2, 256.0), faulted(3, 512.0)]
    text, rows, drawings = shown("mgg_arxiv_fig3", records)
    assert "4 PEs have 768 page faults a product, 3.00 times those of 2: the paper's direction." in text
    assert list(rows.values()) == [
        ["256", "1.00", "0.512", "1.00", "1.00"],
        ["512", "2.00", "1.02", "2.00", "2.00"],
        ["768", "3.00", "2.56", "5.00", "3.00"],
    ]
    assert [f"4 PEs: {ratio}" in str(each.svg) for each, ratio in zip(drawings, ("3.00", "5.00"), strict=True)] == [
        True
    ] * 2


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ((512.0, 256.0), "0.500 times those of 2: not the paper's direction."),
        ((0.0, 8.0), "4 PEs have 8.00 page faults a product, 2 none."),
        ((None, None), "Page faults were not counted: CUPTI says no."),
    ],
)
def test_contradicting_counts_are_reported(shown, counts, told):
    why = {"faults_untold": "CUPTI says no", "fault_seconds": None, "migrated_bytes": None}
    records = [faulted(pes, n or 0.0, **{} if n is not None else why | {"page_faults": None})
               for pes, n in zip((2, 4), counts, strict=True)]  # fmt: skip
    assert told in shown("mgg_arxiv_fig3", records)[0]


def profiled(technique, occupancy, utilization, **options):
    """A timing on GPUs that was profiled; ``options`` apart from the pipeline's defaults."""
    shares = {"occupancy": occupancy, "occupancy_limit": 0.75, "sm_utilization": utilization}
    return aggregate(
        technique=technique, pes=4, machine=GPUS, backend="nvshmem", options=PIPELINE | options, defaults=PIPELINE,
        **shares,
    )  # fmt: skip


def test_occupancy_is_compared_with_unified_memory_and_the_paper(shown):
    """Options that no side names, as ps here, may be any; those of a side are its own."""
    records = [
        profiled("mgg", 0.60, 0.90, ps=16),
        profiled("mgg_uvm", 0.40, 0.95),
        profiled("mgg", 0.30, 0.80, neighbor_partition=False),
    ]
    text, rows, _ = shown("mgg_fig3", records)
    assert "Achieved occupancy of MGG is 1.50 times that of unified memory (1 case), 1.392 times" in text
    assert "SM utilization of MGG is 0.947 times" in text and text.count("not the paper's") == 1
    assert {name.split(",")[0]: cells for (_, name), cells in rows.items()} == {
        "MGG": ["60.0 %", "75.0 %", "90.0 %"],
        "unified memory": ["40.0 %", "75.0 %", "95.0 %"],
        "whole rows": ["30.0 %", "75.0 %", "80.0 %"],
    }


def test_missing_counters_are_reported(tables):
    found = tables([timed(0.1, "mgg_uvm")], figures=FIGURES)
    told = [finding.text for finding in outcomes(sections(found, [("mgg_arxiv_fig3", ""), ("mgg_fig3", "")]))]
    assert "mgg aggregate --faults" in told[0] and "mgg aggregate --profile" in told[1]


def test_tables_have_counter_columns(report):
    untold = {"faults_untold": None, "profile_untold": "kernels wait"}
    (row,), _ = report([faulted(2, 256.0, **untold)], table="aggregate")
    assert (float(row["page_faults"]), float(row["migrated_bytes"])) == (256, 256 * 4096)
    assert (row["occupancy"], row["faults_untold"], row["profile_untold"]) == ("", "", "kernels wait")
