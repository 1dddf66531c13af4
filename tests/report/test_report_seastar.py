"""Seastar's figures and tables: sides that are libraries, and memory in place of time, worked out by hand."""

import html

from synthetic_records import GPUS, MACHINE, VERSIONS, timed, train

from mgg.report.papers.catalogue import EXPERIMENTS

ON_GPU = {"backend": "nvshmem", "machine": GPUS.model_copy(update={"gpus": ["NVIDIA H100"]}), "pes": 1}
OURS = {**ON_GPU, "technique": "local"}
PYG = {"side": "pyg", "technique": "pyg", "versions": VERSIONS | {"torch": "2.13.0", "torch-geometric": "2.8.1"}}
MIB = 2**20


def run(median, memory=None, **changes):
    fields = OURS | {"median": median, "q1": 0.99 * median, "q3": 1.01 * median, "gpu_memory": memory}
    return train(**(fields | changes))


def rgcn(dataset, median, memory=None, **changes):
    return run(
        median, memory, dataset=dataset, model="rgcn", graph_hash=dataset.encode().hex().ljust(64, "0"), **changes
    )


def printed(rows, figure):
    """The paper's quotients by data set and rival."""
    rows = [row for row in rows if row["figure"] == figure]
    return {(row["dataset"], row["rival"]): row["paper"] and round(float(row["paper"]), 2) for row in rows}


def test_epochs_are_compared_with_a_library(report):
    """Versions of the library are no other machine."""
    (row,), page = report([], "seastar_fig10", runs=[run(0.002), run(0.006, **PYG)])
    assert (row["subject"], row["rival"], row["model"], round(float(row["ratio"]), 9)) == ("MGG", "PyG", "gcn", 3)
    assert (row["paper"], row["verdict"], row["subject_memory_bytes"]) == ("3", "the paper's direction", "")
    text = html.unescape(page)
    assert "“PyG” took 3.00 times as long as “MGG” (one comparison): the paper's direction (paper: up to 3)." in text
    assert "torch-geometric 2.8.1" in text


def test_kernel_options_are_compared_with_the_last(report):
    """With the paper's quotients where it prints times: 5.92 ms over 38.5 us, and 1.57 s over 2.36 ms."""
    usual = {"groups": "adaptive", "arcs": "together", "blocks": "hardware", "rows": "given"}
    took = {
        1e-3: {"arcs": "sequence", "rows": "sorted"}, 2e-3: {"arcs": "sequence"},
        3e-3: {"arcs": "sequence", "rows": "sorted", "blocks": "atomic"}, 4e-3: {"groups": "block", "arcs": "sequence"},
        5e-3: {"arcs": "sequence", "blocks": "static"}, 6e-3: {}, 7e-3: {"arcs": "parallel"},
    }  # fmt: skip
    how = {"machine": ON_GPU["machine"], "backend": "nvshmem", "pes": 1, "bytes_wire": 0, "bytes_per_pe": [0]}
    records = [
        timed(median, "seastar", dim=dim, options=usual | options, defaults=usual, **how)
        for median, options in took.items()
        for dim in (1, 16, 602)
    ]
    rows, page = report(records, "seastar_fig12")
    found = {row["rival"]: round(float(row["ratio"])) for row in rows if row["dim"] == "16"}
    assert found == {
        "FA+Unsorted": 2, "FA+Sorting+Atomic": 3, "Basic": 4, "FA+Unsorted, static blocks": 5, "our defaults": 6,
        "arcs in parallel": 7,
    }  # fmt: skip
    claims = {
        row["dim"]: row["paper"] and round(float(row["paper"])) for row in rows if row["rival"] == "arcs in parallel"
    }
    assert claims == {"1": 154, "16": "", "602": 665}
    assert "paper 154 x" in page


def test_memory_is_compared_in_bytes(report):
    runs = [run(0.002, 100 * MIB), run(0.001, 400 * MIB, **PYG)]
    (row,), page = report([], "seastar_fig11", runs=runs)
    assert (row["subject_memory_bytes"], row["rival_memory_bytes"]) == (str(100 * MIB), str(400 * MIB))
    assert [row[name] for name in ("subject_median_s", "ratio", "paper")] == ["", "4", "8"]
    assert row["verdict"] == "the paper's direction"
    text = html.unescape(page)
    assert (
        "“PyG” took 4.00 times as much memory as “MGG” (one comparison): the paper's direction (paper: up to 8)."
        in text
    )
    assert "Memory of each, and over that of MGG" in text and "PyG (MiB)" in text
    section = text[text.index('<section id="seastar_fig11">') :]
    assert "<td>400" in section and "Medians of the slowest PE" not in section[: section.index("</section>")]


