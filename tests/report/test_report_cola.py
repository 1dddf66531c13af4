"""CoLa's tables and figures beside records: claims by graph and PEs, orders, sweeps and volumes, worked out by hand."""

from __future__ import annotations

import html
import math
import re
from pathlib import Path

import pytest
import yaml
from synthetic_records import GPUS, MACHINE, split, timed, train

from mgg.report.papers.catalogue import EXPERIMENTS, claimed_as, stand_in

CONFIG = Path(__file__).parents[2] / "config"
PRINTED = {name: each.volumes.printed for name, each in EXPERIMENTS.items() if each.volumes}
CPUS = {"backend": "mpi", "machine": MACHINE}
FULL = {"fusion": True, "coalesced": True, "pipelined": True}


def section(page, name):
    """One section as lines of text: a table's line becomes one, its cells divided by bars."""
    start = page.index(f'<section id="{name}">')
    found = page[start : page.index("</section>", start)]
    found = re.sub(r"<small>", " ", re.sub(r"</t[hd]>(?!</tr>)", "|", re.sub(r"<svg.*?</svg>", "", found, flags=re.S)))
    return html.unescape(re.sub(r"<[^>]+>", "", found))


def test_printed_ratios_follow_from_the_printed_times():
    """What the paper prints beside its times, of 2, 4 and 8 GPUs: geometric means over its eight graphs."""
    printed = {"CAGNET": (9.66, 10.42, 10.95), "MG-GCN": (3.19, 3.18, 4.41), "MGG": (8.29, 8.40, 8.50)}
    for versus in EXPERIMENTS["cola_table6"].versus[:3]:
        for pes, mean in zip((2, 4, 8), printed[versus.rival.name], strict=True):
            claims = [claim for key, claim in versus.claims.items() if key.endswith(f" on {pes}")]
            assert len(claims) == 8
            assert math.exp(sum(map(math.log, claims)) / 8) == pytest.approx(mean, rel=0.02)
    for versus, mean in zip(EXPERIMENTS["cola_table11"].versus, (8.88, 3.07, 6.22), strict=False):
        assert math.exp(sum(map(math.log, versus.claims.values())) / 8) == pytest.approx(mean, rel=0.01)


def test_printed_means_of_orders_follow_from_each_other():
    """CoLa's gain is the quotient of its two lines, the others' that of two columns."""
    gains = {versus.subject.name: versus.claims["all"] for versus in EXPERIMENTS["cola_table10"].versus[:4]}
    assert gains["CoLa, reordered"] == pytest.approx(10.95 / 4.76, rel=0.01)
    assert gains["MG-GCN, reordered"] < 1 < gains["CAGNET, reordered"] < gains["MGG, reordered"]


def test_every_graph_of_the_paper_has_a_stand_in_and_numbers():
    printed = [PRINTED["cola_table2"], PRINTED["cola_table3"], EXPERIMENTS["cola_fig3"].sweep.printed]
    claims = [EXPERIMENTS[name].versus[0].claims for name in ("cola_table8", "cola_table11")]
    stands = yaml.safe_load((CONFIG / "papers" / "cola.yaml").read_text(encoding="utf-8"))["stand_ins"]
    assert all(set(each) == set(stands) for each in (*printed, *claims))


def test_impossible_printed_volumes_are_marked():
    doubtful = EXPERIMENTS["cola_table3"].volumes.doubtful
    for graph, (cg, *_) in PRINTED["cola_table3"].items():
        right = cg == pytest.approx(PRINTED["cola_table2"][graph][0] * 8 / 15, rel=1e-3)
        assert right == (graph not in doubtful), graph


def test_papers_numbers_apply_to_the_real_graph():
    assert claimed_as("com-Orkut") == claimed_as("orkut-like") == "orkut-like"
    assert claimed_as("cora") == "cora"
    assert stand_in("pokec-like-shuffled").name == "soc-Pokec" and stand_in("cora") is None


