"""``mgg report``: make the report page and its tables."""

from __future__ import annotations

from pathlib import Path

import click

from mgg import config
from mgg.cli.names import completes
from mgg.cli.options import FOLDER, common, show


@click.command()
@click.argument("paths", type=FOLDER, nargs=-1, required=True)
@click.option("--title", default=config.ReportConfig().title, show_default=True, help="heading of the page")
@click.option(
    "--figure",
    "figures",
    multiple=True,
    shell_complete=completes("experiments"),
    help="a paper's figure to compare with, for example mgg_fig10a (mgg list experiments)",
)
@click.option("--note", "notes", multiple=True, metavar="FIGURE=TEXT", help="a remark below a figure")
@click.option("--jobs", type=FOLDER, help="the workflow's records of its jobs, results/jobs.jsonl, if it exists")
@click.option("--out", type=FOLDER, required=True, help="report folder")
@common
def report(
    paths: tuple[Path, ...], title: str, figures: tuple[str, ...], notes: tuple[str, ...], jobs: Path | None, out: Path,
    as_json: bool,
) -> None:  # fmt: skip
    """Make the report page and tables of timing records (.jsonl), training runs and partitions (folders)."""
    from mgg.report import build

    remarks = {name: text for name, _, text in (note.partition("=") for note in notes)}
    build(paths, out, title, figures, remarks, jobs)
    show({"page": str(out / "index.html"), "out": str(out)}, as_json)
