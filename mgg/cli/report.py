"""``mgg report``: make the report page and its tables.

``mgg compare``: what became slower or less accurate from one report to another.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from mgg import config
from mgg.cli.names import completes
from mgg.cli.options import FOLDER, common, say, show, table, usual
from mgg.errors import CheckError


@click.command()
@click.argument("paths", type=FOLDER, nargs=-1, required=True)
@click.option("--title", default=config.ReportConfig().title, show_default=True, help="heading of the page")
@click.option(
    "--figure", "figures", multiple=True, shell_complete=completes("experiments"),
    help="a paper's figure to compare with, for example mgg_fig10a (mgg list experiments)",
)  # fmt: skip
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


def _share(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Convert a percentage: 0.05 for 5%."""
    try:
        share = float(value.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not (value.endswith("%") and 0 <= share < float("inf")):
        raise click.BadParameter(f"{value!r} is not a percentage such as 5%")
    return share


@click.command()
@click.argument("first", type=FOLDER, metavar="REPORT_A")
@click.argument("second", type=FOLDER, metavar="REPORT_B")
@usual("--threshold", "5%", "what may be worse without an error", callback=_share, metavar="PERCENTAGE")
@common
def compare(first: Path, second: Path, threshold: float, as_json: bool) -> None:
    """Compare two report folders: times of products and epochs, and test accuracies.

    Exit code 4 where something of REPORT_B is slower, or less accurate, than in REPORT_A by more than the threshold.
    """
    from mgg.report.tables.regressions import regressions

    rows = regressions(first, second, threshold)
    counts = Counter(row["result"] for row in rows)
    if as_json:
        show({"first": str(first), "second": str(second), "threshold": threshold, "rows": rows}, True)
    else:
        say(table([_line(row) for row in rows]))
        say(", ".join(f"{number} {result}" for result, number in counts.items()))
    if counts["worse"]:
        raise CheckError(f"{counts['worse']} of {len(rows)} measurements are worse by more than {100 * threshold:.4g}%")


def _line(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table that people read."""
    of = {"aggregate": ("direction", "dim"), "training": ("model", "side", "seed")}[row["table"]]
    what = " ".join(f"{key}={row[key]}" if isinstance(row[key], int) else str(row[key]) for key in of)
    options = row["options"].strip("{}").replace('"', "").replace(": ", "=")
    noise = ", launches overlap" if row["overlap"] and row["result"] != "same" else ""
    change = "" if row["change"] is None else f"{row['change']:+.1%}"
    return {
        "dataset": row["dataset"], "technique": f"{row['technique']} {options}".strip(), "what": what,
        "pes": row["pes"], "dtype": row["dtype"], "measure": row["measure"], "A": row["first"], "B": row["second"],
        "change": change, "result": row["result"] + noise,
    }  # fmt: skip
