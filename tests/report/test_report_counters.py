"""Page faults over PEs, and occupancy, beside what MGG's two versions say of them."""

import csv

import pytest
from synthetic_records import GPUS, aggregate, timed

from mgg.record import write_lines
from mgg.report import build
from mgg.report.papers.sections import outcomes, sections
from mgg.report.tables.collect import collect
from mgg.report.tables.comparisons import compare
from mgg.report.tables.compute import compute

PIPELINE = {"neighbor_partition": True, "interleave": True, "ps": 32}


def tables(folder, records):
    write_lines(folder / "records.jsonl", records)
    found = compute(collect([folder / "records.jsonl"]))
    return found | {"figures": compare(["mgg_fig3", "mgg_arxiv_fig3"], found["aggregate"], found["training"])}


def shown(folder, name, records):
    """The sentence at the head of the page, the grid's cells by group and row, and the number of drawings."""
    found = tables(folder, records)
    (finding,) = outcomes(found, [(name, "")])
    (section,) = [each for each in sections(found, [(name, "")]) if each.anchor == name]
    (part,) = section.parts
    assert finding.text in part.intro
    rows = {(key, row): [cell.text for cell in cells] for key, lines in part.grids[0].groups for row, cells in lines}
    return finding.text, rows, part.drawings


def faulted(pes, faults, **changes):
    """A timing over unified memory on GPUs, with so many page faults a product of 2 ms and 4 KiB each."""
    machine = GPUS.model_copy(update={"gpus": ["NVIDIA H100"] * pes})
    counted = {"page_faults": faults, "fault_seconds": faults * 2e-3, "migrated_bytes": faults * 4096.0}
    return timed(0.1, "mgg_uvm", pes=pes, machine=machine, **counted | changes)


def test_page_faults_stand_beside_those_of_the_fewest_pes(tmp_path):
    records = [faulted(4, 768.0, fault_seconds=2.56), faulted(2, 256.0), faulted(3, 512.0)]
    text, rows, drawings = shown(tmp_path, "mgg_arxiv_fig3", records)
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
def test_counts_that_say_something_else_are_told(tmp_path, counts, told):
    why = {"faults_untold": "CUPTI says no", "fault_seconds": None, "migrated_bytes": None}
    records = [faulted(pes, n or 0.0, **{} if n is not None else why | {"page_faults": None})
               for pes, n in zip((2, 4), counts, strict=True)]  # fmt: skip
    assert told in shown(tmp_path, "mgg_arxiv_fig3", records)[0]


def profiled(technique, occupancy, utilization, **options):
    """A timing on GPUs that was profiled; ``options`` apart from the pipeline's defaults."""
    shares = {"occupancy": occupancy, "occupancy_limit": 0.75, "sm_utilization": utilization}
    return aggregate(
        technique=technique, pes=4, machine=GPUS, backend="nvshmem", options=PIPELINE | options, defaults=PIPELINE,
        **shares,
    )  # fmt: skip


def test_occupancy_stands_beside_unified_memory_and_the_paper(tmp_path):
    """Options that no side names, as ps here, may be any; those of a side are its own."""
    records = [
        profiled("mgg", 0.60, 0.90, ps=16),
        profiled("mgg_uvm", 0.40, 0.95),
        profiled("mgg", 0.30, 0.80, neighbor_partition=False),
    ]
    text, rows, _ = shown(tmp_path, "mgg_fig3", records)
    assert "Achieved occupancy of MGG is 1.50 times that of unified memory (1 case), 1.392 times" in text
    assert "SM utilization of MGG is 0.947 times" in text and text.count("not the paper's") == 1
    assert {name.split(",")[0]: cells for (_, name), cells in rows.items()} == {
        "MGG": ["60.0 %", "75.0 %", "90.0 %"],
        "unified memory": ["40.0 %", "75.0 %", "95.0 %"],
        "whole rows": ["30.0 %", "75.0 %", "80.0 %"],
    }


def test_what_was_not_asked_for_is_said_to_be_missing(tmp_path):
    found = tables(tmp_path, [timed(0.1, "mgg_uvm")])
    told = [finding.text for finding in outcomes(found, [("mgg_arxiv_fig3", ""), ("mgg_fig3", "")])]
    assert "mgg aggregate --faults" in told[0] and "mgg aggregate --profile" in told[1]


def test_tables_have_the_columns(tmp_path):
    untold = {"faults_untold": None, "profile_untold": "kernels wait"}
    write_lines(tmp_path / "records.jsonl", [faulted(2, 256.0, **untold)])
    build([tmp_path / "records.jsonl"], tmp_path / "out", "counters")
    with (tmp_path / "out/aggregate.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (float(row["page_faults"]), float(row["migrated_bytes"])) == (256, 256 * 4096)
    assert (row["occupancy"], row["faults_untold"], row["profile_untold"]) == ("", "", "kernels wait")
