"""Snakemake's own report: what the stages have made, with captions."""

import json
from pathlib import Path

from support.workflow import Folder


def test_snakemakes_report_has_every_stage_and_needs_no_network(finished: Folder):
    nowhere = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https", "all")}
    target = finished.path / "report.html"
    run = finished.run("--report", str(target), env=finished.environment(**nowhere))
    assert run.returncode == 0, run.stdout
    assert "No files found for patterns" not in run.stdout
    text = target.read_text(encoding="utf-8")
    categories = json.loads(
        text[text.index("var categories = ") + len("var categories = ") :].split("\n", 1)[0].rstrip(";")
    )
    assert set(categories) == {"graph", "partition", "layout", "aggregate", "train", "report"}
    shown = [Path(path).name for kinds in categories.values() for paths in kinds.values() for path in paths]
    assert {"index.html", "jobs.csv", "partition.json", "run.json", "metrics.jsonl", "predictions.parquet"} <= set(
        shown
    )
    assert sum(name.endswith(".svg") for name in shown) == text.count('"mime_type": "image/svg+xml"') > 3
