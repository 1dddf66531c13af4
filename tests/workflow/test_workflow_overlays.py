"""Overlays of config/experiments/ that time products, from graph to table, many in one run of the workflow.

A run's config is the union of its overlays; then each figure is made of the records alone that its own overlay asks
for. test_workflow_experiments.py runs the overlays of other stages.
"""

import csv
import re
import shlex
from pathlib import Path

import pytest
import yaml
from matplotlib.figure import Figure
from support.workflow import ROOT, Folder

from mgg.aggregate.variants import expand
from mgg.records import AggregateRecord, read_lines, write_lines
from mgg.report import build
from mgg.report.papers.catalogue import EXPERIMENTS

#: PEs: overlays, and widths in place of theirs.
RUNS = {
    (2,): (
        ["mgg_fig3", "mgg_fig6", "mgg_fig8", "mgg_fig10a", "mgg_fig10b", "mgg_fig10c", "mgg_fig11", "mgg_arxiv_fig2",
         "mgg_arxiv_table1", "mgg_arxiv_table4", "cola_table4", "halo_hidden"],
        [16],
    ),
    (1, 2, 4): (
        ["cola_fig3", "cola_fig4", "cola_fig5", "cola_table6", "cola_table7", "cola_table8", "mgg_arxiv_fig3"],
        [32, 64],
    ),
    (1,): (
        ["gnna_fig12a", "gnna_fig12b", "gnna_fig12c", "gnna_fig12d", "gnna_fig13a", "gnna_fig13b", "gnna_fig14",
         "seastar_fig12"],
        [1, 16],
    ),
}  # fmt: skip
SHUFFLED = {"generator": "reddit-like", "shuffle": True, "features": 6, "classes": 3}
GRAPHS = {
    (2,): {"reddit-like": {}},
    (1, 2, 4): {"pokec-like": {"generator": "web-like"}},
    (1,): {"reddit-like-shuffled": SHUFFLED, "reddit-like-reordered": SHUFFLED | {"order": "rabbit"}},
}
#: What the page says in place of a table, of CPU ranks.
NO_TABLE = {"halo_hidden": "CPU ranks fetch, then work: they hide nothing"}
#: Overlays that test_workflow_experiments.py runs to their tables.
ELSEWHERE = {
    "cola_reorder_cost", "cola_table10", "cola_table11", "cola_table2", "cola_table3", "cola_table9", "gnna_fig10",
    "gnna_fig11", "gnna_fig8", "gnna_fig9", "gnna_table2", "mgg_fig7", "mgg_table2", "mgg_table3", "mgg_table4",
    "predicted_scaling", "seastar_fig10", "seastar_fig11", "seastar_table3", "seastar_table4",
}  # fmt: skip
SWITCHES = ("breakdown", "faults", "profile", "latency")
ONCE = {"warmup": 0, "iterations": 1, "launches": 1}


def overlay(name: str) -> dict:
    return yaml.safe_load((ROOT / f"config/experiments/{name}.yaml").read_text(encoding="utf-8"))


def grids(section: dict, technique: str) -> list[dict]:
    """The option sets of a technique, with the options that all of them have."""
    common = section.get("options", {}).get(technique, {})
    return [common | grid for grid in section.get("variants", {}).get(technique, [{}])]


def union(names: list[str]) -> dict:
    """What the overlays ask for together."""
    variants: dict[str, list[dict]] = {}
    others, auto = {}, []
    predict, train = {}, {"models": []}
    for values in map(overlay, names):
        section = values["aggregate"]
        for technique in section["techniques"]:
            if technique == "auto":
                auto = ["auto"]
                continue
            found = variants.setdefault(technique, [])
            found += [grid for grid in grids(section, technique) if grid not in found]
        others |= {switch: True for switch in SWITCHES if section.get(switch)}
        predict |= values.get("predict", {})
        train |= values["train"] if values["train"]["models"] else {}
    products = others | {"techniques": [*auto, *variants], "variants": variants}
    return {"aggregate": products, "predict": predict, "train": train}


def asked(name: str, record: AggregateRecord) -> bool:
    """Whether the overlay itself asks for the record's technique and options."""
    section, technique = overlay(name)["aggregate"], record.technique
    if record.chosen:
        return "auto" in section["techniques"]
    return technique in section["techniques"] and record.options in [
        options.model_dump() for options in expand(technique, {}, grids(section, technique))
    ]