def test_methods_are_compared(report):
    records = [timed(2.0, "cola", dim=32), timed(3.0, "halo", dim=32), timed(20.0, "mgg", dim=32)]
    records += [timed(time, "broadcast", dim=32, options={"replication": c}) for time, c in ((9.0, 1), (8.0, 2))]
    records = [record.model_copy(update={"dataset": "orkut-like"}) for record in records]
    rows, page = report(records, "cola_table6")
    found = {row["rival"]: (float(row["ratio"]), row["verdict"], round(float(row["paper"] or 0), 2)) for row in rows}
    assert found == {
        "CAGNET": (4, "the paper's direction", 8.42),  # 38.72 / 4.60
        "MGG": (10, "the paper's direction", 6.69),
        "halo (ours)": (1.5, "", 0),
    }
    text = section(page, "cola_table6")
    assert "orkut-like|8.00 4.00 x; paper 8.42 x|-|20.0 10.0 x; paper 6.69 x|2.00|3.00 1.50 x" in text
    assert "CAGNET / CoLa|4.00|8.42|the paper's direction|1 of 1|0" in text
    assert "“MGG” took 10.0 times as long as “CoLa” (one comparison): the paper's direction (in the paper 6.69)" in (
        html.unescape(page)
    )


def test_products_and_epochs_have_separate_lines(report):
    options = {"technique": "cola", "options": FULL, "backend": "nvshmem", "machine": GPUS, "pes": 4}
    slow = {"technique": "halo", "options": {}, "median": 0.036, "q1": 0.035, "q3": 0.037}
    runs = [train(**options), train(**(options | slow))]
    _, page = report([timed(1.0, "cola"), timed(4.0, "halo")], "cola_table6", runs=runs)
    text = section(page, "cola_table6")
    assert "halo (ours) / CoLa, products|4.00|" in text and "halo (ours) / CoLa, epochs|3.00|" in text, text


def test_other_numbers_of_pes_have_no_paper_number(report):
    records = [timed(1.0, "cola", pes=3, dataset="orkut-like"), timed(2.0, "mgg", pes=3, dataset="orkut-like")]
    (row,), _ = report(records, "cola_table6")
    assert (row["paper"], row["verdict"]) == ("", "")


def test_steps_of_cola_differ_only_in_their_options(report):
    steps = {
        "RF": {"fusion": False},
        "RF+CF": {"coalesced": False, "pipelined": False},
        "RF+CF+RC": {"pipelined": False},
    }
    records = [timed(1.0, "cola", dataset="pokec-like", options=FULL | {"workgroup": 2})]
    for number, (_, off) in enumerate(steps.items(), 2):
        records.append(timed(number, "cola", dataset="pokec-like", options=FULL | off | {"workgroup": 2}))
    records.append(timed(9.0, "cola", dataset="pokec-like", options=FULL | {"fusion": False, "workgroup": 4}))
    records.append(timed(7.0, dataset="pokec-like"))
    rows, _ = report(records, "cola_table8")
    assert {row["rival"]: float(row["ratio"]) for row in rows} == {"basic": 7, "RF": 2, "RF+CF": 3, "RF+CF+RC": 4}
    assert round(float(rows[1]["paper"]), 2) == 96.20  # 236.66 / 2.46


def steps_of_cola(workgroup=2, **changes):
    """All steps, in half the time of those without the last one, and so on; then MGG's kernel."""
    off = [{}, {"pipelined": False}, {"coalesced": False, "pipelined": False}, {"fusion": False}]
    options = [FULL | each | {"workgroup": workgroup} for each in off]
    records = [timed(0.001 * 2**n, "cola", options=each, **changes) for n, each in enumerate(options)]
    return [*records, timed(0.016, **changes)]


def verdicts(rows):
    return {row["rival"]: (row["verdict"], row["untold"]) for row in rows}


