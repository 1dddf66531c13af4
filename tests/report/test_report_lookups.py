"""Embedding lookups in the report: the table, the section, the paper's comparison."""

from __future__ import annotations

import html
import re

import pytest
from synthetic_records import MACHINE, ORIGIN, VERSIONS

from mgg.errors import InputError
from mgg.records.lookup import LookupRecord

#: Milliseconds of a batch, by side and samples.
TIMES = {"mgg": {256: 1.0, 4096: 9.0}, "alltoall": {256: 2.0, 4096: 8.0}, "alltoall_tables": {256: 3.0, 4096: 18.0}}


def looked_up(side, batch, ms, **changes):
    seconds = [ms * 1e-3] * 6
    fields = {
        **ORIGIN, "dataset": "criteo-like", "samples_hash": "0" * 64, "samples": 9000, "tables": [5, 7],
        "source": "criteo-like at scale 1.0", "side": side, "split": "tables" if "tables" in side else "rows",
        "dim": 64, "batch": batch, "backend": "mpi", "pes": 2, "machine": MACHINE, "versions": VERSIONS, "warmup": 1,
        "seconds": seconds, "launches": seconds[:3], "low": seconds[0], "median": seconds[0], "high": seconds[0],
        "q1": seconds[0], "q3": seconds[0], "distinct": 9000 // batch, "indices": 2 * batch, "remote": 6 * batch,
        "bytes_wire": 6 * batch * 256, "bytes_ids": 0, "v_fr": 6 * batch * 256, "error": 1e-8, "tolerance": 1e-6,
    }  # fmt: skip
    return LookupRecord(**fields | changes)


def records():
    return [looked_up(side, batch, ms) for side, times in TIMES.items() for batch, ms in times.items()]


def test_lookups_have_a_table_and_section(report, drawn):
    table, text = report(records(), table="lookups")
    text = html.unescape(text)
    first = next(row for row in table if (row["side"], row["batch"]) == ("mgg", "256"))
    assert float(first["rows_per_s"]) == pytest.approx(512 / 1e-3) and first["remote_share"] == "0.5"
    assert (first["bytes_wire_mean"], first["v_fr_mean"], first["device"]) == ("65536", "65536", "CPU ranks")
    section = text[text.index('<section id="lookups">') :]
    overtaken = "alltoall at 256 (2.00 at 256, 0.89 at 4096); crossover between 256 and 4096."
    assert f"Side mgg takes less time than {overtaken}" in section
    assert "Side mgg takes less time than alltoall_tables at every batch size (3.00 at 256, 2.00 at 4096)" in section
    assert "These PEs were CPU cores" in section
    # At 4,096 samples alltoall is marked, at 256 mgg.
    assert re.findall(r'<td class="best">([\d.]+)', section) == ["8.00", "1.00"]


def test_nccl_transport_is_named(page):
    text = html.unescape(page([*records(), looked_up("alltoall", 512, 1.0, transport="nccl", backend="nvshmem")]))
    assert "Over NCCL's grouped sends and receives: alltoall; the others are one-sided." in text
    assert "Over NCCL" not in html.unescape(page(records()))


def test_lookups_are_shown_beside_the_paper(page):
    text = page(records(), "mgg_table4")
    section = text[text.index('<section id="mgg_table4">') :]
    section = section[: section.index("</section>")]
    assert "119.66 ms" in section and "315.27 ms" in section
    cells = re.findall(r"<td[^>]*>([^<]*)", section)
    assert cells[:5] == ["1.00", "2.00", "2.00", "3.00", "3.00"]
    assert cells[-5:] == ["119.66 ms", "315.27 ms", "2.63", "315.27 ms", "2.63"]
    assert "criteo-like on 2 PEs, D = 64: mgg takes less time than alltoall at 256" in text


def test_comparison_needs_side_mgg(page):
    text = page([looked_up("alltoall", 256, 1.0)], "mgg_table4")
    assert "The records of this report hold nothing to compare here" in text


def test_wrong_results_are_not_compared(page):
    text = page([looked_up("mgg", 256, 1.0, error=1.0), looked_up("alltoall", 256, 2.0)])
    assert "wrong result" in text and "crossover" not in text


def test_impossible_times_are_refused(tables):
    with pytest.raises(InputError, match=r"LookupRecord.jsonl: record 1: field \w+: 0.0 is not a time"):
        tables([looked_up("mgg", 256, 0.0)])