def figure(
    folder: Path, name: str, inputs: list[Path], records: list[AggregateRecord], jobs: Path
) -> tuple[str, list[dict]]:
    """The section of the page, and the rows of table figures, that the overlay's own records make."""
    out = folder / name
    out.mkdir()
    write_lines(out / "records.jsonl", records)
    build([*inputs, *[out / "records.jsonl"][: len(records)]], out / "report", name, [name], job_file=jobs)
    page = (out / "report/index.html").read_text(encoding="utf-8")
    with (out / "report/figures.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return page[page.index(f'<section id="{name}">') :].split("</section>")[0], rows


def test_every_overlay_runs_once():
    here = [name for names, _ in RUNS.values() for name in names]
    assert sorted([*here, *ELSEWHERE]) == sorted(path.stem for path in (ROOT / "config/experiments").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("pes", RUNS, ids=str)
def test_products_of_overlays_become_their_figures(folder: Folder, pes: tuple[int, ...], monkeypatch):
    monkeypatch.setattr(Figure, "savefig", lambda _, file, **__: file.write(b'<svg width="1" height="1"/>'))
    names, dims = RUNS[pes]
    values = union(names)
    values["aggregate"] |= ONCE | {"dims": dims}
    values |= {"results": "results", "experiment": "all", "report": {"figures": names}}
    values["train"]["epochs"] = 2
    values["graph"] = {"scale": 0.0002, "memory": "1GiB", "datasets": GRAPHS[pes]}
    values["partition"] = {"pes": list(pes), "workgroup": 8, "quality_pes": []}
    folder.overlay(values, "all.yaml")
    run = folder.run(overlay="all.yaml")
    assert run.returncode == 0, run.stdout
    (command,) = re.findall(r"mgg report (.*)", run.said)
    words = shlex.split(command)
    inputs = [folder.path / each for each in words[: words.index("--out")]]
    jobs = folder.path / words[words.index("--jobs") + 1]
    timed = [path for path in inputs if "/aggregate/" in str(path)]
    records = [record for path in timed for record in read_lines(path, AggregateRecord)]
    others = [path for path in inputs if path not in timed]
    for name in names:
        own = [record for record in records if asked(name, record)]
        section, rows = figure(folder.path, name, others, own, jobs)
        assert NO_TABLE.get(name, "<table") in section and "hold nothing to compare here" not in section, name
        versus = EXPERIMENTS[name].versus if name in EXPERIMENTS else ()
        assert {(row["subject"], row["rival"]) for row in rows} == {(v.subject.name, v.rival.name) for v in versus}, (
            name
        )
        CHECKS.get(name, lambda *_: None)(own, rows, re.sub(r"<[^>]+>", "", section))


def _fig10a(records: list[AggregateRecord], rows: list[dict], _: str) -> None:
    assert [(row["dim"], row["paper"]) for row in rows] == [("16", "2.26")]
    assert [(each.options["wpb"], each.options["neighbor_partition"]) for each in records] == [(2, True), (2, False)]
    assert all(record.defaults["wpb"] != 2 for record in records)


def _arxiv_table4(records: list[AggregateRecord], rows: list[dict], text: str) -> None:
    assert [row["paper"] for row in rows] == ["1.83"] and all(record.prepare for record in records)
    assert all(f"paper {printed}" in text for printed in ("590 ms", "82.8 s", "6.95 ms", "12.7 ms"))


def _fig12d(records: list[AggregateRecord], _: list[dict], text: str) -> None:
    counted = {(record.options["leader"], record.dim): record.atomics for record in records}
    assert set(counted) == {(leader, dim) for leader in (True, False) for dim in (1, 16)}
    assert all(counted[True, dim] < counted[False, dim] for dim in (1, 16)) and not any(r.repeats for r in records)
    assert f"{counted[False, 16]:,}" in text and "in the paper 47.85 %" in text


def _fig13b(_: list[AggregateRecord], __: list[dict], text: str) -> None:
    assert "Renumbering took" in text


def _seastar_fig12(records: list[AggregateRecord], rows: list[dict], _: str) -> None:
    assert len({(each.technique, *each.options.items()) for each in records}) == 8
    assert all(row["untold"] == "CPU cores" for row in rows)


CHECKS = {
    "mgg_fig10a": _fig10a, "mgg_arxiv_table4": _arxiv_table4, "gnna_fig12d": _fig12d, "gnna_fig13b": _fig13b,
    "seastar_fig12": _seastar_fig12,
}  # fmt: skip