@pytest.mark.parametrize("noted", [False, True])
def test_single_workgroup_has_no_steps(report, noted):
    """Whether the workgroup was asked for, or is the partition's, which the record notes."""
    records = steps_of_cola(workgroup=None if noted else 4, dataset="pokec-like")
    records = [r.model_copy(update={"workgroup": 4}) if noted and r.technique == "cola" else r for r in records]
    rows, page = report(records, "cola_table8")
    none = ("", "one workgroup")
    assert verdicts(rows) == {"basic": ("the paper's direction", ""), "RF": none, "RF+CF": none, "RF+CF+RC": none}
    said = "4 PEs were one workgroup, where the steps change nothing and are not judged: partition.pes must be larger"
    assert page.count(said) == 2  # at the head and in the section
    assert "“RF+CF” took" not in page and "RF+CF / RF+CF+RC+PP" not in section(page, "cola_table8")
    assert "“basic” took 16.0 times" in page
    rows, page = report(records[:-1], "cola_table8")
    assert {row["untold"] for row in rows} == {"one workgroup"} and "4 PEs were one workgroup" in page


def test_last_step_has_no_effect_on_cpu_ranks(report):
    went = ("the paper's direction", "")
    rows, page = report(steps_of_cola(dataset="pokec-like", **CPUS), "cola_table8")
    assert verdicts(rows) == {"basic": went, "RF": went, "RF+CF": went, "RF+CF+RC": ("", "CPU cores")}
    assert "(one comparison): noise, since CPU ranks send at once what they would send beside other work." in page
    rows, page = report(steps_of_cola(dataset="pokec-like"), "cola_table8")
    assert set(verdicts(rows).values()) == {went} and "one workgroup" not in section(page, "cola_table8")
    assert "fetch rows of other workgroups by loads of their GPUs' memory" in section(page, "cola_table8")


def plain(page):
    """The page without its links, which stand in sentences."""
    return re.sub(r"</?a\b[^>]*>", "", page)


def test_bytes_between_workgroups_are_shown_beside_vi_cola(report):
    """Steps that move the same are one line; without fusion it is VI_FC."""
    records = steps_of_cola(dataset="pokec-like")
    crossed = {"workgroup": 2, "bytes_wire": 5_000_000, "vi_fc": 3_000_000, "vi_cola": 2_000_000}
    records = [
        r.model_copy(update=crossed | {"bytes_between": 2_000_000 if r.options["fusion"] else 3_000_000})
        if r.technique == "cola" else r
        for r in records
    ]  # fmt: skip
    rows, page = report(records, "cola_table8", table="aggregate")
    assert {row["bytes_between"] for row in rows if row["technique"] == "mgg"} == {""}
    assert {row["vi_fc"] for row in rows if row["technique"] == "cola"} == {"3000000"}
    once, each = "a row once a workgroup (VI_CoLa)", "a row once a PE (VI_FC)"
    said = f"Between workgroups cola moved {once} in 3 of 3 cases, cola without fusion moved {each} in 1 of 1 case."
    assert said in plain(page)
    text = section(page, "cola_table8")
    assert "4 PEs, workgroups of 2, D = 16, forward, fp32" in text
    # 5, 2 and 3 MB in MiB.
    assert text.count("pokec-like|4.77|1.91|2.86|1.91") == 1
    assert text.count("pokec-like, without fusion|4.77|2.86|2.86|1.91") == 1
    more = [record.model_copy(update={"bytes_between": 2_500_000, "dim": 32}) for record in (records[0], records[-2])]
    said = f"moved {once} in 3 of 4 cases, cola without fusion moved {each} in 1 of 2 cases."
    assert said in plain(report([*records, *more], "cola_table8")[1])


def test_records_without_vi_fc_have_a_dash(report):
    """Those of before it was noted; without bytes between workgroups there is no table of them."""
    records = steps_of_cola(dataset="pokec-like")
    assert "Between workgroups" not in (before := report(records, "cola_table8")[1])
    assert "Bytes between workgroups" not in before
    crossed = {"workgroup": 2, "bytes_wire": 5_000_000, "bytes_between": 2_000_000, "vi_cola": 2_000_000}
    _, page = report([records[0].model_copy(update=crossed), *records[1:]], "cola_table8")
    assert "Between workgroups cola moved a row once a workgroup (VI_CoLa) in 1 of 1 case." in plain(page)
    assert section(page, "cola_table8").count("pokec-like|4.77|1.91|-|1.91") == 1


