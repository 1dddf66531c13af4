"""Snakemake's own report: what the stages have made, with captions."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support import workflow
from support.workflow import ROOT, TINY, Folder

#: A data set of each kind and predictions: every rule whose output the report shows.
CONFIG = TINY | {
    "graph": {"datasets": {"planted": {"scale": 0.05}, "digits": {}}, "describe": True},
    "partition": {"pes": [2], "quality_pes": []},
    "predict": {"pes": [16], "techniques": ["halo"], "dims": [4]},
}
#: Where the captions of outputs have to say what is filled in there: by output, as a pattern.
CAPTIONS = {
    r"retrieve/digits/.*\.yaml": "Where the files of data set digits came from",
    r"graph/planted/.*\.yaml": "The manifest of graph planted: nodes, arcs",
    r"describe/planted\.jsonl": "What graph planted is like: degrees, communities",
    r"partition/digits/p2/partition\.json": "How digits was split over 2 PEs: .* for 64 columns",
    r"layout/planted/p2/.*": "What each of the 2 PEs holds of planted",
    r"aggregate/digits/p2\.jsonl": "products on digits with 2 PEs, a line each: techniques halo, widths 4, fp32;",
    r"train/planted/gcn-halo-p2-s0/run\.json": "A run of gcn on planted with technique halo, 2 PEs, seed 0:",
    r"predict/digits\.jsonl": "What the cost model foretells for digits on machine h200",
    r"report/index\.html": "Times are medians of launches",
    r"report/aggregate\.csv": "A table of the page, unrounded and in base units",
    r"report/.*/.*\.svg": "Of one (graph and width|model and graph)|The jobs of one run",
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What Snakemake said and the report's text, of a finished run, without network."""
    folder = Folder(tmp_path_factory.mktemp("finished"))
    folder.overlay(CONFIG)
    run = folder.run()
    assert run.returncode == 0, run.stdout
    nowhere = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https", "all")}
    target = folder.path / "report.html"
    run = folder.run("--report", str(target), env=folder.environment(**nowhere))
    assert run.returncode == 0, run.stdout
    return run.stdout, target.read_text(encoding="utf-8")


def variable(text: str, name: str) -> Any:
    """The value of one of the page's variables."""
    return json.JSONDecoder().raw_decode(text, re.search(rf'var {name} = (?={{")', text).end())[0]


@pytest.mark.slow
def test_snakemakes_report_has_every_stage_and_needs_no_network(shown: tuple[str, str]):
    said, text = shown
    assert "No files found for patterns" not in said
    categories = variable(text, "categories")
    stages = {"retrieve", "graph", "describe", "partition", "layout", "aggregate", "train", "predict", "report"}
    assert set(categories) == stages
    overview = (ROOT / "workflow/report/workflow.rst").read_text(encoding="utf-8")
    assert all(f'"{stage}"' in overview for stage in stages)
    names = [Path(path).name for kinds in categories.values() for paths in kinds.values() for path in paths]
    assert {"index.html", "jobs.csv", "partition.json", "run.json", "metrics.jsonl", "predictions.parquet"} <= set(
        names
    )
    assert sum(name.endswith(".svg") for name in names) == text.count('"mime_type": "image/svg+xml"') > 3


@pytest.mark.slow
def test_captions_describe_their_files(shown: tuple[str, str]):
    """Every file has one, with what it is about filled in."""
    captions = {workflow.plain(path): plain(each["caption"]) for path, each in variable(shown[1], "results").items()}
    assert [path for path, caption in captions.items() if len(caption) < 40 or "{" in caption] == []
    for output, words in CAPTIONS.items():
        found = [caption for path, caption in captions.items() if re.fullmatch(f"results/{output}", path)]
        assert found and all(re.search(words, caption) for caption in found), (output, found)


def plain(html: str) -> str:
    """The words of a caption."""
    return " ".join(re.sub(r"<.*?>", "", html).split())