def test_fused_and_unfused_programs_are_compared(report):
    """Of the same model and technique; neither is taken for the other."""
    program = {"model": "gat_program", "model_file": "ab" * 32}
    runs = [run(0.002, **program), run(0.008, **program, side="unfused")]
    runs += [run(0.001, model="gat"), run(0.004, model="gat", **PYG)]
    rows, page = report([], "seastar_fig10", runs=runs)
    found = {(row["model"], row["rival"]): round(float(row["ratio"]), 9) for row in rows}
    assert found == {("gat_program", "MGG, unfused"): 4, ("gat", "PyG"): 4}
    assert "local, unfused" in page


def test_sides_have_their_column(tables):
    training = tables(runs=[run(0.002), run(0.008, side="unfused"), run(0.004, **PYG)])["training"]
    assert sorted((row["side"], row["label"]) for row in training) == [
        ("mgg", "local"), ("pyg", "pyg"), ("unfused", "local, unfused"),
    ]  # fmt: skip


def test_rgcn_tables_are_shown_beside_the_paper(report):
    bmm = PYG | {"side": "pyg_bmm", "technique": "pyg_bmm"}
    runs = [rgcn("aifb", 0.001, MIB), rgcn("aifb", 0.02, 3 * MIB, **PYG), rgcn("aifb", 0.002, 2 * MIB, **bmm)]
    runs += [rgcn("bgs-like", 0.1, MIB), rgcn("bgs-like", 0.2, MIB, **bmm)]
    rows, page = report([], "seastar_table3", "seastar_table4", runs=runs)
    found = printed(rows, "seastar_table3")
    # 106.2 / 3.1 and 10.8 / 3.1; on BGS PyTorch Geometric ran out of memory.
    assert found == {("aifb", "PyG"): 34.26, ("aifb", "PyG-bmm"): 3.48, ("bgs-like", "PyG-bmm"): ""}
    assert "paper 34.3 x" in page
    text = html.unescape(page)
    assert "Generated graphs stand for the paper's: bgs-like (2,708 nodes, 10,556 arcs) for BGS (333,845 nodes," in text
    found = {("aifb", "PyG"): 2.18, ("aifb", "PyG-bmm"): 2.15, ("bgs-like", "PyG-bmm"): ""}
    assert printed(rows, "seastar_table4") == found


def test_sampled_and_full_graph_epochs_are_compared(report):
    """Table 3 of MGG prints how much longer the whole graph takes: 1.07."""
    sampled = PYG | {"side": "pyg_sampled", "technique": "pyg_sampled"}
    runs = [run(0.004, model="sage", dataset="reddit-like"), run(0.2, model="sage", dataset="reddit-like", **sampled)]
    rows, _ = report([], "mgg_table3", runs=runs)
    assert printed(rows, "mgg_table3") == {("reddit-like", "sampled, in PyG"): 0.93}
    assert [round(float(row["ratio"]), 9) for row in rows] == [50]


def test_memory_is_not_compared_on_cpus(report):
    on_cpus = {"backend": "mpi", "machine": MACHINE}
    rows, page = report([], "seastar_fig11", runs=[run(0.002, **on_cpus), run(0.006, **(PYG | on_cpus))])
    assert rows == []
    assert "memory is measured on GPUs alone, and no run says what it held of one." in page


def test_page_shows_known_memory(page):
    text = page(runs=[run(0.002, 3 * MIB), run(0.006, **PYG)])
    assert "GPU memory (MiB)" in text and "<td>3.00</td>" in text
    assert "GPU memory (" not in page(runs=[run(0.002)])


def test_each_figure_compares_one_quantity():
    for name in ("fig10", "fig11", "fig12", "table3", "table4"):
        shown = EXPERIMENTS[f"seastar_{name}"].versus
        assert {versus.memory for versus in shown} == {name in ("fig11", "table4")}
        assert all(versus.subject.column == versus.rival.column for versus in shown)