def ordered(time, technique, ending, **changes):
    return timed(
        time, technique, dataset=f"pokec-like-{ending}", graph_hash=f"{ending:0<64}".encode().hex()[:64], **changes
    )


def test_orders_are_compared_across_graphs(report):
    times = {"cola": (4.0, 2.0), "mgg": (9.0, 6.0), "broadcast": (8.0, 8.0)}
    records = [
        ordered(time, technique, ending)
        for technique, both in times.items()
        for time, ending in zip(both, ("shuffled", "reordered"), strict=True)
    ]
    rows, page = report(records, "cola_table10")
    found = {(row["subject"], row["rival"]): float(row["ratio"]) for row in rows}
    assert found["CoLa, reordered", "CoLa, shuffled"] == 2
    assert found["CoLa, reordered", "MGG, shuffled"] == 4.5
    assert found["CoLa, shuffled", "MGG, reordered"] == 1.5
    assert len(found) == 3 + 2 * 2 * 2, "MG-GCN was not timed"
    text = section(page, "cola_table10")
    assert "CoLa, reordered|4.00 x paper 10.9 x|4.00 x paper 9.46 x|-|-|4.50 x paper 12.0 x|3.00 x paper 8.50 x" in text
    assert "CAGNET, shuffled / CAGNET, reordered|1.00|1.16|too close to call|0 of 1|1" in text


def test_epochs_of_methods_are_compared(report):
    shared = {"pes": 2, "settings": {"layers": 5}, "dataset": "youtube-like", **CPUS}
    runs = [train(technique="cola", **shared)]
    runs.append(train(technique="broadcast", median=0.048, q1=0.047, q3=0.049, **shared))
    (row,), page = report([], "cola_table11", runs=runs)
    assert (float(row["ratio"]), round(float(row["paper"]), 2)) == (pytest.approx(4), 38.45)
    assert "youtube-like|48.0 4.00 x; paper 38.5 x|-|-|12.0|-" in section(page, "cola_table11")


def test_scaling_starts_at_one_pe(report):
    records = [timed(4.0, "local", pes=1), timed(9.0, "cola", pes=1)]
    records += [timed(3.0, "cola", pes=2), timed(2.0, "cola", pes=4), timed(6.0, "broadcast", pes=2)]
    records = [record.model_copy(update={"dataset": "orkut-like"}) for record in records]
    _, page = report(records, "cola_fig3")
    text = section(page, "cola_fig3")
    assert "“CoLa” took 0.750 times as long on 2 PEs as on 1, less time in 1 of 1 case: the paper's direction." in text
    assert "“CAGNET” took 1.50 times as long on 2 PEs as on 1, less time in 0 of 1 case: the paper's direction." in text
    assert "CoLa|4.00|3.00 paper 6.40 ms|2.00 paper 4.60 ms" in text and "CAGNET|4.00|6.00 paper 52.8 ms|-" in text
    assert "MGG|" not in text


def test_scaling_from_two_pes_has_no_verdict(report):
    """The paper's own times of table 6: all methods are faster on four GPUs than on two, as they are on its machine."""
    techniques = ("broadcast", "broadcast_pipelined", "mgg", "cola")
    records = [
        timed(time, technique, pes=pes, dataset="orkut-like")
        for pes, times in EXPERIMENTS["cola_fig3"].sweep.printed["orkut-like"].items()
        for technique, time in zip(techniques, times, strict=True)
    ]
    text = section(report(records, "cola_fig3")[1], "cola_fig3")
    assert "“CoLa” took 0.719 times as long on 4 PEs as on 2, less time in 1 of 1 case." in text
    assert "“CAGNET” took 0.733 times as long on 4 PEs as on 2, less time in 1 of 1 case." in text
    assert "the paper's direction" not in text and "too close" not in text


def test_scaling_uses_numbers_of_pes_that_a_graph_has(report):
    records = [timed(4.0, "local", pes=1, dataset="orkut-like"), timed(3.0, "cola", pes=4, dataset="orkut-like")]
    records += [timed(time, "cola", pes=pes, dataset="pokec-like") for time, pes in ((2.0, 2), (1.0, 4))]
    text = section(report(records, "cola_fig3")[1], "cola_fig3")
    assert "“CoLa” took 0.750 times as long on 4 PEs as on 1, less time in 1 of 1 case." in text


@pytest.mark.parametrize(
    ("cola", "verdict"),
    [(2.0, "the paper's direction"), (9.0, "not the paper's direction"), (5.95, "too close to call")],
)
def test_steepest_growth_with_width_is_named(report, cola, verdict):
    records = [timed(1.0, "broadcast", dim=32), timed(6.0, "broadcast", dim=128)]
    records += [timed(1.0, "cola", dim=32), timed(cola, "cola", dim=128)]
    _, page = report(records, "cola_fig5")
    assert f"The paper's steepest is “CAGNET”: {verdict}." in section(page, "cola_fig5")


BASELINE = "nothing to compare here: the baseline “local” on 1 PE was not measured: add 1 to partition.pes."
UNTOLD = "nothing to compare here: one side or both were not measured, or not together."


@pytest.mark.parametrize(
    ("figure", "measured", "splits", "said"),
    [
        ("cola_fig3", [("cola", 2), ("broadcast", 2)], [], BASELINE),
        ("cola_fig3", [("cola", 2), ("cola", 1)], [], BASELINE),
        ("cola_fig3", [("local", 1)], [], UNTOLD),
        ("cola_fig3", [("local", 1), ("cola", 1)], [], UNTOLD),
        ("cola_fig5", [("cola", 4)], [], UNTOLD),
        ("cola_table3", [], [split("orkut-like", 2, workgroup=2)], UNTOLD),
    ],
)
def test_missing_records_are_reported(report, figure, measured, splits, said):
    """A sweep without its baseline, as config/laptop.yaml measures it, one point, or volumes without workgroups."""
    records = [timed(1.0, technique, pes=pes, dataset="orkut-like") for technique, pes in measured]
    _, page = report(records, figure, splits=splits)
    assert said in section(page, figure) and page.count(said) == 2


def test_volumes_are_shown_beside_the_papers(report):
    # 16 PEs need 10 p + q + 1 rows of each other: V_FC = 4 bytes x 16 columns x 19,680 rows, V_FR three times that.
    rows = sum(10 * p + q + 1 for p in range(16) for q in range(16) if p != q)
    splits = [split("orkut-like", 16, workgroup=8), split("orkut-like", 4)]
    _, page = report([], "cola_table2", splits=splits)
    text = section(page, "cola_table2")
    mib = 4 * 32 * rows / 2**20
    assert f"here|91.6 {100 * (1 - mib / 91.55):.1f} %|{3 * mib:.2f} 66.7 %|{mib:.2f}" in text
    assert "in the paper|5,626 69.4 %|12,965 86.7 %|1,723" in text
    assert "V_FC is the least of V_CG, V_FR and V_FC on 1 of 1 graph: the paper's direction." in text
    shares = {name: float(share) for share, name in re.findall(r"It is ([\d.]+) % of (\w+)", text)}
    assert shares == pytest.approx({"V_CG": 100 * mib / 91.55, "V_FR": 100 / 3}, rel=0.01)
    assert "orkut-like, 4 PEs" not in text


def test_volumes_between_hosts_are_shown_beside_the_papers(report):
    _, page = report([], "cola_table3", splits=[split("livejournal-like", 8, workgroup=4)])
    text = section(page, "cola_table3")
    assert "The paper has 16 in workgroups of 8, here are 8 PEs in workgroups of 4." in text
    assert "in the paper|310 eq. 5: 3,904|1,079|422|165" in text
